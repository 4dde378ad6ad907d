"""Advice is tried: what the help of each diagnostic of the language says is done to its page's wrong example.

After it the finding is gone, no other has come, and no expression has become constant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from reodsl.diagnostics import Diagnostic
from reodsl.language.reward import typing
from reodsl.language.reward.body import FormulaScope
from reodsl.language.reward.names import TypedExpr
from reodsl.lsp.analysis import Analysis, analyse
from reodsl.lsp.fixes import UNUSED, fixes
from reodsl.syntax import tree
from tests.language.test_pages import CODES, NAMES, ROOT, examples
from tests.lsp.advice import apply_edits, ways_out

CHOICE = "several would do, and the help names what to choose from"
NUMBER = "a number is to be chosen"
OUTSIDE = "it is of another file, of data or of the machine"
THOUGHT = "it says what is wrong with the idea, and what to think of instead"
BY_HAND = {
    "E0209": CHOICE, "E0299": CHOICE, "E0212": CHOICE, "E0216": OUTSIDE, "E0303": NUMBER, "E0303-track": NUMBER,
    "E0305": CHOICE, "E0308": "a reward is to be declared", "E0311": CHOICE, "E0312": THOUGHT,
    "E0313": THOUGHT, "E0316": THOUGHT, "E0317": CHOICE, "E0320": THOUGHT, "E0404": NUMBER,
    "E0405": CHOICE, "E0404-longest": NUMBER,
    "E0408": "the frontier is in another file, or the schedule's end is to be chosen",
    "E0408-rollouts": CHOICE, "E0501": NUMBER, "E0510-sft": OUTSIDE,
    "E0510": "a selection is to be declared", "E0512": "a number is to be written into the text",
    "E0514": CHOICE, "E0603": CHOICE, "E0609": "a frontier is to be chosen",
    "E0612": "numbers that were printed are to be copied", "E0616": CHOICE, "E0720": CHOICE,
    "E0815": CHOICE, "E0722": THOUGHT, "E0722-group": THOUGHT, "W0302": THOUGHT,
    "W0403": "the suite is the library's, and an own one is to be declared", "W0404": CHOICE,
    "W0606": CHOICE, "W0608": "the amount is to be chosen, or the reason to be written",
    "W0616": "what was asked for is shown as what it is",
}  # fmt: skip
"""The pages and examples whose help no edit can do by itself, with the reason."""
PARTLY = {
    ("E0606", "lora { rank = 32 }"): "whether it is enough depends on the cluster",
    (
        "E0615",
        "cluster = h800_16x8",
    ): "the study and the experiment are two ways out, and the place is the experiment's",
    ("E0507", "optim { algorithm = adamw }"): "its `rest` goes with `muon`",
    ("W0301", "correct(y)"): "it is what a reward may depend on",
    ("W0301", "len(y)"): "it is what a reward may depend on",
    ("W0528", "placement = apart"): "the cluster may be the library's",
}
"""Ways that a help names beside one that an edit takes, which no edit can take, with the reason."""
IN_FULL = {"E0202": ("experiment mine", "experimnt mine")}
"""Pages whose wrong example lacks more than what it shows: the mistake in their right one."""
PATH = ROOT / "spec.reo"
NAMED = re.compile("`([^`]+)`")


@pytest.fixture
def constant(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the expressions of rewards that have one value alone, though they are of what moves."""
    still: Counter[str] = Counter()
    typed = typing._type_node

    def noted(body: FormulaScope, expr: tree.Expr) -> TypedExpr:
        value = typed(body, expr)
        moves = any(isinstance(each, (tree.Name, tree.Comprehension)) for each in tree.walk(expr))
        if not value.is_constant and value.low == value.high and moves:
            still[expr.span.path] += 1
        return value

    monkeypatch.setattr(typing, "_type_node", noted)
    return still


def analysed(text: str, still: Counter[str]) -> tuple[Analysis, int]:
    """A text compiled, and how many of its expressions are constant."""
    still.clear()
    analysis = analyse(PATH, {PATH: text})
    assert analysis.findings is not None
    return analysis, still[str(PATH)]


def messages(findings: tuple[Diagnostic, ...]) -> Counter[tuple[str, str]]:
    return Counter((each.code, each.message) for each in findings if each.code != UNUSED)


def ways(code: str, text: str, still: Counter[str]) -> Iterator[str]:
    """Each fix of a code's findings, when it has been tried."""
    before, constants = analysed(text, still)
    for fix in ways_out(before, {PATH: text}, 1, 10**6):
        if fix.finding.code != code:
            continue
        mended = apply_edits(text, fix.edits)
        after, others = analysed(mended, still)
        key = fix.finding.code, fix.finding.message
        assert key not in messages(after.findings), mended
        assert (code, None) not in {(each.code, each.help) for each in after.findings}
        assert not messages(after.findings) - messages(before.findings), mended
        assert others <= constants, mended
        yield fix.title


@pytest.mark.parametrize("name", NAMES)
def test_an_editor_offers_only_what_mends(name: str) -> None:
    text, *_ = examples(name)
    before = analyse(PATH, {PATH: text})
    for fix in fixes(before, 1, 10**6):
        after = analyse(PATH, {PATH: apply_edits(text, (fix.edit,))})
        assert (fix.finding.code, fix.finding.message) not in messages(after.findings), fix.title


@pytest.mark.parametrize("name", NAMES)
def test_advice_is_right_where_it_is_given(name: str, constant: Counter[str]) -> None:
    code, _, _ = name.partition("-")
    text, *right = examples(name)
    if code in IN_FULL:
        good, wrong = IN_FULL[code]
        text = right[0].replace(good, wrong)
    titles = list(ways(code, text, constant))
    if name in BY_HAND:
        assert titles == [], "an edit does it: take the code out of the list"
        return
    assert titles
    helps = [each.help or "" for each in analysed(text, constant)[0].findings if each.code == code]
    for written in NAMED.findall(helps[0]):
        # A name alone says where to look, and what has a hole is filled in.
        if re.search(r"[={(]|: ", written) and "…" not in written and (code, written) not in PARTLY:
            assert any(written in title for title in titles), (written, titles)


def test_every_golden_is_of_a_page_or_of_a_command_line() -> None:
    """What is not tried here has its help in a command line (`--amend`, `--set`, `--target`), or in several files."""
    names = {path.stem for path in (ROOT / "tests" / "goldens" / "language").glob("*.txt")}
    rest = {name.split("-")[0] for name in names} - set(CODES)
    assert rest == {"places", "slips"}
    assert set(BY_HAND) <= set(NAMES)
    assert {code for code, _ in PARTLY} <= set(CODES)
