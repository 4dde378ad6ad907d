"""A difference as text and JSON data: short by default, with the number of hidden rows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from reodsl.diagnostics import fold, group
from reodsl.diff.compare import ChangedSetting, DefaultValue, Diff, SettingDiff
from reodsl.ir.reward_text import ABSENT, value_text

_SEED = re.compile(r"\.s\d+(~\d+)?\b")
_WIDTH, _LABEL, _COLUMN, _NARROWEST, _NAMES = 110, 18, 44, 20, 6
_GROUP = 4
_MORE = " (--all)"
"""The end of a line in a terminal, which names the option that shows all rows."""


def to_json(diff: Diff, sides: tuple[str, str]) -> dict[str, Any]:
    """Return the difference as JSON data; rows omit a setting that is missing on a side.

    Args:
        diff: The difference.
        sides: Names of the two specs or runs.
    """
    return {
        "a": sides[0],
        "b": sides[1],
        "different": diff.different,
        "study": _compared_json(diff.study),
        "arms": [_compared_json(arm) for arm in diff.arms],
        "only_a": list(diff.only_a),
        "only_b": list(diff.only_b),
        "tasks": {
            "shared": [{"a": task_a, "b": task_b} for task_a, task_b in diff.work.shared],
            "only_a": list(diff.work.only_a),
            "only_b": list(diff.work.only_b),
        },
    }


def to_text(diff: Diff, sides: tuple[str, str], everything: bool = False, columns: int | None = None) -> str:
    """Return the difference as text for a terminal, with the two sides in columns.

    Args:
        diff: The difference.
        sides: Names of the two specs or runs.
        everything: Whether equal settings are listed too.
        columns: Width of the terminal; if it is too narrow for three columns, values go below a setting's name.
    """
    blocks = []
    for block in _parts(diff, sides, everything):
        label = max(_LABEL, *(len(row[0]) for row in block.cells), 0) + 2
        room = min(_COLUMN, ((columns or 2 * _WIDTH) - label - 2) // 2)
        lines = _columns(block.cells, label, room) if room >= _NARROWEST else _stack(block.cells)
        label = label if room >= _NARROWEST else _LABEL + 2
        for head, words in block.notes:
            start = f"{head:<{label}}" if head else ""
            lines += (
                _wrap(start + words, min(_WIDTH, columns or _WIDTH), " " * len(start)) if head else [words]
            )
        blocks.append("\n".join(folded for line in lines for folded in fold(line, columns or len(line))))
    return "\n\n".join(blocks)


def _columns(cells: Sequence[tuple[str, ...]], label: int, room: int) -> list[str]:
    """Return rows of three cells as lines of three columns.

    Args:
        cells: The rows.
        label: Width of the first column, in characters.
        room: Width of the other columns, in characters; longer words are not broken.
    """
    rows = [(first, _wrap(second, room), _wrap(third, room)) for first, second, third in cells]
    width = max((len(line) for _, second, _ in rows for line in second), default=0) + 2
    return [
        f"{head:<{label}}{second:<{width}}{third}".rstrip()
        for first, *values in rows
        for head, second, third in zip_longest([first], *values, fillvalue="")
    ]


def _stack(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows of three cells as lines: the first cell, and below it the other two, indented."""
    inner = ([f"    {line}" for cell in values for line in cell.split("\n")] for _, *values in cells)
    return [
        line for row, lines in zip(cells, inner, strict=True) for line in (row[0], *lines) if line.strip()
    ]


def _wrap(text: str, width: int, indent: str = "  ") -> list[str]:
    """Return a text as lines of a width, without breaking words.

    Args:
        text: The text, whose line breaks are kept.
        width: Width in characters.
        indent: Text before every wrapped line but the first.
    """
    options: Any = {"subsequent_indent": indent, "break_on_hyphens": False, "break_long_words": False}
    return [wrapped for line in text.split("\n") for wrapped in textwrap.wrap(line, width, **options) or [""]]


