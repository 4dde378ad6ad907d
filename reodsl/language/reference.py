"""Write the reference of the language in Markdown, and list its words for grammars of editors and pages.

Both are made from the table of kinds, the functions and the library.

`python -P -m reodsl.language.reference` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reodsl.ir.expression import FUNCTIONS, MEMORY, READINGS, TOKENS
from reodsl.ir.kinds import DECLARED, KINDS
from reodsl.ir.setting import Block, Kind, Num, Setting
from reodsl.language.fitting import describe_type
from reodsl.language.functions import ENDS, REASONING_STEPS, SIGNATURES
from reodsl.language.modules import LIBRARY, list_library
from reodsl.language.reward.names import FUNCTIONS as REWARD_FUNCTIONS
from reodsl.language.units import UNITS
from reodsl.syntax import grammar, parse, read_source

HEAD = """# Reference

Every kind of declaration with its settings, the functions, and the standard library. The tables are made from the ones
that the compiler checks against (`python -P -m reodsl.language.reference`).

A file holds imports, `param`s and declarations. `KIND NAME = PARENT { … }` begins as its parent is and changes what is in
the block; `KIND NAME { … }` begins empty. A list replaces its parent's, `+=` adds to it.
"""


def list_readings(body: str, response: str) -> list[tuple[str, str]]:
    """Return the documented words that read a number of a response, as pairs (call, meaning).

    Args:
        body: The sort of formula in which the words may be used, such as `a reward`.
        response: The variable for the response in the calls, such as `y`.
    """
    calls = {name: word for name, word in READINGS.items() if body in word.bodies}
    return [(f"`{word.call or f'{name}({response})'}`", word.means) for name, word in calls.items()]


REWARD_WORDS = (
    ("`y`", "the response; `x.FIELD` is a number of its question, or of how it was sampled"),
    ("`len(y)`", "its length in tokens, at least 1"),
    *list_readings("a reward", "y"),
    ("`correct(y)`", "1 where it is right, else 0"),
    (
        "`correct(answer(y[:L]))`",
        "1 where the answer forced after L tokens is right; a response of fewer tokens is graded as it is",
    ),
    (
        '`python("style.py:score", y)`',
        "the number that your own function returns for it; it may also have `batch`, `seconds` and `memory`"
        " (`reodsl explain own_code`)",
    ),
    ("`correct(y[:L])`", "1 where its first L tokens contain the right answer, with nothing forced"),
    (
        "`mean(prob(t) for t in y)`",
        "a statistic over its tokens; `for t in y[:L]`: over its first L tokens",
    ),
    *((f"`{name}(t)`", means) for name, (means, _) in TOKENS.items()),
    (
        "`mean(logprob(t, under: teacher) for t in y)`",
        "log-probabilities under the stage's `teacher`; without a teacher, under the reference model",
    ),
    (
        "`mean(prob(t) for t in truth(y))`",
        "over the tokens of the reference answer, written where the response has its own;"
        " `truth(y[:L])`: forced after L tokens",
    ),
    (
        "`mean(logprob(t, under: teacher) for t in answer(y), empty: 0)`",
        "over the tokens of the response's own answer; there are none if it has several boxes",
    ),
    ("`trapezoid(L)`, `uniform(L)`, `half_first(L)`", "the weight of a split"),
    (
        "`before(L)`",
        "the split before L, 0 tokens for the first; `before(len(y))`: the last split before the end",
    ),
    (
        "`mean(len(z) for z in group if correct(z), empty: …)`",
        "a statistic over the responses to the question; `for z in ref`: over the reference model's responses to it",
    ),
    (
        "`std(correct(z) - mean(correct(w) for w in group) for z in batch)`",
        "a statistic over all responses of the step; in it, `group` is the responses to the question of `z`",
    ),
    (
        "`min(len(z) for z in history(x) if correct(z), empty: 4K tokens)`",
        "a statistic over the responses to the question in earlier steps of the stage,"
        f" the last {MEMORY:,} at most; there are none at first",
    ),
    ("`sum(correct(answer(y[:M])) for M in splits if M <= L)`", "over the splits of the response"),
    (
        "`mean` `std` `min` `max` `sum` `count` `median`",
        "statistics; with an `if`, `empty:` gives the value for no elements",
    ),
    (
        " ".join(f"`{function.written or name}`" for name, function in FUNCTIONS.items()),
        "functions of numbers; `pi`",
    ),
    ("`A if C else B`, `and`, `or`, `not`, `==` `!=` `<` `<=` `>` `>=`", "conditions"),
    (
        "`track usual = mean(len(z) for z in steps(20 steps), empty: 1K tokens)`",
        "a number that moves with training, computed before each step over the responses of the last 20 steps;"
        " `for z in monitor`: over the responses to the monitor set",
    ),
    (
        "`track limit = quantile(len(z) for z in monitor if mean(correct(w) for w in group) > 0.5, at: 20%,"
        " empty: 1K tokens)`",
        "the 20% quantile: the least length that 20% do not exceed; `group` is the responses to the question of `z`",
    ),
    ("`track warm = min(1, step / 100 steps)`", "`step` is the number of finished steps of the stage"),
    (
        "`track price = max(price + mean(len(z) for z in steps(1 step), empty: 1K tokens) / 1K tokens - 1, 0, start: 0)`",
        "a track that reads its own value at the step before; `start` is its value at the first step",
    ),
    (
        "`metric spread = std(len(z) for z in group)`",
        "a line of its own: each step logs its mean over responses as `metric_spread`. A track below it that has a `start`"
        " may read the mean of the step before by its name; nothing else may",
    ),
    (
        "`z(A) + 0.5 * z(B, on: prefix)`",
        "a sum of parts, as the whole of a reward: each part is normalised over the group, then multiplied by a number, a"
        " track or a value of the group; `on: prefix`, `on: thinking` or `on: solution` gives a part to those tokens alone",
    ),
)
"""The parts of a reward's expressions, with their meanings."""
MEASURE_WORDS = (
    (
        "`mean(len(z) for z in arm if correct(z), empty: 0 tokens)`",
        "a mean over an arm's responses, in which every question has the same weight",
    ),
    ("`mean(len(z) for z in base)`", "a mean over the responses of the arm that the score is `relative_to`"),
    (
        "`count(w for w in group if correct(w))`",
        "in such a mean: a statistic over the responses to the question of `z`",
    ),
    (
        "`min(L for L in grid if correct(answer(z[:L])), empty: len(z))`",
        "in such a mean: a statistic over the suite's budgets",
    ),
    (
        "`reach(correct(z) for z in arm, at: 90%)`",
        "the tokens at which the accuracy of answers that are forced there first reaches 90%, linear between budgets; beside"
        " means, and without a value for an arm that never reaches it",
    ),
    *list_readings("a measure", "z"),
)
"""The parts of a measure's expressions, with their meanings."""
REWARDS = f"""
## Rewards

A reward holds `let NAME = EXPRESSION` lines, functions as `let NAME(A, B) = EXPRESSION`,
`track NAME = EXPRESSION` lines, and `metric NAME = EXPRESSION` lines.
It ends in one expression, a number for the whole response, or in
`dense L in SPLITS: EXPRESSION`, a number at each split. Statistics run over splits in every one of these lines but a track.
`splits` are those of the `dense` line. A reward without such a line names its splits in a statistic, as in
`mean(correct(answer(y[:M])) for M in [1K tokens, 4K tokens])`. A reward has one set of splits, those of `y`.

| in an expression | means |
| --- | --- |
{"".join(f"| {code} | {means} |" + chr(10) for code, means in REWARD_WORDS)}
Units are checked: `+`, `-`, comparisons, `min` and `max` take equal units, `/` cancels them, and a reward has no unit.
The checker follows the range of every expression. It refuses a divisor that may be 0. A parameter declares its range,
as in `reward mine(longest: tokens in 1 token..1M tokens, weight: number = 0.5)`.

A statistic may contain another statistic over another variable: `mean(correct(z) for z in group if count(w for w in group if
len(w) < len(z)) < 4)` is over the four shortest. With `advantage {{ normalise = none }}` a reward is the advantage itself,
which may be normalised, filtered or weighed by hand.

## Measures

A measure is a number of an evaluated arm, for columns and charts: `columns = [accuracy, pass_at(4)]` (`std.measures`).
It takes parameters and holds `let`s as a reward does, and ends in one expression of means over responses. It has an
interval over seeds and questions, paired by question: that of a jackknife, which is exact for a mean.

| in a measure | means |
| --- | --- |
{"".join(f"| {code} | {means} |" + chr(10) for code, means in MEASURE_WORDS)}
## Selections

A selection takes parameters and holds `let`s as a reward does, over `group`, a question's responses in a pool. It picks
responses, or, for rewards, it keeps questions:

| in a selection | means |
| --- | --- |
| `trace = argmin(len(z) for z in group if correct(z))` | a trace for SFT; `argmax` likewise, the first of equals |
| `trace = each(z for z in group if correct(z))` | a trace of every such response, as in rejection sampling |
| `preferred = …`, `rejected = …` | a pair for SimPO and DPO; `rejected` may read `len(preferred)` |
| `where = …` | a condition on the picked responses |
| `pick NAME {{ … }}` | one of several picks for a question, with its own settings |
| `margin = …`, `drop = 15%` | the worth of a pick; the 15% of all picks with the least worth are left out |
| `where = mean(correct(z) for z in group) < 1`, alone | a condition on the questions that `ppo` trains on |
"""


