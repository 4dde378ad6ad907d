"""Hold the values of a spec's expressions, each with the span that it comes from.

A `Record` is a value with settings. Its subclasses have more than settings: a `DeclaredExperiment` has stages, and
`WrittenBudgets` have a `schedule`. A block that is evaluated later is stored with its `Scope`, the names that it may use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from reodsl.diagnostics.model import Span, join_words
from reodsl.language.modules import ParsedFile
from reodsl.language.units import Quantity, format_quantity, write_quantity
from reodsl.numbers.budgets import Schedule
from reodsl.syntax import tree

if TYPE_CHECKING:
    from reodsl.numbers.curves import Curves

Owner: TypeAlias = tuple[str, str]
"""The key of a file and the (dotted) name of a declaration in it."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A word that a setting offers, such as `causal`."""

    name: str


@dataclass(frozen=True, slots=True)
class Items:
    """The values of a list."""

    values: tuple[Value, ...]
    size: int = field(init=False, compare=False, repr=False)
    """The count of the list itself and all that it holds; a list that occurs twice counts twice."""
    _plain: tuple[Any, ...] | None = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        """Count the values in the list and in the lists inside it."""
        inner = (value.data.size if isinstance(value.data, Items) else 1 for value in self.values)
        object.__setattr__(self, "size", 1 + sum(inner))

    @property
    def plain(self) -> tuple[Any, ...]:
        """Return the values as plain data, computed once because every check reads them."""
        if self._plain is None:
            object.__setattr__(self, "_plain", tuple(plain(value) for value in self.values))
        return self._plain or ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range `low..high`, which includes its ends."""

    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class Slot:
    """A setting with its value and the span that gave it."""

    value: Value
    span: Span | None
    """None for a default of the language."""
    doc: str = ""
    """The text that names the setting's source."""
    parent: Slot | None = None
    """The slot that it replaced; the chain shows where a setting was given."""

    @property
    def root(self) -> Slot:
        """Return the first slot of the chain of parents: the setting as it was given first."""
        slot = self
        while slot.parent is not None:
            slot = slot.parent
        return slot


