"""Write the TextMate grammar of the VS Code extension, which other editors and pages read too.

    python -m editors.grammar

The words come from the language itself. A test fails until this has been run after they change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reodsl.language.reference import words

PLACE = Path(__file__).resolve().parent / "vscode" / "syntaxes" / "reo.tmLanguage.json"
NAME = "[A-Za-z_][A-Za-z0-9_]*"


def grammar() -> dict[str, Any]:
    """The grammar: rules in the order in which they are tried at each place of a line."""
    known = words()
    return {
        "information_for_contributors": ["Made by `python -m editors.grammar`. Do not edit it by hand."],
        "name": "reodsl",
        "scopeName": "source.reo",
        "fileTypes": ["reo"],
        "patterns": [
            {"name": "comment.line.number-sign.reo", "match": "#.*$"},
            {"name": "string.quoted.triple.reo", "begin": '"""', "end": '"""'},
            {
                "name": "string.quoted.double.reo",
                "begin": '"',
                "end": '"|$',
                "patterns": [{"name": "constant.character.escape.reo", "match": r"\\."}],
            },
            rule(
                r"^\s*(from)\s+([.A-Za-z0-9_]+)\s+(import)\b",
                "keyword.control.import",
                "entity.name.namespace",
                "keyword.control.import",
            ),
            rule(
                rf"\b(param)\s+({NAME})\s*:\s*\[?\s*({NAME})",
                "keyword.other",
                "variable.other.constant",
                "support.type",
            ),
            rule(
                rf"\b({alternatives((*known.kinds, 'stages'))})\s+({NAME})(?=\s*[({{=])",
                "storage.type",
                "entity.name.type",
            ),
            rule(
                rf"^\s*(?!(?:{alternatives(known.keywords)})\b)({NAME})[ \t]+({NAME})(?=\s*[({{=])",
                "storage.type",
                "entity.name.type",
            ),
            rule(
                rf"\b({known.number})(?:[ \t]+({alternatives(known.units)})\b)?",
                "constant.numeric",
                None,
                "keyword.other.unit",
            ),
            rule(rf"(?:^|(?<=[{{;,]))\s*({NAME})(?=\s*(?:\+?=(?!=)|\{{))", "variable.other.property"),
            rule(rf"\b({NAME})(?=\s*:)", "variable.parameter"),
            {"name": "constant.language.reo", "match": rf"\b(?:{alternatives(known.constants)})\b"},
            {"name": "keyword.control.reo", "match": rf"\b(?:{alternatives(known.keywords)})\b"},
            {
                "name": "support.function.reo",
                "match": rf"\b(?:{alternatives(known.functions)})\b(?=\s*\()",
            },
            {"name": "entity.name.function.reo", "match": rf"\b{NAME}(?=\s*\()"},
            {"name": "variable.other.reo", "match": rf"\b{NAME}\b"},
            {"name": "keyword.operator.reo", "match": r"\.\.|[=!<>+]=|[-+*/^=<>]"},
        ],
    }


def rule(match: str, *scopes: str | None) -> dict[str, Any]:
    """A rule that names the groups of its pattern, in order."""
    captures = {str(at): {"name": f"{scope}.reo"} for at, scope in enumerate(scopes, 1) if scope is not None}
    return {"match": match, "captures": captures}


def alternatives(names: tuple[str, ...]) -> str:
    """A pattern of any of the names, the longest first."""
    return "|".join(sorted(names, key=lambda name: (-len(name), name)))


def text() -> str:
    """The grammar as the file has it."""
    return json.dumps(grammar(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