def reference() -> str:
    """Return the reference of the language as Markdown."""
    units = ", ".join(f"`{unit}`" for unit in dict.fromkeys(UNITS.values()))
    parts = [HEAD, f"\nUnits: {units}, `%`. K is 1024 for tokens and 1000 otherwise; M and G likewise.\n"]
    parts.append("\n## Kinds at the top of a file\n")
    for name in DECLARED:
        if name in KINDS:
            parts.append(_kind(KINDS[name]))
    parts.append(REWARDS)
    parts.append("\n## Kinds inside others\n")
    parts.extend(
        _kind(kind) for kind in KINDS.values() if kind.form == "declared" and kind.name not in DECLARED
    )
    parts.extend(_kind(kind) for kind in KINDS.values() if kind.form == "block")
    parts.append("\n## Functions\n")
    calls = [kind for kind in KINDS.values() if kind.form == "call"]
    parts.extend(_call_section(kind) for kind in (*SIGNATURES.values(), ENDS, REASONING_STEPS, *calls))
    parts.append("\n## Standard library\n")
    parts.extend(_module_section(name) for name in list_library())
    return "".join(parts)


def _kind(kind: Kind) -> str:
    """Return the section of a kind of declaration: description, parents, children and the table of settings.

    Experiments, stages and arms have the settings of a recipe, so their sections refer to it.
    """
    parent = f" Made from: {', '.join(kind.parents)}." if kind.parents else ""
    holds = f" Holds: {', '.join(f'`{child}`' for child in kind.children)}." if kind.children else ""
    shared = kind.name in ("experiment", "stage", "arm")
    title = f"\n### {kind.name}\n\n{kind.doc}{parent}{holds}\n"
    return (
        f"{title}\nThe settings are those of `recipe`.\n" if shared else title + _table(kind.fields.items())
    )


