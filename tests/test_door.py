"""The door for notebooks: load, override, plan, run, frames and charts."""

from __future__ import annotations

import asyncio
import os
import pydoc
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import reodsl
from reodsl.cli.main import main
from reodsl.diagnostics import Problem, warning
from reodsl.plan.registry import load_registry
from reodsl.store.runs import records
from runners.models.folder import load

pytestmark = pytest.mark.slow


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.reo"
    path.write_text(
        '''"""Two steps of next-token training on the miniature, and its start."""
from std.miniature import chain_model, chain_second_traces, chain_forcing, chain_easy
from std.recipes import sft

param length: steps = 2 steps in 1 steps..9 steps

data few_questions { source = generated(chain_easy, count: 4, seed: 1), verifier = exact }
benchmark few { data = few_questions }
suite quick {
  benchmarks = [few]
  max_tokens = 16 tokens
  samples    = 1
  grid       = [0 tokens, 8 tokens, 16 tokens]
  reg_to     = 16 tokens
  forcing    = chain_forcing
}

experiment tiny = sft {
  base       = chain_model
  data       = chain_second_traces
  batch      { prompts = 4 }
  max_tokens = 192 tokens
  steps      = length
  eval       = quick
}
'''
    )
    return path


@pytest.mark.usefixtures("undrawn")
def test_a_cell_runs_inside_the_event_loop_of_its_notebook(spec: Path, tmp_path: Path) -> None:
    """Also again after one that was interrupted, as a kernel does it, in the same process."""

    async def cell(length: int) -> float:
        return len(reodsl.load(spec, length=length).run(tmp_path / "out", local=True).samples("tiny", 1))

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        loop = asyncio.new_event_loop()
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell(9))
        assert loop.run_until_complete(cell(1)) == 4
        loop.close()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.heavy
@pytest.mark.usefixtures("undrawn")
def test_an_interrupt_ends_a_cell_whenever_it_comes(spec: Path, tmp_path: Path) -> None:
    came: list[float] = []

    def interrupt() -> None:
        came.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    async def cell(number: int) -> None:
        threading.Timer(0.03 * number, interrupt).start()
        store, out = tmp_path / f"store{number}", tmp_path / f"out{number}"
        reodsl.load(spec, store=store, length=9).run(out, local=True, quiet=True)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    try:
        for number in range(100):
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(cell(number))
            assert time.monotonic() - came[-1] < 10
        assert len(came) == 100
    finally:
        loop.close()
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("undrawn")
def test_a_spec_is_loaded_overridden_planned_and_run(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(load_registry(), check=lambda *_: (warning("W0971", "other GPUs"),))
    monkeypatch.setattr("reodsl.run.load_registry", lambda: other)
    loaded = reodsl.load(spec, length=3, amend={"optim.lr": 1e-4})
    (training,) = [task for task in loaded.graph.tasks if task.kind == "train"]
    assert training.payload["stage"]["steps"] == 3
    assert training.payload["stage"]["optim"]["lr"] == 1e-4
    assert set(loaded.plan().values()) == {"run"}
    assert repr(loaded) == "<reodsl spec tiny: 2 arms, 7 tasks>"
    assert "+ tiny.train" in str(loaded)
    assert "Plan: 7 run." in str(loaded)
    assert loaded._repr_html_() == f"<pre>{str(loaded).replace('>', '&gt;')}</pre>"
    with pytest.warns(UserWarning, match="W0971: other GPUs") as warned:
        run = loaded.run(tmp_path / "out", local=True)
    assert warned[0].filename == __file__
    told = capsys.readouterr()
    assert told.out == ""
    assert "[6/7] start    report" in told.err
    assert "] done     tiny.train.s1  " in told.err
    loaded.run(tmp_path / "out", local=True)
    assert capsys.readouterr().err == ""
    assert set(reodsl.load(spec, length=3, amend={"optim.lr": 1e-4}).plan().values()) == {"reuse"}
    assert run.report.read_text().startswith("<!doctype html>")
    assert {"main", "curves"} <= set(run.tables())
    assert {each.report for each in records(loaded.store)} == {str(run.report.resolve())}
    assert repr(run) == f"<reodsl run of tiny: {run.report}>"
    assert [line.split()[0] for line in str(run).splitlines()[1:3]] == ["base", "tiny"]
    assert str(run).endswith(f"report: {run.report}")
    assert "tiny" in run._repr_html_()
    assert f'<a href="{run.report.as_posix()}">report</a>' in run._repr_html_()
    assert run.table("training").height == 3
    assert run.table().equals(run.table("main"))
    assert run.samples("tiny", 1).height == 4
    assert run.curves().to_dict()["layer"]
    mine, ours = (
        AutoModelForCausalLM.from_pretrained(run.checkpoint("tiny", 1)),
        load(run.checkpoint("tiny", 1)),
    )
    ids = AutoTokenizer.from_pretrained(run.checkpoint("tiny", 1))(
        "<q> 1 a +1 ? <think>", return_tensors="pt"
    )
    assert ids["input_ids"].tolist() == [ours.tokenizer.encode("<q> 1 a +1 ? <think>")]
    with torch.no_grad():
        assert torch.equal(mine(**ids).logits, ours.model(**ids).logits)
    start = AutoModelForCausalLM.from_pretrained(run.checkpoint("base", 1))
    assert not torch.equal(start.get_input_embeddings().weight, mine.get_input_embeddings().weight)
    assert main(["ls", "tiny", "--store", str(loaded.store.root)]) == 0
    places = [run.checkpoint(arm, 1).resolve() for arm in ("base", "tiny")]
    assert capsys.readouterr().out.splitlines()[-2:] == [f"model: {place}" for place in places]
    with pytest.raises(Problem, match="there is no table 'mian'"):
        run.table("mian")
    with pytest.raises(Problem, match="nothing was evaluated as tinny@1"):
        run.samples("tinny", 1)
    with pytest.raises(Problem, match="nothing was evaluated on 'fw'") as caught:
        run.curves("fw")
    assert caught.value.__notes__[0].endswith("= help: there is few, mean\n")


def test_a_spec_with_errors_says_all_of_them(spec: Path) -> None:
    with pytest.raises(Problem) as caught:
        reodsl.load(spec, length=12)
    (shown,) = caught.value.__notes__
    assert "must be from 1 step to 9 steps" in shown
    assert "= help: " in shown
    assert [found.code for found in caught.value.diagnostics]


def test_a_limit_holds(spec: Path) -> None:
    loaded = reodsl.load(spec, amend={"limit": "0.0001 gpu_hours"})
    with pytest.raises(Problem, match="and the limit is") as caught:
        loaded.run(local=True)
    assert [found.code for found in caught.value.diagnostics] == ["E0610"]
    assert not (spec.parent / ".reodsl").exists()


def test_what_is_no_mapping_of_settings_is_refused(spec: Path) -> None:
    with pytest.raises(Problem, match="`amend` is 'steps=3', which is not a mapping") as caught:
        reodsl.load(spec, amend="steps=3")  # type: ignore[arg-type]
    assert "= help: write `amend={" in caught.value.__notes__[0]
    with pytest.raises(Problem, match=r"`amend` is \{3: 4\}, which is not a mapping"):
        reodsl.load(spec, amend={3: 4})  # type: ignore[dict-item]


def test_the_package_shows_its_door_and_its_types() -> None:
    assert "load" in dir(reodsl)
    assert "load(path" in pydoc.render_doc(reodsl, renderer=pydoc.plaintext)
    assert Path(reodsl.__file__).with_name("py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        getattr(reodsl, "laod")  # noqa: B009 (a name that the types know is not there)
