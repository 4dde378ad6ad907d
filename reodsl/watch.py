"""The state of a run, and its lines for a terminal of any width, in which no word is ever cut.

The state is its running tasks, its finished ones, and its status. Everything is read from files that the run leaves as it
goes, so that any process on any machine with the store can look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reodsl.graph.job import Progress
from reodsl.numbers.shares import in_percent
from reodsl.store.live import Live, read_live, read_steps
from reodsl.store.manifest import PLACE, WEIGHTS, read_record
from reodsl.store.runs import RunRecord, alive, events
from reodsl.store.store import Store

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

Status = Literal["running", "finished", "failed", "interrupted", "stopped"]
"""`stopped`: the run's process is gone and wrote no end."""

ENDS = ("finished", "failed", "blocked")


@dataclass(frozen=True, slots=True)
class Going:
    """A task that has begun and not ended.

    `began` is in epoch seconds; `waiting` says that it waits for another run or for nodes. `steps` are the metrics of a
    training, a row a step. `weights` says how servers get new ones, where it is not the fastest way.
    """

    task: str
    key: str
    began: float
    progress: Progress | None
    node: str
    waiting: bool
    steps: tuple[Mapping[str, float], ...] = ()
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that ended: `kind` as of its event, when (epoch seconds), how long it took and why it failed.

    One that its run left unfinished is `stopped`: it has the time at which it began, and `said` is how far it was.
    """

    task: str
    kind: str
    at: float
    seconds: float | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """A run at a moment. `total` is None for runs of versions that did not write it down; `done` counts results."""

    record: RunRecord
    status: Status
    total: int | None
    done: int
    began: float | None
    going: tuple[Going, ...]
    ended: tuple[Ended, ...]

    @property
    def over(self) -> bool:
        """Return whether nothing will change any more."""
        return self.status != "running"


def read_state(store: Store, record: RunRecord, *, steps: bool = True) -> State:
    """Read the present state of a run; without `steps` the metrics of trainings are not read."""
    status: Status = record.status
    if status == "running" and not alive(store, record):
        status = "stopped"
    total: int | None = None
    began: float | None = None
    flying: dict[str, dict[str, Any]] = {}
    waiting: set[str] = set()
    ended: dict[str, Ended] = {}
    for event in events(store, record):
        kind, task = event["kind"], event.get("task", "")
        if kind == "began":
            total, began = event["total"], event["at"]
        elif kind == "started":
            flying[task] = event
            waiting.discard(task)
            ended.pop(task, None)
        elif kind == "waiting":
            waiting.add(task)
        elif kind == "rebuilding":
            ended.pop(task, None)
        elif kind in ENDS:
            flying.pop(task, None)
            ended[task] = Ended(task, kind, event["at"], event.get("seconds"), event.get("said", ""))
    going = [
        _going(store.root, task, event, task in waiting, steps)
        for task, event in flying.items()
        if task not in record.tasks
    ]
    if status != "running":
        ended |= {
            each.task: Ended(each.task, "stopped", each.began, said=_format_far(each)) for each in going
        }
        going = []
    return State(record, status, total, len(record.tasks), began, tuple(going), tuple(ended.values()))


def _format_far(each: Going) -> str:
    """Format how far a task was when its run stopped."""
    if each.progress is None:
        return ""
    total = f" of {each.progress.total}" if each.progress.total else ""
    return f"at {each.progress.done}{total}"


def _going(root: Path, task: str, event: Mapping[str, Any], waiting: bool, steps: bool) -> Going:
    key = str(event.get("key", ""))
    live = read_live(root, key) if key else None
    work = root / "work" / key
    rows = tuple(read_steps(work)) if key and steps else ()
    return Going(
        task=task,
        key=key,
        began=event["at"],
        progress=_progress(live, rows),
        node=live.node if live is not None else "",
        waiting=waiting,
        steps=rows,
        weights=" and ".join(read_record(work / PLACE).get(WEIGHTS, ())) if key else "",
    )


def _progress(live: Live | None, rows: tuple[Mapping[str, float], ...]) -> Progress | None:
    """Return a task's progress; if its process is gone, by its last step."""
    if live is not None and live.progress is not None:
        return live.progress
    if not rows:
        return None
    return Progress(
        int(rows[-1]["step"]), 0, {name: value for name, value in rows[-1].items() if name != "step"}
    )


