"""Write the reference of the language in Markdown, and list its words for grammars of editors and pages.

Both are made from the table of kinds, the functions and the library.

`python -P -m reodsl.language.reference` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from string import Template

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


def _write_rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Return pairs (code, meaning) as rows of a Markdown table."""
    return "\n".join(f"| {code} | {means} |" for code, means in pairs)


REWARDS = Template(Path(__file__).with_name("formulas.md").read_text("utf-8")).substitute(
    reward_readings=_write_rows(list_readings("a reward", "y")),
    measure_readings=_write_rows(list_readings("a measure", "z")),
    tokens=_write_rows((f"`{name}(t)`", means) for name, (means, _) in TOKENS.items()),
    functions=" ".join(f"`{function.written or name}`" for name, function in FUNCTIONS.items()),
    memory=f"{MEMORY:,}",
)
"""The sections on rewards, measures and selections, with their words in tables."""
REWARD_WORDS, MEASURE_WORDS = (
    tuple(re.findall(r"(?m)^\| (`.*?) \| (.*) \|$", section)) for section in REWARDS.split("\n## ")[:2]
)
"""The parts of a reward's and of a measure's expressions, with their meanings."""


def reference() -> str:
    """Return the reference of the language as Markdown."""
    units = ", ".join(f"`{unit}`" for unit in dict.fromkeys(UNITS.values()))
    parts = [HEAD, f"\nUnits: {units}, `%`. K is 1024 for tokens and 1000 otherwise; M and G likewise.\n"]
    parts.append("\n## Kinds at the top of a file\n")
    for name in DECLARED:
        if name in KINDS:
            parts.append(_kind(KINDS[name]))
    parts.append(f"\n{REWARDS}")
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