def _call_section(kind: Kind) -> str:
    """Return the section of a function: its call, description and the table of arguments."""
    args = [name if name in kind.positional else f"{name}: …" for name in kind.fields]
    return f"\n### {kind.name}({', '.join(args)})\n\n{kind.doc}\n" + _table(kind.fields.items())


def _table(fields: Iterable[tuple[str, Setting]]) -> str:
    """Return the Markdown table of settings or arguments; empty without any."""
    rows = [
        f"| `{name}` | {_type_words(field)} | {default_words(field)} | {field.doc} |"
        for name, field in fields
    ]
    return (
        "\n| setting | type | default | meaning |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
        if rows
        else ""
    )


def _type_words(field: Setting) -> str:
    """Return a setting's type in words, with its range and the training methods that have the setting."""
    words = describe_type(field.type)
    if isinstance(field.type, Block):
        words = f"block [`{field.type.kind}`](#{field.type.kind})"
    sense = field.type.range_words() if isinstance(field.type, Num) else ""
    methods = f" ({', '.join(field.methods)})" if field.methods else ""
    return (f"{words}, {sense}" if sense else words).replace("|", "\\|") + methods


def default_words(field: Setting) -> str:
    """Return a setting's default as a spec would write it, `required`, or an empty text without a default."""
    if field.required:
        return "required"
    if field.default is None:
        return ""
    default = field.default
    if isinstance(default, tuple):
        return f"`[{', '.join(str(item) for item in default)}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _module_section(name: str) -> str:
    """Return the section of a module of the standard library: its description and its declarations."""
    path = LIBRARY.joinpath(*name.split("."))
    source = read_source(path.with_name(path.name + ".reo"), f"std/{name}.reo")
    module = parse(source).module
    rows = [f"- `{item.name.name}` ({item.kind_name}){_first_paragraph(item.doc)}" for item in module.items]
    return f"\n### std.{name}\n\n{(module.doc or '').strip()}\n\n" + "\n".join(rows) + "\n"


def _first_paragraph(doc: str | None) -> str:
    """Return a colon and the first paragraph of a text on one line; empty without a text."""
    return ": " + " ".join(doc.strip().split("\n\n")[0].split()) if doc and doc.strip() else ""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of the language by their use, each group sorted."""

    keywords: tuple[str, ...]
    """Words of the grammar."""
    constants: tuple[str, ...]
    """`true` and `false`."""
    kinds: tuple[str, ...]
    """Words that begin declarations."""
    functions: tuple[str, ...]
    """Words that are called."""
    units: tuple[str, ...]
    """Words behind numbers."""
    number: str
    """The pattern of a number."""


def words() -> Words:
    """Return the words of the language, for the grammars of editors and pages."""
    constants = {"true", "false"}
    children = {child for kind in KINDS.values() for child in kind.children}
    constructors = {name for name, kind in KINDS.items() if kind.form == "call"}
    return Words(
        keywords=tuple(sorted(set(grammar.words()) - constants)),
        constants=tuple(sorted(constants)),
        kinds=tuple(sorted({*DECLARED, *children, "track", "metric"})),
        functions=tuple(sorted({*SIGNATURES, *REWARD_FUNCTIONS, "quantile", "reach", *constructors})),
        units=tuple(sorted(UNITS)),
        number=next(t.pattern.to_regexp() for t in grammar.terminals() if t.name == "NUMBER"),
    )


if __name__ == "__main__":
    print(reference(), end="")