def to_json(state: State) -> dict[str, Any]:
    """Return the state as JSON data; documented in docs/JSON.md."""
    return {
        "run": state.record.name,
        "study": state.record.study,
        "spec": state.record.spec,
        "status": state.status,
        "started": state.record.started,
        "ended": state.record.ended,
        "done": state.done,
        "total": state.total,
        "running": [going_json(each) for each in state.going],
        "tasks": [
            {
                "task": each.task,
                "status": each.kind,
                "seconds": each.seconds,
                "said": each.said or None,
            }
            for each in state.ended
        ],
        "report": state.record.report,
    }


def going_json(each: Going) -> dict[str, Any]:
    """Return a running task as JSON data; numbers that are not finite are null."""
    progress = each.progress
    return {
        "task": each.task,
        "key": each.key,
        "node": each.node or None,
        "waiting": each.waiting,
        "step": progress.done if progress else None,
        "steps": progress.total or None if progress else None,
        "numbers": finite(progress.numbers) if progress else {},
        "weights": each.weights or None,
    }


def finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers as JSON can hold them."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


BAR = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK = 24
_GAP = 2


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A running task: `rest` is the time that is left or has passed, `curve` the values of its reward, step by step."""

    task: str
    progress: Progress | None
    rest: str
    waiting: bool = False
    curve: tuple[str, Sequence[float]] | None = None


@dataclass(slots=True)
class Pace:
    """A task in flight: when it began, how far it is, how far it was when its progress was first seen, and its steps."""

    began: float
    progress: Progress | None = None
    first: tuple[float, int] | None = None
    waiting: bool = False
    steps: list[Mapping[str, float]] = field(default_factory=list)

    def advance(self, progress: Progress, now: float) -> None:
        """Take in how far it is."""
        self.progress = progress
        if self.first is None:
            self.first = (now, progress.done)

    def left(self, now: float) -> float | None:
        """Return the seconds to go at the pace since progress was first seen; None while there is no pace."""
        if self.first is None or self.progress is None or self.progress.done <= self.first[1]:
            return None
        pace = (now - self.first[0]) / (self.progress.done - self.first[1])
        return pace * (self.progress.total - self.progress.done)

    def row(self, task: str, now: float) -> TaskRow:
        """Return the task as a row: with the time that is left, or else has passed, and its curve."""
        left = self.left(now)
        rest = f"{span(left)} left" if left is not None and left >= 0 else span(now - self.began)
        return TaskRow(task, self.progress, rest, self.waiting, curve(self.steps))


def curve(steps: Sequence[Mapping[str, float]]) -> tuple[str, list[float]] | None:
    """Return the values that a training is best followed by, with their name: its reward, else its loss."""
    for name in ("reward", "loss"):
        values = [row[name] for row in steps if isinstance(row.get(name), (int, float))]
        if values:
            return name, values
    return None


Piece = tuple[str, str]
"""Text that stays on one line where a line is long enough for it, and its style."""


def draw(head: Sequence[Piece], rows: Sequence[TaskRow], width: int, height: int) -> Group:
    """Return the head and a block for each running task: in columns if they fit `width`, else a few lines each.

    Tasks beyond `height` are counted.
    """
    from rich.console import Group
    from rich.text import Text

    lines = flow(head, width)
    blocks = _columns(rows, width)
    if blocks is None:
        blocks = [_stack_task(row, width) for row in rows]
    room = max(1, height - len(lines) - 1)
    for index, block in enumerate(blocks):
        last = index == len(blocks) - 1
        if len(block) + (0 if last else 1) > room:
            lines.append(Text(f"and {len(blocks) - index} more", style="dim"))
            break
        lines += block
        room -= len(block)
    return Group(*lines)


def flow(pieces: Sequence[Piece], width: int, indent: int = 0) -> list[Text]:
    """Join pieces with two blanks between them, on as many lines as needed."""
    from rich.cells import cell_len
    from rich.text import Text

    lines = [Text(" " * indent)]
    for text, style in pieces:
        for part in break_text(text, width - indent):
            used = lines[-1].cell_len
            gap = "" if used == indent else " " * _GAP
            if used > indent and used + len(gap) + cell_len(part) > width:
                lines.append(Text(" " * indent))
                gap = ""
            lines[-1].append(gap)
            lines[-1].append(part, style=style)
    return [line for line in lines if line.plain.strip()]


def wrap_pieces(label: str, pieces: Sequence[Piece], width: int) -> list[Text]:
    """Put pieces on as many lines as needed, under each other, to the right of a label."""
    from rich.text import Text

    lines = flow(pieces, width, len(label))
    if lines:
        lines[0] = Text(label, style=pieces[0][1]).append_text(lines[0][len(label) :])
    return lines


def break_text(text: str, width: int) -> list[str]:
    """Break a text into parts of at most `width` cells: at blanks, else after a dot, else anywhere."""
    from rich.cells import cell_len, chop_cells

    width = max(8, width)
    if cell_len(text) <= width:
        return [text]
    head = chop_cells(text, width)[0]
    for mark, keep in ((" ", 0), (".", 1)):
        at = head.rfind(mark)
        if at > 0:
            return [
                text[: at + keep],
                *break_text(text[at + 1 :] if mark == " " else text[at + keep :], width),
            ]
    return [head, *break_text(text[len(head) :], width)]


def numbers(progress: Progress | None) -> str:
    """Format the numbers of a progress in a few words: `reward 0.42  accuracy 61.5%  length 77.8`."""
    return "  ".join(named_numbers(progress.numbers)) if progress is not None else ""


def named_numbers(values: Mapping[str, float | None]) -> list[str]:
    """Format each number with its name, such as `reward 0.42`, without those that are null."""
    return [
        f"{name.replace('_', ' ')} {number(name, value)}"
        for name, value in values.items()
        if value is not None
    ]


def number(name: str, value: float) -> str:
    """Format a number for people."""
    if name == "accuracy":
        return f"{in_percent(value, 1)}%"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def span(seconds: float) -> str:
    """Format a stretch of time in its two largest units: `41 s`, `3 min 20 s`, `2 h 5 min`.

    `humanize` writes it in words, which are too long for a line of a table.
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def spark(values: Iterable[float], cells: int = _SPARK) -> str:
    """Draw a curve in one line of blocks, from its lowest to its highest value; of many values the mean of each cell."""
    kept = [value for value in values if math.isfinite(value)]
    if len(kept) < 2:
        return ""
    size = min(cells, len(kept))
    bounds = [round(i * len(kept) / size) for i in range(size + 1)]
    means = [sum(kept[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(means), max(means)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * (m - low) / (high - low)) if high > low else 0] for m in means)


