"""Training that goes wrong: numbers that are none, and a model that never ends its answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bad_input.commands import FROM_FOLDER, SPEC, Place, refused, whole

SFT = (
    FROM_FOLDER.replace("from std.recipes   import ppo", "from std.recipes   import sft")
    .replace("chain_easy\n", "chain_easy, chain_traces\n")
    .replace("seed: 1), verifier", "seed: 1, traces: chain_traces), verifier")
    .replace("experiment tiny = ppo {", "experiment tiny = sft {\n  max_tokens = 64 tokens")
    .replace("  batch       { prompts = 2, rollouts = 2 }", "  batch { prompts = 2 }")
)
for _line in ("reward      =", "rollout     {", "max_prompt  =", "minibatches =", "epochs      ="):
    SFT = "".join(line for line in SFT.splitlines(keepends=True) if _line not in line)
SFT += "\nstudy alone { arm tiny = tiny }\n"


def spoilt(checkpoint: Path, folder: Path, value: float) -> None:
    """A copy of a checkpoint with this value in some of its weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"][:] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number(place: Place, checkpoint: Path, value: float) -> None:
    spoilt(checkpoint, place.folder / "weights", value)
    place.write(SFT)
    told = place.call("run", "tiny.reo", "--local", "--quiet", "--target", "alone")
    refused(
        told, "E0926", "tiny.reo:33:3", "step 1", "in tiny.train.s1", "the loss is nan", "lower `optim.lr`"
    )
    whole(place.folder / ".reodsl", {"model", "data"})
    assert not (place.folder / "runs").exists()


def test_answers_drawn_from_no_numbers(place: Place, checkpoint: Path) -> None:
    spoilt(checkpoint, place.folder / "weights", float("nan"))
    place.write(FROM_FOLDER)
    told = place.run()
    refused(
        told, "E0802", "tiny.train.s1, base.eval", "the model's logits are not finite", "earlier checkpoint"
    )
    whole(place.folder / ".reodsl", {"model", "data"})


def test_a_reward_that_is_no_number(place: Place) -> None:
    own = "reward own {\n  len(y) / (len(y) - 5 tokens)\n}\n"
    place.write(SPEC.replace("= outcome", "= own").replace("\nexperiment", f"\n{own}\nexperiment"))
    refused(place.run(), "E0307", "tiny.reo:38:12", "this may divide by zero", "divide only if it is not 0")
    assert not (place.folder / ".reodsl").exists()


def test_a_model_that_never_ends_its_answer_and_learns_nothing(
    place: Place, refusal: Callable[..., None]
) -> None:
    short = SPEC.replace("  max_tokens = 16 tokens\n  samples", "  max_tokens = 2 tokens\n  samples")
    short = short.replace(
        "[0 tokens, 8 tokens, 16 tokens]\n  reg_to     = 16", "[0 tokens, 2 tokens]\n  reg_to     = 2"
    )
    place.write(short)
    told = place.call("run", "tiny.reo", "--local")
    assert told.code == 0
    (report,) = Path("runs").iterdir()
    warned = told.err[told.err.index("warning[") :].rstrip() + "\n"
    one, two = warned.split("\n\n")
    for code, text in (("W0801", f"{one}\n"), ("W0803", two)):
        refusal(f"commands/{code}.txt", text, (str(report.resolve()), "REPORT"), (str(report), "REPORT"))
    whole(place.folder / ".reodsl", {"model", "data", "train", "evaluate", "report"})
    facts = json.loads(place.call("run", "tiny.reo", "--local", "--json").out)
    assert facts["status"] == "finished"
    assert [found["code"] for found in facts["diagnostics"]] == ["W0801", "W0803"]


def test_questions_that_are_left_out_are_reported_at_the_start_and_in_the_report(place: Place) -> None:
    """Some prompts are longer than the limit: the run says so before its first step, and the page lists it."""
    place.write(
        SPEC.replace("count: 4, seed: 1)", "count: 40, seed: 1)").replace(
            "max_prompt  = 32 tokens", "max_prompt  = 9 tokens"
        )
        + "\nstudy alone { arm tiny = tiny }\n"
    )
    told = place.call("run", "tiny.reo", "--local", "--target", "alone")
    assert told.code == 0, told.err
    assert told.err.count("warning[W0807]") == 1
    assert told.err.index("W0807") < told.err.index("done     tiny.train.s1")
    assert "excluded by `max_prompt = 9 tokens`" in told.err
    assert "left out too long" in told.err
    (page,) = place.folder.glob("runs/*/report.html")
    assert "max_prompt = 9 tokens" in page.read_text("utf-8")


def test_rows_that_are_dropped_are_reported_at_the_start_and_in_the_report(place: Place) -> None:
    """The same four questions twice: half of the rows are dropped."""
    four = "generated(chain_easy, count: 4, seed: 1)"
    place.write(
        SPEC.replace(f"source = {four}", f"source = [{four}, {four}], duplicates = drop")
        + "\nstudy alone { arm tiny = tiny }\n"
    )
    told = place.call("run", "tiny.reo", "--local", "--target", "alone")
    assert told.code == 0, told.err
    assert (
        told.err.count("warning[W0807]: 4 of 8 rows are dropped: those that ask an earlier question again")
        == 1
    )
    assert told.err.index("W0807") < told.err.index("done     tiny.train.s1")
    (page,) = place.folder.glob("runs/*/report.html")
    assert "duplicates = drop" in page.read_text("utf-8")
    # A run that finds it all done shows the line too.
    again = place.call("run", "tiny.reo", "--local", "--target", "alone")
    assert again.err.count("warning[W0807]") == 1
    assert "8 | data asked {" in again.err, again.err