@dataclass(frozen=True, slots=True)
class Record:
    """A value with settings: a declaration, or the result of a call such as `hub(…)`.

    Two records are equal if their kind, settings and span are equal. Further fields of subclasses are not
    compared, because they follow from the declaration at the span.
    """

    kind: str
    """The word of its declaration or its constructor."""
    fields: Mapping[str, Slot]
    """Its settings so far."""
    span: Span
    """The span of its name, or of its call."""
    name: str = ""
    """Empty for a record without a name."""
    doc: str = ""
    """The comment above its declaration."""
    owner: Owner | None = None
    """The file and name that declare it, so that two values of a declaration are known to be the same."""
    invalid: frozenset[str] = frozenset()
    """Names of settings that were given and are wrong."""
    computed_by: tree.Call | None = field(default=None, compare=False, repr=False)
    """The call that computed it from its settings."""

    def get(self, path: str) -> Value | None:
        """Return the value of a setting at a dotted path; None if it has no value."""
        slot = self.at(path) if "." in path else self.fields.get(path)
        return None if slot is None else slot.value

    def data(self, path: str) -> Any:
        """Return a setting as plain data: a number, text, Record or tuple; None if it has no value."""
        value = self.get(path)
        return None if value is None else plain(value)

    def sub(self, path: str) -> Record | None:
        """Return the record in a setting at a dotted path; None if the setting has no record."""
        value = self.get(path)
        return value.data if value is not None and isinstance(value.data, Record) else None

    def part(self, path: str) -> Record:
        """Return the record in a setting at a dotted path, for callers that know that the setting has one.

        Raises:
            LookupError: The setting has no record.
        """
        record = self.sub(path)
        if record is None:
            raise LookupError(f"{self.kind} `{self.name}` has no `{path}`")
        return record

    def at(self, path: str) -> Slot | None:
        """Return the slot of a setting at a dotted path, such as `optim.lr`; None if it has no value."""
        if "." not in path:
            return self.fields.get(path)
        head, _, rest = path.partition(".")
        slot = self.fields.get(head)
        inner = slot.value.data if slot is not None else None
        return inner.at(rest) if isinstance(inner, Record) else None

    def with_field(self, name: str, slot: Slot) -> Self:
        """Return this record with a setting added or replaced; its name is removed from `invalid`."""
        return replace(self, fields={**self.fields, name: slot}, invalid=self.invalid - {name})

    def only_valid(self) -> Self:
        """Return this record without the settings in `invalid`, also without those in nested blocks.

        The same object is returned if there are none.
        """
        valid: dict[str, Slot] = {}
        for name, slot in self.fields.items():
            inner = slot.value.data
            if isinstance(inner, NestedBlock):
                sound = inner.only_valid()
                slot = slot if sound is inner else replace(slot, value=replace(slot.value, data=sound))
            if name not in self.invalid:
                valid[name] = slot
        if all(slot is self.fields[name] for name, slot in valid.items()) and len(valid) == len(self.fields):
            return self
        return replace(self, fields=valid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NestedBlock(Record):
    """A block inside another record, such as `optim { … }`. `children` are declarations in the block, not yet evaluated."""

    children: Mapping[str, Child] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Composite(Record):
    """A record with declarations inside: traces with their styles, or a published table with its rows."""

    children: Mapping[str, Child] = field(default_factory=dict)
    """The declarations, not yet evaluated."""
    parts: tuple[Record, ...] = ()
    """The values of the declarations."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredExperiment(Record):
    """An experiment or a recipe, with the blocks of its stages."""

    stages: tuple[DeclaredStage | StageSweep, ...] = ()
    stage_changes: tuple[Override, ...] = ()
    """The `--amend` of single stages."""
    from_checkpoint: bool = False
    """True if it is made from a checkpoint or a model, and trains nothing unless it names a method."""

    @property
    def is_trained(self) -> bool:
        """Return whether the experiment trains; a checkpoint with a suite is only evaluated."""
        return not self.from_checkpoint or "method" in self.fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TypedCondition(Record):
    """A condition on a question, whose types were checked."""

    expression: Any
    reads: frozenset[str]
    """The reads of a question: `ref`, `given`, or both."""
    numbers: Mapping[str, Span]
    """The numbers of the question, with the first span of each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredArm(Record):
    """An arm of a study: a name for an experiment or a checkpoint."""

    experiment: DeclaredExperiment


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StageList(Record):
    """The value of `x.stages`, from which brackets take a stage."""

    of: DeclaredExperiment


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StageRef(Record):
    """The value of `x.stages[4K tokens]`: the checkpoint at the end of a stage, whose index is `position`, from 0."""

    of: DeclaredExperiment
    position: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Until(Record):
    """The end of a stage: after `steps`, or earlier at a plateau."""

    plateau: Record | None = None
    steps: Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WrittenBudgets(Record):
    """Token budgets that are known before a run."""

    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredFrontier(Composite):
    """A frontier: an `envelope` of arms, the `curves` of a file, or else published curves, one for each part."""

    envelope: Record | None = None
    curves: Curves | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Definition(Record):
    """A reward, a selection or a measure, with the arguments that were given so far."""

    item: tree.Decl
    body: tree.BraceBlock
    module: ParsedFile
    args: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredStudy(Record):
    """A study with its arms, frontiers, tables and charts, in the order in which they are written."""

    arms: tuple[DeclaredArm, ...] = ()
    frontiers: tuple[DeclaredFrontier, ...] = ()
    tables: tuple[Record, ...] = ()
    charts: tuple[Record, ...] = ()


Data: TypeAlias = Quantity | str | bool | Symbol | Items | Bounds | Record


@dataclass(frozen=True, slots=True)
class Value:
    """A value with the span of its expression."""

    data: Data
    span: Span
    defined_at: tuple[tuple[Span, str], ...] = ()
    """The spans that set the names in it, nearest first, each with the text of a label."""
    literal: tree.Number | None = None
    """The number as written, whose unit the setting may still fix."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use: those of its block, then of the blocks around the block, then of the file."""

    module: ParsedFile
    locals: Mapping[str, Callable[[], Value]] = field(default_factory=dict)
    parent: Scope | None = None
    hidden: str | None = None
    """A name of `locals` that cannot be used."""

    def find(self, name: str) -> Callable[[], Value] | None:
        """Return the function that computes the value of a local name; None if the name is not a local.

        The innermost scope is searched first. A scope's `hidden` name is skipped in this scope only.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.locals and name != scope.hidden:
                return scope.locals[name]
            scope = scope.parent
        return None

    def names(self) -> set[str]:
        """Return all names that can be used: declarations and imports of the file, and locals."""
        names = set(self.module.items) | set(self.module.imports)
        scope: Scope | None = self
        while scope is not None:
            names |= set(scope.locals) - {scope.hidden}
            scope = scope.parent
        return names

    def inner(self, locals: Mapping[str, Callable[[], Value]], hidden: str | None = None) -> Scope:
        """Return a scope inside this one, with further locals.

        Args:
            locals: Functions that give the values of the locals, by name.
            hidden: The name of a local that cannot be used, as for `arm vanilla = vanilla`; None to hide none.
        """
        return Scope(self.module, locals, self, hidden)


Child: TypeAlias = tuple[tree.Decl, Scope]
"""A declaration inside a block, and the scope in which it stands."""


@dataclass(frozen=True, slots=True)
class Override:
    """A change by `--set` or `--amend` on the command line."""

    option: str
    """`--set` or `--amend`."""
    target: str
    """The param or the path of the setting, as typed."""
    text: str
    """The value as typed."""
    value: tree.Expr
    """The expression of the text."""
    path: tuple[str, ...] = ()
    """The path of the setting inside the declaration."""
    where_set: bool = False
    """True if it changes only records that have the setting."""

    @property
    def block(self) -> tree.BraceBlock:
        """Return the change as a block of settings, as a spec would write it: `{ optim { lr = 1e-6 } }`."""
        *outer, last = self.path
        span = self.value.span
        item: tree.BlockItem = tree.Assignment(tree.Ident(last, span), "=", self.value, "", span)
        for name in reversed(outer):
            item = tree.NamedBlock(tree.Ident(name, span), (), tree.BraceBlock("", (item,), span), span)
        return tree.BraceBlock(None, (item,), span)


@dataclass(frozen=True, slots=True)
class DeclaredStage:
    """A stage of an experiment, as declared or as made by a sweep."""

    name: str
    """The name in results."""
    label: str
    """The name in messages."""
    value: Value | None
    """The value of the sweep that it was made for."""
    block: tree.BraceBlock
    """Its settings."""
    scope: Scope
    """The names that its settings may use."""
    span: Span
    """The span of its name."""
    replaced_span: Span | None = None
    """The span of the parent's stage of that name, which it replaces as a whole."""


@dataclass(frozen=True, slots=True)
class StageSweep:
    """The value of `stages(var in list) { … }`, from which a stage is made for each item of the list when it is needed."""

    var: tree.Ident
    over: tree.Expr
    block: tree.BraceBlock
    scope: Scope
    span: Span


def plain(value: Value) -> Any:
    """Return a value as plain data: numbers in base units, words as texts, lists and ranges as tuples."""
    match data := value.data:
        case Quantity():
            return data.number
        case Symbol():
            return data.name
        case Items():
            return data.plain
        case Bounds():
            return plain(data.low), plain(data.high)
    return data


KIND_WORDS = {
    "stage_of": "stage",
    "steps_split": "split at reasoning steps",
    "exits_split": "split at random exits",
    "oracle_budgets": "budgets schedule",
    "question_budgets": "budgets schedule",
}
"""Kinds of record that no spec names, for a sentence."""


def describe(value: Value) -> str:
    """Return a value in words for messages: `65536 tokens`, `the text "abc"`, ``the suite `math_reg` ``."""
    data = value.data
    if isinstance(data, Quantity):
        return format_quantity(data) if data.unit else f"the plain number {format_quantity(data)}"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, str):
        return f'the text "{data[:40]}"'
    if isinstance(data, Symbol):
        return f"the word `{data.name}`"
    if isinstance(data, Items):
        return f"a list of {len(data.values)}"
    if isinstance(data, Bounds):
        return "a range"
    kind = KIND_WORDS.get(data.kind, data.kind)
    return f"the {kind} `{data.name}`" if data.name else f"{article(kind)} {kind}"


