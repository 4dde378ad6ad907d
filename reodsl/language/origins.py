"""Find where each setting of a study or an experiment was given."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Span
from reodsl.ir.spec import Origin
from reodsl.language.program import Program
from reodsl.language.resolve import walk_starts
from reodsl.language.stages import complete_stages
from reodsl.language.values import Compound, Definition, Experiment, Items, Record, Slot, Study, Value, walk
from reodsl.syntax import tree

_LIBRARY = "std/"
_NAMED = frozenset({"model", "data", "forcing", "suite", "benchmark", "wording", "cluster"})
"""Kinds of declarations whose names a compiled spec keeps."""
_APART = frozenset({"experiment", "recipe", "arm", "checkpoint", "stage_of"})
"""Kinds whose settings belong to an experiment of its own."""


def origins(program: Program, record: Study | Experiment) -> dict[str, Origin]:
    """Return the place of every setting by dotted path; defaults of the language have none.

    A path begins with the name of an experiment or an arm, or of a declaration that it uses (`easy_suite.samples`); what has
    no declaration of its own is under the setting that holds it (`reo_exp.eval.samples`, `questions.source.count`).
    """
    notes = _Notes()
    notes.settings(record, record.name)
    arms = record.arms if isinstance(record, Study) else ()
    pending = [(arm.name, arm.experiment) for arm in arms]
    if isinstance(record, Experiment):
        pending = [(record.name, record)]
    while pending:
        name, each = pending.pop(0)
        _experiment(program, name, each, notes)
        base = next(walk_starts(each), None)
        if base is not None and base.name != name and f"{base.name}.base" not in notes.origins:
            pending.append((base.name, base))
    if isinstance(record, Study):
        for frontier in record.frontiers:
            notes.settings(frontier.envelope or frontier, frontier.name)
    return notes.origins


def _experiment(program: Program, name: str, record: Experiment, notes: _Notes) -> None:
    notes.settings(record, name)
    if not record.is_trained:
        return
    for part, stage in complete_stages(program.context, record):
        if part is None:
            notes.settings(stage, name)
            continue
        for path, slot in walk(stage):
            if record.at(path) != slot:
                notes.slot(f"{name}.stages.{part.name}.{path}", slot)


class _Notes:
    """The places found so far; the first of a path stays."""

    def __init__(self) -> None:
        self.origins: dict[str, Origin] = {}
        # Settings that many arms have from one parent are given at one place.
        self.places: dict[tuple[str, int, str], Origin] = {}
        self.seen: set[tuple[int, str]] = set()
        # What an experiment was given stands in its complete stages once more.
        self.noted: dict[str, Slot] = {}
        # A number that identifies an object does so as long as the object is there.
        self.kept: list[Record] = []

    def settings(self, record: Record, prefix: str) -> None:
        """Return all settings of a record, and of what they are made of."""
        if (id(record), prefix) in self.seen:
            return
        self.seen.add((id(record), prefix))
        self.kept.append(record)
        for path, slot in walk(record):
            self.slot(f"{prefix}.{path}", slot)
        if isinstance(record, Compound) and record.kind == "traces":
            for number, style in enumerate(record.parts):
                self.settings(style, f"{prefix}.styles.{number}")

    def slot(self, path: str, slot: Slot) -> None:
        """One setting, and those of the records in its value."""
        if self.noted.get(path) is slot:
            return
        self.noted[path] = slot
        self.place(path, slot.span, slot.doc)
        for inner in _records(slot.value):
            if isinstance(inner, Definition):
                self.body(inner, path)
            elif inner.kind not in _APART:
                named = inner.kind in _NAMED and inner.owner is not None
                self.settings(inner, inner.name if named else path)

    def body(self, definition: Definition, prefix: str) -> None:
        """Note the lines of a reward or a selection: its split, and its body if no argument is in it.

        The library's are left out: a spec contains only their names.
        """
        dense = any(isinstance(item, tree.Dense) for item in definition.body.items)
        split = f"{prefix}.dense.split" if dense else f"{prefix}.split"
        for value in definition.args.values():
            for inner in _records(value):
                self.place(split, inner.span if not value.via else value.via[0][0])
                self.settings(inner, split)
        if definition.item.params or definition.item.span.path.startswith(_LIBRARY):
            return
        for item in definition.body.items:
            match item:
                case tree.Let():
                    self.place(f"{prefix}.lets", item.span)
                case tree.Decl():
                    self.place(f"{prefix}.{item.kind.name}s", item.span)
                case tree.Dense():
                    self.place(f"{prefix}.dense", item.span)
                case tree.ExprStatement():
                    self.place(f"{prefix}.outcome", item.span)
                case tree.Setting():
                    self.place(f"{prefix}.{item.name.name}", item.span)
                case _:
                    pass

    def place(self, path: str, span: Span | None, doc: str = "") -> None:
        """Note a path and its line."""
        if path not in self.origins:
            place = (span.path, span.line, doc) if span else ("", 0, doc)
            if place not in self.places:
                self.places[place] = Origin(path=place[0], line=place[1], doc=doc)
            self.origins[path] = self.places[place]


def _records(value: Value) -> Iterator[Record]:
    """Yield the records in a value, those of a list one by one."""
    if isinstance(value.data, Record):
        yield value.data
    elif isinstance(value.data, Items):
        for each in value.data.values:
            yield from _records(each)
