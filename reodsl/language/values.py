"""Hold the values of a spec's expressions, each with the place that it comes from.

A `Record` is something with settings. What more there is to some of them is in the classes below it: the stages of a
`DeclaredExperiment`, the `schedule` of `WrittenBudgets`. Blocks that are evaluated later keep the `Scope` of their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from reodsl.diagnostics.model import Span
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
    """One of the words that a setting offers, such as `causal`."""

    name: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list; `size` counts itself and what it holds all the way down, a list that is there twice counted twice."""

    values: tuple[Value, ...]
    size: int = field(init=False, compare=False, repr=False)
    _plain: tuple[Any, ...] | None = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        inner = (value.data.size if isinstance(value.data, Items) else 1 for value in self.values)
        object.__setattr__(self, "size", 1 + sum(inner))

    @property
    def plain(self) -> tuple[Any, ...]:
        """The bare data of its values, as `plain` gives it; made once, for every check asks for it."""
        if self._plain is None:
            object.__setattr__(self, "_plain", tuple(plain(value) for value in self.values))
        return self._plain or ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """`low..high`, both included."""

    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class Slot:
    """A setting with its value, its span and the text that names its source.

    `before` is the slot that it replaced; these chains show where a setting was set. `span` is None for a default of
    the language.
    """

    value: Value
    span: Span | None
    doc: str = ""
    before: Slot | None = None

    @property
    def root(self) -> Slot:
        """The slot that was given first, at the end of the chain of parents."""
        slot = self
        while slot.before is not None:
            slot = slot.before
        return slot