def write_value(value: Value) -> str:
    """Return a value as a spec would write it, but a text without quotes and a record by its name."""
    data = value.data
    match data:
        case Quantity():
            return write_quantity(data)
        case bool():
            return str(data).lower()
        case str():
            return data
        case Items():
            return "[" + ", ".join(write_value(item) for item in data.values) + "]"
        case Bounds():
            return f"{write_value(data.low)}..{write_value(data.high)}"
    return data.name


def article(word: str) -> str:
    """Return the article for a word: `an` before a vowel, else `a`."""
    return "an" if word[:1] in "aeiou" else "a"


def join_kinds(words: Sequence[str]) -> str:
    """Return the names of kinds, at least one, with articles and `or`: `an arm, a recipe or a model`."""
    return join_words([f"{article(word)} {word}" for word in words], "or")


def walk(record: Record, prefix: str = "") -> Iterator[tuple[str, Slot]]:
    """Yield the settings of a record and of the blocks inside it with their dotted paths, but not blocks themselves.

    Args:
        record: The record.
        prefix: The path of the record with a dot at its end; empty for the outermost record.
    """
    for name, slot in record.fields.items():
        inner = slot.value.data
        if isinstance(inner, NestedBlock):
            yield from walk(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", slot


def list_items(record: Record | None, name: str) -> tuple[Value, ...]:
    """Return the values in a setting that is a list; empty if the setting has no list."""
    value = record.get(name) if record is not None else None
    return value.data.values if value is not None and isinstance(value.data, Items) else ()


def list_records(record: Record | None, name: str) -> list[Record]:
    """Return the records in a setting that is a list; empty if the setting has no list."""
    return [item.data for item in list_items(record, name) if isinstance(item.data, Record)]