def at(row: TaskRow) -> str:
    """Format a task's progress: `13/40`, or `waiting` for another run that makes the same result, or for nodes."""
    if row.progress is None:
        return "waiting" if row.waiting else ""
    return f"{row.progress.done}/{row.progress.total}" if row.progress.total else f"{row.progress.done}"


def _bar(row: TaskRow, cells: int) -> Piece:
    if row.progress is None or not row.progress.total:
        return " " * cells, ""
    full = min(cells, round(cells * row.progress.done / row.progress.total))
    return "━" * full + "─" * (cells - full), "green" if full == cells else "magenta"


def _curve(row: TaskRow) -> Piece | None:
    drawn = spark(row.curve[1]) if row.curve is not None else ""
    return (f"{row.curve[0].replace('_', ' ')} {drawn}", "cyan") if row.curve is not None and drawn else None


def _columns(rows: Sequence[TaskRow], width: int) -> list[list[Text]] | None:
    """Return a line per task with everything aligned, curves on a line of their own; None if that is too wide."""
    from rich.text import Text

    cells = [(row.task, _bar(row, BAR), at(row), numbers(row.progress), row.rest) for row in rows]
    if not cells:
        return []
    wide = [max(len(line[i]) for line in cells) for i in (0, 2, 3)]
    if sum(wide) + BAR + max(len(line[4]) for line in cells) + 4 * _GAP > width:
        return None
    blocks = []
    for row, (task, bar, far, metrics, rest) in zip(rows, cells, strict=True):
        line = Text.assemble(
            f"{task:<{wide[0] + _GAP}}",
            bar,
            f"  {far:<{wide[1] + _GAP}}{metrics:<{wide[2] + _GAP}}",
            (rest, "dim"),
        )
        curve = _curve(row)
        blocks.append([line, Text("  ").append(*curve)] if curve else [line])
    return blocks


def _stack_task(row: TaskRow, width: int) -> list[Text]:
    """Return a task on several lines: its name, then a bar of its progress, then its numbers."""
    bar = _bar(row, max(8, min(BAR, width - 30)))
    second = [bar] if bar[0].strip() else []
    second += [(piece, style) for piece, style in ((at(row), ""), (row.rest, "dim")) if piece]
    third = [(text, "") for text in (named_numbers(row.progress.numbers) if row.progress is not None else ())]
    curve = _curve(row)
    return [
        *flow([(row.task, "bold")], width),
        *flow(second, width, 2),
        *flow([*third, *([curve] if curve else [])], width, 2),
    ]
