"""What is wrong with a spec, as a person sees it: a golden file for each mistake, and every mistake in one pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.diagnostics.model import Diagnostic
from reodsl.diagnostics.render import codes, render
from reodsl.syntax import Source, mistakes, parse, parse_expression
from tests.language.test_pages import examples

MISTAKES = {
    "setting_at_top_level": "lr = 3\n",
    "kind_without_name": "experiment = ppo {\n  lr = 3\n}\n",
    "block_without_name": "study {\n  a = 1\n}\n",
    "expression_at_top_level": "check(x)\n",
    "let_at_top_level": "let a = 1\n",
    "import_without_from": "import std.models\n",
    "import_star": "from std.models import *\n",
    "import_in_block": "study s {\n  from std.models import a\n  param n: int = 1\n}\n",
    "late_docstring": 'study s {}\n"""What it is."""\n',
    "two_docstrings": 'study s = t { """One.""" } """Two."""\n',
    "operator_begins_line": "reward r {\n  correct(y)\n  * trapezoid(4 tokens)\n}\n",
    "brace_on_next_line": "reward r(a: int)\n{\n  a\n}\n",
    "block_out_of_nowhere": "study s {\n  { a = 1 }\n}\n{ b = 2 }\n",
    "declaration_without_value": "study s {\n  arm base\n}\nexperiment e\n",
    "return": "reward r {\n  return correct(y)\n}\n",
    "keyword_as_name": "budgets from = exp(n: 5)\n",
    "keyword_as_value": "study s {\n  a = import\n  b = [for]\n}\n",
    "colon_in_setting": "study s {\n  lr: 5e-6\n  let a: 1\n}\nexperiment: e\n",
    "equals_in_argument": "budgets b = exp(from = 1K tokens, to: 32K tokens)\n",
    "equals_in_value": "study s {\n  a = [b = 1]\n  c = (d = 1)\n}\n",
    "dotted_setting": "study s {\n  optim.lr = 1e-6\n}\n",
    "no_value": "study s {\n  a =\n  b = 1 +\n  c = f(n:)\n  d = not\n  e = (1 +)\n}\n",
    "value_on_next_line": "study s {\n  a =\n    1\n}\n",
    "block_without_base": "experiment e = {\n  lr = 1\n}\n",
    "choice_without_else": "reward r {\n  1 if correct(y)\n}\n",
    "loop": "reward r {\n  for z in group\n  if correct(y)\n}\n",
    "comprehension_in_list": "study s {\n  a = [z for z in group]\n  b = mean(z for group)\n}\n",
    "chained_comparison": "reward r {\n  1 < len(y) < 3\n}\n",
    "two_settings_on_a_line": "study s {\n  lr = 5e-6 clip = 3\n  a = b c = d\n}\n",
    "missing_comma": "study s {\n  a = [b c]\n  d = f(1 2)\n  e = g(h { } i)\n}\n",
    "missing_equals": 'study s {\n  lr 5e-6\n  name "x"\n  arm x 5\n}\n',
    "missing_operator": "reward r {\n  (a) (b) 3\n}\n",
    "double_comma": "study s {\n  a = 1,, b = 2\n  ; c = f(,)\n  d = [1,,2]\n}\n",
    "tuple": "study s {\n  a = (1, 2)\n}\n",
    "suffix_apart": "param n: tokens = 16 K tokens\n",
    "param_without_type": "param n\nparam m = 3\nparam k: int 5\nparam l: int = 5 in 3\nparam j: int in [1, 2]\n",
    "reward_parameter_without_type": "reward r(alpha) {\n  alpha\n}\n",
    "header_and_block": "experiment e ppo {\n  a =\n  batch { b = }\n  c = 1\n}\n",
    "text_never_closed": 'study s {\n  a = "open\n  b = 1 +\n}\n',
    "long_text_never_closed": 'study s {\n  a = """open\n  b = 1 +\n}\n',
    "escape": 'study s {\n  a = "\\[ \\boxed{ \\u00e9"\n}\n',
    "escape_in_long_text": 'study s {\n  a = """one\n  two\\n"""\n  b = """\\nu \\neq"""\n}\n',
    "other_languages": "study s {\n  a = b ** c && d || !e\n  f := 'text'\n  g -= 1   // comment\n  h = i => j\n}\n",
    "other_characters": "study s {\n  a = “b”\n  naïve = 1\n  c = 2 × 3 − 1\n  d = 1\u00a0+ 2\n  e = 5 % 2\n  f = @g\n}\n",
    "line_continuation": "study s {\n  a = b \\\n    + c\n}\n",
    "malformed_numbers": "study s {\n  a = 5k\n  b = 16Ktokens\n  c = 1.2.3\n  d = 1e999\n  e = 0x10\n}\n",
    "long_number": f"study s {{\n  a = {'7' * 70}\n}}\n",
    "parenthesis_never_closed": "study s {\n  a = max(1, (2\n  b = 1\n}\nstudy t { c = }\n",
    "brace_never_closed": "study s {\n  batch { a = 1\n  b = 1\n}\nstudy t { c = }\n",
    "brace_never_closed_before_declaration": "study s {\n  b = 1\n\nexperiment e = ppo {\n  lr = \n}\n",
    "braces_in_a_call": 'data d { source = file("a.jsonl", columns: {question: "q"}) }\n',
    "brace_never_opened": "experiment e = ppo  reward = outcome }\n",
    "brace_never_closed_at_end": "study s {\n  batch {\n    a = 1\n  }\n",
    "wrong_bracket": "study s {\n  a = f(1]\n  b = [1, 2)\n  c = [f(1], 2]\n}\n",
    "stray_bracket": "study s {\n  a = 1)\n}\n}\nstudy t { b = }\n",
    "brace_too_many_inside": "study s {\n  batch { a = 1 } }\n  lr = 3\n}\n",
    "nested_too_deep": "reward r {\n  " + "(" * 65 + "1" + ")" * 65 + "\n}\n",
    "chain_too_long": "reward r {\n  " + "1 + " * 65 + "1\n}\n",
    "item_begins_with_a_sign": "= 1\nstudy s {\n  : 1\n}\n",
    "name_in_quotes": 'experiment "my-run" = ppo\n',
    "name_with_hyphen": "experiment my-run = ppo\n",
    "block_of_python": "experiment mine = ppo:\nreward r(a: int):\n",
    "blocks_on_a_line": "study s {\n  table main { rows = arms } chart curves { x = budget }\n}\n",
    "blocks_too_deep": "study s " + "{ a " * 150 + "}" * 150 + "\n",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_look_as_they_did(name: str, golden: Callable[[str, str], None]) -> None:
    text = MISTAKES[name]
    result = parse(Source(f"{name}.reo", text))
    assert result.diagnostics
    shown = render(result.diagnostics, {f"{name}.reo": text})
    golden(f"syntax/mistakes/{name}.txt", shown)
    # The grammar's own names for things stay inside: no word of three capitals but those of the language's forms.
    words = set(re.findall(r"\b[A-Z][A-Z_]{2,}\b", re.sub(r"(?m)^ *[0-9]+ \|.*$", "", shown)))
    forms = {
        "NAME", "VALUE", "KIND", "TYPE", "DEFAULT", "LOWEST", "HIGHEST", "MODULE", "BUDGETS",
        "CONDITION", "LIST",
    }  # fmt: skip
    assert words <= forms


