"""HTML tags from names, attributes and children; everything that is not markup is escaped.

No library of templates writes it: each text has to be made legible where it is escaped, and htpy and Jinja escape
quotes in another way (`&#39;`), so that every report would become another file.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from reodsl.report import theme


class Markup(str):
    """Text that is HTML already. Only this module and files of the package make it; anything else is escaped."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]

_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CODE = re.compile("`([^`]+)`")
_VOID = frozenset({"meta", "input", "br", "hr", "img", "link", "col"})


def legible(text: str) -> str:
    """Return a text with U+FFFD for characters that HTML and XML forbid (control characters, lone surrogates).

    Chart renderers crash at a forbidden character.
    """
    return _FORBIDDEN.sub("\ufffd", text)


def escape(text: str) -> Markup:
    """Return a text that is legible, and safe inside elements and quoted attributes."""
    return Markup(html.escape(legible(text), quote=True))


def render(child: Child) -> Markup:
    """Return children as HTML: markup unchanged, strings and numbers escaped, None as nothing, iterables joined."""
    if child is None:
        return Markup("")
    if isinstance(child, Markup):
        return child
    if isinstance(child, (str, int, float)):
        return escape(str(child))
    return Markup("".join(render(item) for item in child))


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """Return `<name attributes>children</name>`.

    A trailing underscore is dropped from attribute names and other underscores become dashes (`class_`, `data_key`).
    `True` gives an attribute without a value; False and None leave the attribute out.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        parts.append(label if value is True else f'{label}="{escape(str(value))}"')
    opened = f"<{' '.join(parts)}>"
    return Markup(opened) if name in _VOID else Markup(f"{opened}{render(children)}</{name}>")


def with_code(text: str) -> Child:
    """Return a text in which words between backticks are code."""
    return [tag("code", words) if index % 2 else words for index, words in enumerate(_CODE.split(text))]


def samples(colours: Mapping[str, str]) -> dict[str, Markup]:
    """Return a sample of each arm's line, in its colour and dashes, to stand beside the arm's name.

    Args:
        colours: colour of each arm, in order.
    """
    dashes = theme.dashes(colours)
    return {
        arm: tag("span", class_=f"dot dash{dashes[arm]}", style=f"--own:{colour}")
        for arm, colour in colours.items()
    }


KEPT_LETTERS = 10
"""Letters at the end of a name that stay where the name is cut."""


def cut(name: str) -> Markup:
    """Return a name that is cut in the middle where it has no room, and shown whole on hover."""
    if len(name) < 2 * KEPT_LETTERS:
        return escape(name)
    return tag("span", tag("span", name[:-KEPT_LETTERS]), name[-KEPT_LETTERS:], class_="cut", title=name)


def name_cell(arm: str, sample: Markup | None, note: str | None = None, **attributes: str) -> Markup:
    """Return the heading of an arm's row in a table: a sample of its line, the name, and a note if any.

    Args:
        arm: name of the arm.
        sample: the arm's sample, of `samples`, if it has any.
        note: text behind the name, or None.
        attributes: further attributes of the element.
    """
    label = tag("span", note, class_="tag") if note else None
    usual = {"class_": "name", "scope": "row", "title": arm, "data_arm": arm}
    return tag("th", sample, cut(arm), label, **usual | attributes)


def data_table(head: Child, body: Child, label: str | None = None, class_: str | None = None) -> Markup:
    """Return a table that scrolls if it is too wide.

    Args:
        head: rows of the head.
        body: rows of the body.
        label: accessible name, if any.
        class_: CSS class of the table.
    """
    table = tag("table", tag("thead", head), tag("tbody", body), class_=class_)
    role = "region" if label else None
    return tag("div", table, class_="scroll", tabindex="0", role=role, aria_label=label)


def json_block(identity: str, value: Any) -> Markup:
    """Return data for the page's script as `<script type="application/json" id=…>`.

    No character of the JSON can end the element, open a comment, or be read as a line end by a script.

    Args:
        identity: id of the element.
        value: data that JSON can hold.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(f'<script type="application/json" id="{escape(identity)}">{text}</script>')