@dataclass(frozen=True, slots=True)
class _Part:
    """A table with its head as the first row, and notes below it, each a heading (may be empty) and its words."""

    cells: Sequence[tuple[str, ...]] = ()
    notes: Sequence[tuple[str, str]] = ()


def _parts(diff: Diff, sides: tuple[str, str], everything: bool) -> Iterator[_Part]:
    """Yield the sections of a difference: arms, study, arms of one side only, and tasks.

    If the two sides do not differ in meaning, the last section says so, and tasks are left out.

    Args:
        diff: The difference.
        sides: Names of the two specs or runs.
        everything: Whether equal settings are listed too.
    """
    for names, arm in _group_arms(diff.arms):
        yield _make_part(_heads(names, sides), _unnamed_rows(arm), arm, everything)
    if diff.study.rows or everything:
        yield _make_part(("study", *sides), diff.study.rows, diff.study, everything)
    for only, words in ((diff.only_a, sides[0]), (diff.only_b, sides[1])):
        if only:
            yield _Part(notes=[("", f"only in {words}: {_join(only, len(only) if everything else _NAMES)}")])
    if not diff.different:
        yield _Part(notes=[("", f"No difference in meaning: {', '.join(dict.fromkeys(sides))}")])
        return
    hidden = [arm.a for arm in diff.arms if not arm.rows]
    if hidden and not everything:
        verb = "is" if len(hidden) == 1 else "are"
        yield _Part(notes=[("", f"{_join(hidden)} {verb} the same  (--all)")])
    yield _Part(notes=_describe_tasks(diff, everything))


def _group_arms(arms: Sequence[SettingDiff]) -> list[tuple[tuple[tuple[str, str], ...], SettingDiff]]:
    """Group arms with equal differences; arms without a difference are left out.

    Returns:
        For each group the names of its arms on both sides, as pairs, and the difference of its first arm.
    """
    groups = group(
        (tuple((row.setting, repr(row.a), repr(row.b)) for row in _unnamed_rows(arm)), arm)
        for arm in arms
        if arm.rows
    )
    return [(tuple((arm.a, arm.b) for arm in alike), alike[0]) for alike in groups.values()]


def _unnamed_rows(difference: SettingDiff) -> tuple[ChangedSetting, ...]:
    """Return the rows of a difference without the row of the arm's name, which the head shows."""
    return tuple(row for row in difference.rows if row.setting != "name")


def _heads(names: Sequence[tuple[str, str]], sides: tuple[str, str]) -> tuple[str, str, str]:
    """Return the heads of three columns.

    A single arm that has another name on each side is headed by its two names. Otherwise the first head names the arms,
    and the other two name the sides.

    Args:
        names: Names of the arms on both sides, a pair for each arm of the group.
        sides: Names of the two specs or runs.
    """
    if len(names) == 1:
        name_a, name_b = names[0]
        return ("", name_a, name_b) if name_a != name_b else (name_a, *sides)
    return _join([name_a for name_a, _ in names]), *sides


def _make_part(
    heads: tuple[str, str, str], rows: Iterable[ChangedSetting], difference: SettingDiff, everything: bool
) -> _Part:
    """Return a table of differing settings in three columns, and the equal settings as rows or as a number.

    Args:
        heads: Heads of the columns.
        rows: Differing settings.
        difference: The difference that the rows belong to, which has the equal settings.
        everything: Whether equal settings are listed. Otherwise they are counted, and many settings that one side lacks
            are gathered in one row.
    """
    cells = [heads]
    cells += (
        (row.setting, _format_value(row.setting, row.a), _format_value(row.setting, row.b))
        for row in (rows if everything else _gather_rows(rows, difference.same))
    )
    if everything:
        cells += (
            (f"= {setting}", _format_value(setting, value), "")
            for same in difference.same.values()
            for setting, value in same.items()
        )
        return _Part(cells)
    equal = sum(value not in (None, []) for same in difference.same.values() for value in same.values())
    return _Part(cells, [("same", f"{equal} other setting{'s' * (equal != 1)}  (--all)")] if equal else [])