@dataclass(frozen=True, slots=True)
class Record:
    """A declared or constructed thing of a kind, with its settings so far.

    `span` is where its name (or its call) stands; `owner` is the file and name that declare it, so that two
    values of one declaration are known to be the same. `broken` names settings that were given and are wrong.
    `called` is the call that computed it from its settings. Two are equal that are of one kind, with equal settings, at
    one place: what the classes below add follows from these.
    """

    kind: str
    fields: Mapping[str, Slot]
    span: Span
    name: str = ""
    doc: str = ""
    owner: Owner | None = None
    broken: frozenset[str] = frozenset()
    called: tree.Call | None = field(default=None, compare=False, repr=False)

    def get(self, path: str) -> Value | None:
        """Return the value of a setting at a dotted path, or None where it was not given."""
        slot = self.at(path) if "." in path else self.fields.get(path)
        return None if slot is None else slot.value

    def data(self, path: str) -> Any:
        """Return the bare data of a setting: a number, a text, a Record, a tuple; None where it was not given."""
        value = self.get(path)
        return None if value is None else plain(value)

    def sub(self, path: str) -> Record | None:
        """Return the record in a setting, if there is one."""
        value = self.get(path)
        return value.data if value is not None and isinstance(value.data, Record) else None

    def part(self, path: str) -> Record:
        """Return the record in a setting that a complete record has."""
        record = self.sub(path)
        if record is None:
            raise LookupError(f"{self.kind} `{self.name}` has no `{path}`")
        return record

    def at(self, path: str) -> Slot | None:
        """Return the slot at a dotted path, such as `optim.lr`."""
        if "." not in path:
            return self.fields.get(path)
        head, _, rest = path.partition(".")
        slot = self.fields.get(head)
        inner = slot.value.data if slot is not None else None
        return inner.at(rest) if isinstance(inner, Record) else None

    def with_field(self, name: str, slot: Slot) -> Self:
        """Return this record with one setting replaced."""
        return replace(self, fields={**self.fields, name: slot}, broken=self.broken - {name})

    def understood(self) -> Self:
        """Return this record without its wrong settings, since their defaults are not what was meant."""
        valid: dict[str, Slot] = {}
        for name, slot in self.fields.items():
            inner = slot.value.data
            if isinstance(inner, Section):
                sound = inner.understood()
                slot = slot if sound is inner else replace(slot, value=replace(slot.value, data=sound))
            if name not in self.broken:
                valid[name] = slot
        if all(slot is self.fields[name] for name, slot in valid.items()) and len(valid) == len(self.fields):
            return self
        return replace(self, fields=valid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Section(Record):
    """A block inside another record, such as `optim { … }`; `children` are the declarations in it, as yet unread."""

    children: Mapping[str, Child] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Compound(Record):
    """A record with declarations inside: traces with their styles, a published table with its rows.

    `children` are these as they stand, and `parts` the same as values.
    """

    children: Mapping[str, Child] = field(default_factory=dict)
    parts: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredExperiment(Record):
    """An experiment or a recipe, with the blocks of its stages, and the `--amend` of single stages.

    `from_checkpoint` marks one made from a checkpoint or a model, which trains nothing unless it names a method.
    """

    stages: tuple[DeclaredStage | StagesOver, ...] = ()
    stage_changes: tuple[Override, ...] = ()
    from_checkpoint: bool = False

    @property
    def is_trained(self) -> bool:
        """Return whether it trains anything; a checkpoint with a suite does not."""
        return not self.from_checkpoint or "method" in self.fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TypedCondition(Record):
    """A condition on a question, in types; `reads` are what it reads of one: `ref` or `given`.

    `numbers` are the numbers of the question, with the first place of each.
    """

    expression: Any
    reads: frozenset[str]
    numbers: Mapping[str, Span]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredArm(Record):
    """A name in a study for an experiment or a checkpoint."""

    experiment: DeclaredExperiment


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StageList(Record):
    """`x.stages`, from which brackets take one."""

    of: DeclaredExperiment


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StageRef(Record):
    """`x.stages[4K tokens]`: the end of a stage, counted from 0."""

    of: DeclaredExperiment
    position: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Until(Record):
    """The end of a stage: after `steps`, or at a plateau before that."""

    plateau: Record | None = None
    steps: Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WrittenBudgets(Record):
    """Budgets that are known as they are written."""

    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredFrontier(Compound):
    """A frontier: of arms, by its `envelope`; of a file, as `curves`; else as published, with a part for each curve."""

    envelope: Record | None = None
    curves: Curves | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Definition(Record):
    """A reward, a selection or a measure with a body of its own, and the arguments that it has been given."""

    item: tree.Decl
    body: tree.BraceBlock
    module: ParsedFile
    args: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredStudy(Record):
    """A study with what it holds, in the order in which it is written."""

    arms: tuple[DeclaredArm, ...] = ()
    frontiers: tuple[DeclaredFrontier, ...] = ()
    tables: tuple[Record, ...] = ()
    charts: tuple[Record, ...] = ()


Data: TypeAlias = Quantity | str | bool | Symbol | Items | Bounds | Record


@dataclass(frozen=True, slots=True)
class Value:
    """A value with the span of its expression.

    `via` says where the names in it were set, nearest first. `literal` is kept for a number that was written
    out, whose unit its setting may still fix.
    """

    data: Data
    span: Span
    via: tuple[tuple[Span, str], ...] = ()
    literal: tree.Number | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The names at one place: variables and arms of the block at hand, then those around it, then the file.

    `but` is one of the `locals` that cannot be used here.
    """

    module: ParsedFile
    locals: Mapping[str, Callable[[], Value]] = field(default_factory=dict)
    parent: Scope | None = None
    but: str | None = None

    def find(self, name: str) -> Callable[[], Value] | None:
        """Return the local behind a name, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.locals and name != scope.but:
                return scope.locals[name]
            scope = scope.parent
        return None

    def names(self) -> set[str]:
        """Return every name that can be used here."""
        names = set(self.module.items) | set(self.module.imports)
        scope: Scope | None = self
        while scope is not None:
            names |= set(scope.locals) - {scope.but}
            scope = scope.parent
        return names

    def inner(self, locals: Mapping[str, Callable[[], Value]], but: str | None = None) -> Scope:
        """Return a scope inside this one."""
        return Scope(self.module, locals, self, but)


Child: TypeAlias = tuple[tree.Decl, Scope]
"""A declaration inside a block, and the scope in which it stands."""


@dataclass(frozen=True, slots=True)
class Override:
    """A `--set` or `--amend`: what it changes, the text given, and the expression that it parses to.

    With `where_set` it changes what there is, and passes by where nothing is set.
    """

    option: str
    target: str
    text: str
    value: tree.Expr
    path: tuple[str, ...] = ()
    where_set: bool = False

    @property
    def block(self) -> tree.BraceBlock:
        """The change as a spec would write it: `optim { lr = 1e-6 }`."""
        *outer, last = self.path
        span = self.value.span
        item: tree.BlockItem = tree.Assignment(tree.Ident(last, span), "=", self.value, "", span)
        for name in reversed(outer):
            item = tree.Nested(tree.Ident(name, span), (), tree.BraceBlock("", (item,), span), span)
        return tree.BraceBlock(None, (item,), span)


@dataclass(frozen=True, slots=True)
class DeclaredStage:
    """A stage as declared: its name and label, the value that it was made for, its block, and the scope of its names.

    `replaced` is the place of the parent's stage of that name, which this one replaces as a whole.
    """

    name: str
    label: str
    value: Value | None
    block: tree.BraceBlock
    scope: Scope
    span: Span
    replaced: Span | None = None


@dataclass(frozen=True, slots=True)
class StagesOver:
    """`stages(var in list) { … }`: a stage for each value, made when it is asked for."""

    var: tree.Ident
    over: tree.Expr
    block: tree.BraceBlock
    scope: Scope
    span: Span


def plain(value: Value) -> Any:
    """Return the bare data in a value: numbers in base units, words as texts, lists and bounds as tuples."""
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


SPOKEN = {
    "stage_of": "stage",
    "steps_split": "split at reasoning steps",
    "exits_split": "split at random exits",
    "oracle_budgets": "budgets schedule",
    "question_budgets": "budgets schedule",
}
"""Kinds of record that no spec names, for a sentence."""


def describe(value: Value) -> str:
    """Return a value in words: `65536 tokens`, `the text "abc"`, `the suite math_reg`."""
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
    kind = SPOKEN.get(data.kind, data.kind)
    return f"the {kind} `{data.name}`" if data.name else f"{article(kind)} {kind}"


def write_value(value: Value) -> str:
    """Return a value as a spec would write it; a record by its name."""
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
    """Return `a` or `an`."""
    return "an" if word[:1] in "aeiou" else "a"


def join_kinds(words: Sequence[str]) -> str:
    """Return `a model`, `a recipe or a model`, `an arm, a recipe or a model`."""
    *first, last = [f"{article(word)} {word}" for word in words]
    return f"{', '.join(first)} or {last}" if first else last


def walk(record: Record, prefix: str = "") -> Iterator[tuple[str, Slot]]:
    """Yield every setting of a record and of the blocks inside it, by dotted path."""
    for name, slot in record.fields.items():
        inner = slot.value.data
        if isinstance(inner, Section):
            yield from walk(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", slot


def list_items(record: Record | None, name: str) -> tuple[Value, ...]:
    """Return the values in a setting that is a list; none where it was not given."""
    value = record.get(name) if record is not None else None
    return value.data.values if value is not None and isinstance(value.data, Items) else ()


def list_records(record: Record | None, name: str) -> list[Record]:
    """Return the records in a setting that is a list of them."""
    return [item.data for item in list_items(record, name) if isinstance(item.data, Record)]
