"""What belongs to a study and is written elsewhere: seeds, a score, a report, the suite of its arms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.diagnostics.model import Diagnostic
from reodsl.ir.setting import place_of, settings_of
from reodsl.ir.study import Spec, Study
from reodsl.language import CompileResult
from tests.language.conftest import HEAD, MINE

FEWER = "suite fewer = math_reg { samples = 4 }\n"


@pytest.fixture
def only(compiled: Callable[..., CompileResult]) -> Callable[[str], Diagnostic]:
    """The one error in a text."""

    def run(text: str) -> Diagnostic:
        (found,) = [each for each in compiled(text).diagnostics if each.severity == "error"]
        return found

    return run


def test_every_setting_of_a_study_reaches_the_spec(spec: Callable[..., Spec]) -> None:
    """Also those that no task reads, such as `unequal`, which the report shows."""
    lines = {
        "replicate": "replicate = [4, 5]",
        "score": "frontier best = envelope(of: [base, mine], to: 32K tokens)\nscore = reg(against: best, to: 16K tokens)",
        "cluster": "cluster = machines",
        "engine": "engine = sglang",
        "limit": "limit = 5 gpu_hours",
        "unequal": 'unequal = "each is a stage"',
    }
    head = HEAD + MINE + 'cluster machines { nodes = 2, gpus_per_node = 8, gpu = "H800", memory = 80 GiB }\n'
    arms = "arm base = checkpoint(qwen3_4b) { eval = math_reg }\narm mine = mine\n"
    plain = spec(f"{head}study all {{\n{arms}}}").study
    fields = {place_of(name, info): name for name, info in Study.model_fields.items()}
    assert lines.keys() == settings_of(Study).keys() & fields.keys()
    for setting, line in lines.items():
        changed = spec(f"{head}study all {{\n{arms}{line}\n}}").study
        assert getattr(changed, fields[setting]) != getattr(plain, fields[setting]), setting


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("seeds = [4, 5]", "replicate = [1, 2, 3]"),
        ("replicate = [4, 5]", "replicate = [1, 2, 3]"),
        ("report { table main { columns = [accuracy] } }", "report { … }"),
    ],
)
@pytest.mark.parametrize("kind", ["experiment", "recipe"])
def test_a_setting_of_a_study(only: Callable[[str], Diagnostic], kind: str, line: str, setting: str) -> None:
    found = only(f"{HEAD}{MINE}{kind} other = {'mine' if kind == 'experiment' else 'ppo'} {{\n{line}\n}}")
    assert found.code == "E0203"
    assert found.help == f"a study sets this for all its arms: `study NAME {{ {setting}, arm NAME = … }}`"


def test_a_study_whose_arms_have_no_suite(only: Callable[[str], Diagnostic]) -> None:
    bare = MINE.replace("  eval = math_reg\n", "")
    found = only(f"{HEAD}{bare}study all {{\narm a = mine\narm b = checkpoint(qwen3_4b)\n}}")
    assert found.code == "E0304"
    assert found.message == "`all` needs `eval`, a suite: how its arms are evaluated"
    assert [label.text for label in found.labels] == ["no `eval`", *["no `eval` either"] * 2]
    assert found.help == "add `eval = math_reg` to the study, a declared suite or one from `std.suites`"


@pytest.mark.parametrize("study", ["eval = math_reg", "eval = fewer", "replicate = [1]"])
@pytest.mark.parametrize(
    ("second", "helps"),
    [
        ("fewer", "give `few` the same suite: `eval = math_reg`"),
        (
            "math_reg { samples = 4 }",
            "declare that suite, `suite NAME = math_reg { … }`, and write `eval = NAME` in each arm",
        ),
    ],
)
def test_arms_on_other_suites(only: Callable[[str], Diagnostic], study: str, second: str, helps: str) -> None:
    # Two arms on a suite without a name are more than the one on `math_reg`.
    more = [f"arm {name} = checkpoint(qwen3_4b) {{ eval = {second} }}" for name in ("few", "too")]
    arms = (
        "arm base = checkpoint(qwen3_4b) { eval = math_reg }",
        *(more if "{" in second else more[:1]),
        f"frontier edge = envelope(of: [base, few{', too' if '{' in second else ''}], to: 32K tokens)",
    )
    found = only("\n".join((HEAD, FEWER, "study all {", study, *arms, "}")))
    assert (found.code, found.help) == ("E0601", helps)