def _gather_rows(
    rows: Iterable[ChangedSetting], same: Mapping[str, Mapping[str, Any]]
) -> list[ChangedSetting]:
    """Return the rows, with a group of settings that one side lacks replaced by one row with their number.

    Settings form a group if the same side lacks them, they begin with the same words, and there are at least `_GROUP`.

    Args:
        rows: Differing settings.
        same: Equal settings by their first word.
    """
    rows = tuple(rows)
    both_sided = [row.setting for row in rows if ABSENT not in (row.a, row.b)]
    both_sided += [setting for settings in same.values() for setting in settings]
    # In a stage that both sides have, only deeper settings are gathered.
    staged = {".".join(setting.split(".")[:2]) for setting in both_sided if setting.startswith("stages.")}

    def key_of(row: ChangedSetting) -> tuple[str, bool, bool]:
        """Return the words with which the row's group begins, and whether each side lacks the setting."""
        names = row.setting.split(".")
        words = ".".join(names[: 3 if ".".join(names[:2]) in staged else 2])
        return words if ABSENT in (row.a, row.b) else row.setting, row.a == ABSENT, row.b == ABSENT

    gathered: list[ChangedSetting] = []
    for (prefix, no_a, no_b), alike in group((key_of(row), row) for row in rows).items():
        if (no_a or no_b) and len(alike) >= _GROUP:
            words = f"{len(alike)} settings{_MORE}"
            gathered.append(ChangedSetting(prefix, ABSENT if no_a else words, ABSENT if no_b else words))
        else:
            gathered += alike
    return gathered


def _format_value(setting: str, value: Any) -> str:
    """Return a setting's value for people; a reward takes several lines, and a default is marked.

    Args:
        setting: Dotted name of the setting.
        value: Value of the setting.
    """
    if isinstance(value, DefaultValue):
        return f"{_format_value(setting, value.value)} (default)"
    if setting.rpartition(".")[2] == "reward" and isinstance(value, list):
        return "\n".join(str(line) for line in value)
    return value_text(setting, value)


def _describe_tasks(diff: Diff, everything: bool) -> list[tuple[str, str]]:
    """Return notes on the tasks that both sides share and on all other tasks, by names without seeds.

    Args:
        diff: The difference.
        everything: Whether all names are written out, rather than the first `_NAMES`.

    Returns:
        For each note its heading and its words.
    """
    renamed = {arm.b: arm.a for arm in diff.arms if arm.a != arm.b}
    both = {name for pair in renamed.items() for name in pair}

    def bare(name: str) -> str:
        """Return a task's name without its seed, and without the name of an arm that has another name on each side."""
        name = _SEED.sub("", name)
        arm, _, rest = name.partition(".")
        return rest if arm in both and rest else name

    shared = list(dict.fromkeys(bare(name) for name, _ in diff.work.shared))
    unshared_tasks = [name for name in (*diff.work.only_a, *diff.work.only_b) if name != "report"]
    unshared = list(dict.fromkeys(map(bare, unshared_tasks)))
    most = len(shared) + len(unshared) if everything else _NAMES
    return [
        ("Shared work", _join(shared, most) or "none"),
        ("Not shared", _join(unshared, most) or "the report alone"),
    ]


def _join(names: Sequence[str], most: int = _NAMES) -> str:
    """Return the first names joined by commas, and how many more there are.

    Args:
        names: The names.
        most: The most names that are written out.
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more{_MORE}"


def _compared_json(difference: SettingDiff) -> dict[str, Any]:
    """Return the difference of two arms or studies as JSON data.

    A row has its setting and the values of the sides `a` and `b`; a side without the setting is left out.
    """
    rows = []
    for row in difference.rows:
        cell = {"setting": row.setting}
        for side, value in (("a", row.a), ("b", row.b)):
            if value != ABSENT:
                cell[side] = value.value if isinstance(value, DefaultValue) else value
        rows.append(cell)
    return {"a": difference.a, "b": difference.b, "rows": rows, "same": difference.same}