def test_every_named_mistake_is_met_by_one_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[str] = set()

    def noting(each: mistakes.Mistake) -> mistakes.Mistake:
        def say(fault: mistakes.SyntaxFault) -> Diagnostic | None:
            diagnostic = each.say(fault)
            if diagnostic is not None:
                met.add(each.say.__name__)
            return diagnostic

        return replace(each, say=say)

    names = {each.say.__name__ for each in mistakes.MISTAKES}
    monkeypatch.setattr(mistakes, "MISTAKES", [noting(each) for each in mistakes.MISTAKES])
    for name, text in MISTAKES.items():
        parse(Source(name, text))
    parse_expression(Source("alone", "* 2"))
    assert met == names


ELSEWHERE = {"E0101", "E0216", "N0101"}
"""Those have tests with files."""


def _used() -> set[str]:
    folder = Path(parse.__code__.co_filename).parent
    return {code for path in folder.glob("*.py") for code in re.findall(r'"([EWN]\d{4})"', path.read_text())}


def test_every_code_of_the_syntax_has_a_page_and_a_mistake() -> None:
    used = _used()
    shown = {d.code for name, text in MISTAKES.items() for d in parse(Source(name, text)).diagnostics}
    assert used - shown == ELSEWHERE
    assert used <= set(codes())


@pytest.mark.parametrize("code", sorted(_used() - ELSEWHERE))
def test_pages_show_what_they_say(code: str) -> None:
    wrong, right = examples(code)
    assert {d.code for d in parse(Source("page", wrong)).diagnostics} == {code}
    assert parse(Source("page", right)).diagnostics == ()


def test_every_independent_error_is_reported_once() -> None:
    text = "\n".join(
        [
            "param n",  # 1
            "study s {",
            "  a =",  # 3
            "  b = 1",
            "  batch {",
            "    c = f(x = 1)",  # 6
            "    d = 2",
            "    e: 3",  # 8
            "  }",
            "  g = [1 2]",  # 10
            "}",
            "experiment ok = ppo { lr = 1 }",
            "lr = 2",  # 13
            'reward r { "open }',  # 14
            "}",
            "experiment fine = ppo",
        ]
    )
    result = parse(Source("many.reo", text))
    assert [d.labels[0].span.line for d in result.diagnostics] == [1, 3, 6, 8, 10, 13, 14]
    # What is right is still there: names that other files import do not vanish with the errors.
    assert [item.name.name for item in result.module.items] == ["s", "ok", "r", "fine"]
    block = result.module.items[0].block  # type: ignore[union-attr]
    assert [item.name.name for item in block.items] == ["b", "batch"]  # type: ignore[union-attr]


def test_no_more_than_a_hundred_are_shown(refusal: Callable[..., None]) -> None:
    text = "study s {\n" + "a = = 1\n" * 150 + "}\n"
    result = parse(Source("many.reo", text))
    assert [d.code for d in result.diagnostics] == ["E0140"] * 100 + ["N0101"]
    refusal("syntax/N0101.txt", render(result.diagnostics[-1:], {"many.reo": text}))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("exp(n: 5", "E0131"),
        ("", "E0140"),
        ("1 +", "E0140"),
        ("a b", "E0142"),
        ("a = 1", "E0141"),
        ("1; 2", "E0130"),
    ],
)
def test_an_expression_alone(text: str, code: str) -> None:
    result = parse_expression(Source("--set n", text))
    assert result.expression is None
    assert [d.code for d in result.diagnostics] == [code]


def test_an_expression_alone_may_go_over_lines() -> None:
    assert parse_expression(Source("--set n", "exp(n: 5,\n to: 3)\n")).expression is not None
    assert parse_expression(Source("--set n", "[1,\n2]")).diagnostics == ()
