"""Messages whose help can be followed: what it says to write is taken, and nothing is told of twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.model import Diagnostic
from reodsl.language import CompileResult, compile_file
from reodsl.language.hints import FUNCTIONS_ELSEWHERE, METHODS
from tests.language.conftest import HEAD, MINE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def errors(compiled: Callable[..., CompileResult]) -> Callable[[str], list[Diagnostic]]:
    def run(text: str) -> list[Diagnostic]:
        return [each for each in compiled(text).diagnostics if each.severity == "error"]

    return run


def amended(line: str) -> str:
    return f"{HEAD}{MINE}experiment other = mine {{\n  {line}\n}}\n"


@pytest.mark.parametrize(
    ("line", "code", "advice"),
    [
        ("kl = .1", "E0136", "0.1"),
        ("clip { low = .2, high = .28 }", "E0136", "0.2"),
        ("monitor = 64", "E0301", "monitor { questions = 64, samples = 8, every = 20 steps }"),
        ("teacher_follows = 0.9", "E0301", "teacher_follows { decay = 0.9, every = 10 steps }"),
        ("teacher_follows = 20 steps", "E0301", "teacher_follows { every = 20 steps }"),
        ("teacher_follows = true", "E0301", "teacher_follows { every = 10 steps }"),
        ("rollout = 64", "E0301", "rollout { max_tokens = 64 tokens }"),
        ("optim = 1e-6", "E0301", "optim { lr = 1e-6 }"),
        ("lora = 8", "E0301", "lora { rank = 8 }"),
    ],
)
def test_a_value_in_another_form_leads_to_one_that_is_whole(
    errors: Callable[[str], list[Diagnostic]], line: str, code: str, advice: str
) -> None:
    found = errors(amended(line))
    assert {each.code for each in found} == {code}
    assert found[0].help == f"write `{advice}`"
    if code == "E0301":
        kl = "kl = 1, " if "teacher" in advice else ""
        # A monitor set is read by a track, and this reward has none.
        idle = ["E0521"] if "monitor" in advice else []
        assert [each.code for each in errors(amended(kl + advice))] == (idle or ["E0214"])


@pytest.mark.parametrize(
    "name", sorted({helps: name for name, helps in FUNCTIONS_ELSEWHERE.items()}.values())
)
def test_a_function_of_other_languages_leads_to_what_serves(
    errors: Callable[[str], list[Diagnostic]], name: str
) -> None:
    """What is said to be written is taken, of a number in place of `…`."""
    reward = "reward r {{\n  let a = len(y) / 1K tokens\n  {}\n}}\n"
    (found,) = errors(HEAD + MINE + reward.format(f"correct(y) + {name}(a)"))
    assert (found.code, found.help) == ("E0201", FUNCTIONS_ELSEWHERE[name])
    for code in re.findall("`([^`]*)`", FUNCTIONS_ELSEWHERE[name]):
        if "kl" in code:
            assert not errors(HEAD + MINE.replace("reward = outcome", f"reward = outcome\n  {code}"))
            continue
        value = code.replace('"…"', '"([0-9]+)"').replace("…", "clip(a, 0, 1)")
        value = f"1 if {value} else 0" if ">" in code.replace("> 0 else", "") or "==" in code else value
        value = (
            f"correct(y) / {value} * 1 token"
            if code == "len(y)"
            else f"{value} + z(a)"
            if code[0] == "z"
            else value
        )
        value = f"correct(y) + {value} / 1K tokens" if code.startswith("mean(len") else value
        assert not errors(HEAD + MINE + reward.format(value)), value


def test_a_param_of_an_imported_file_is_set_as_the_help_says(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "common.reo").write_text(
        f"{HEAD}param longer: int = 400\n{MINE.replace('400 steps', '1 steps * longer')}"
    )
    spec = tmp_path / "spec.reo"
    text = "from .parts.common import mine\nexperiment other = mine { kl = 1e-3 }\n"
    spec.write_text(text)
    (wrong,) = compile_file(spec, sets={"longer": "7"}).diagnostics
    place, clause = re.fullmatch(
        "it is a param of (.*): change it there, or import it here, `(.*)`, and set it", wrong.help or ""
    ).groups()  # type: ignore[union-attr]
    assert Path(place.rpartition(":")[0]) == tmp_path / "parts" / "common.reo"
    assert (
        (tmp_path / "parts" / "common.reo")
        .read_text()
        .split("\n")[int(place.rpartition(":")[2]) - 1]
        .startswith("param")
    )
    spec.write_text(f"{clause}\n{text}")
    mended = compile_file(spec, sets={"longer": "7"})
    assert mended.diagnostics == ()
    assert mended.spec is not None
    assert '"steps":7,' in mended.spec.model_dump_json()


PLACES = (
    "loss {{ clip = {} }}", "loss {{ ratio = {} }}", "loss_mean = {}", "advantage {{ normalise = {} }}", "credit = {}",
    'loss {{ clip = "{}" }}', "loss = {}", "{} = true", "loss {{ {} = true }}",
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_in_place_of_a_value_is_told_how_it_is_written(
    errors: Callable[[str], list[Diagnostic]], name: str
) -> None:
    """Wherever it stands; and what the help says to write is taken."""
    place = PLACES[sorted(METHODS).index(name) % len(PLACES)]
    for each in {place, PLACES[0]}:
        (found,) = errors(amended(each.format(name)))
        assert found.help == METHODS[name], each
    lines = [part for part in re.findall("`([^`]*)`", METHODS[name]) if "=" in part]
    if name not in ("dpo", "simpo"):  # These train on pairs, which the rest of the spec does not have.
        # Two experiments without a study are all that is wrong.
        assert [each.code for each in errors(amended("\n  ".join(lines)))] == ["E0214"], lines


def test_an_answer_may_end_with_its_line(errors: Callable[[str], list[Diagnostic]]) -> None:
    text = 'forcing f {{\n  text = "so"\n  answer_tokens = 3 tokens\n  close = "{}"\n}}\n'
    assert [each.code for each in errors(text.format(r"\n"))] == [
        "E0215"
    ]  # Nothing to run is all that is wrong.
    assert [each.code for each in errors(text.format(""))] == ["E0303"]


def test_a_change_of_one_experiment_is_not_told_to_name_it() -> None:
    spec = ROOT / "specs" / "miniature" / "dpo_shortest.reo"
    found = compile_file(spec, amends={"dpo_shortest.entropy": "0.01"}).diagnostics
    (wrong,) = [each for each in found if each.severity == "error"]
    assert wrong.code == "E0521"
    assert wrong.help == "leave it out: `dpo_shortest` does not use it, and only ppo has `entropy`"
    of_all = compile_file(spec, amends={"entropy": "0.01"}).diagnostics
    assert [each.help for each in of_all if each.severity == "error"] == [
        "leave it out: only ppo has `entropy`, and no experiment here trains so"
    ]


def test_the_step_of_a_reward_leads_to_a_track_that_is_taken(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    reward = "reward r {{\n  {}correct(y) - {}\n}}\n"
    (found,) = errors(amended("reward = r") + reward.format("", "step / 100 steps"))
    track, name = re.findall("`([^`]*)`", found.help or "")
    assert [each.code for each in errors(amended("reward = r") + reward.format(f"{track}\n  ", name))] == [
        "E0214"
    ]
