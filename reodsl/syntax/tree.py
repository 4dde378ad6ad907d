"""The syntax tree of one `.reo` file, as written: frozen nodes with spans, and ways through them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from reodsl.diagnostics.model import Span

Suffix: TypeAlias = Literal["K", "M", "G", "%"]
SettingOp: TypeAlias = Literal["=", "+="]
UnaryOp: TypeAlias = Literal["-", "+"]
BinaryOp: TypeAlias = Literal["+", "-", "*", "/", "^"]
CompareOp: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "in"]
LogicOp: TypeAlias = Literal["and", "or"]


@dataclass(frozen=True, slots=True)
class Ident:
    """A name at a place in the text: of a declaration, a setting, an argument, a variable or a member."""

    name: str
    span: Span


# Expressions


@dataclass(frozen=True, slots=True)
class Number:
    """A number with an optional unit, such as `16K tokens`: text `16K`, value 16, suffix `K`, unit `tokens`.

    The value does not include the suffix, since K is 1024 for tokens and 1000 for other units.
    """

    text: str
    value: int | float
    suffix: Suffix | None
    unit: str | None
    unit_span: Span | None
    span: Span


@dataclass(frozen=True, slots=True)
class String:
    """A text. `long` is true for triple quotes, in which newlines are allowed and no escapes are read."""

    value: str
    long: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    value: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name used as a value."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Attribute:
    """`value.name`."""

    value: Expr
    name: Ident
    span: Span


@dataclass(frozen=True, slots=True)
class Index:
    """`value[index]`."""

    value: Expr
    index: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Slice:
    """The slice `value[lower:upper]`; each bound may be missing."""

    value: Expr
    lower: Expr | None
    upper: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Binding:
    """`var in over`, only as an unnamed argument: `stages(cap in halve(…))`."""

    var: Ident
    over: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Comprehension:
    """`expr for var in over if condition`, only as an unnamed argument."""

    expr: Expr
    var: Ident
    over: Expr
    condition: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument of a call, `value` or `name: value`."""

    name: Ident | None
    value: Expr | Binding | Comprehension
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """`function(args)`."""

    function: Expr
    args: tuple[Arg, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `+x`."""

    op: UnaryOp
    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right` for + - * / ^."""

    op: BinaryOp
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right` for == != < <= > >= in; never chained."""

    op: CompareOp
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Logic:
    """`left and right`, `left or right`."""

    op: LogicOp
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Not:
    """`not x`."""

    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class IfElse:
    """`then if condition else otherwise`."""

    then: Expr
    condition: Expr
    otherwise: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class ListExpr:
    """`[a, b, c]`."""

    items: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Range:
    """`lower..upper`, both ends included."""

    lower: Expr
    upper: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Amend:
    """`base { overrides }`."""

    base: Expr
    block: BraceBlock
    span: Span


_Atom: TypeAlias = Number | String | Bool | Name | ListExpr
_Postfix: TypeAlias = Attribute | Index | Slice | Call | Amend
_Operation: TypeAlias = Unary | Binary | Compare | Logic | Not | IfElse | Range
Expr: TypeAlias = _Atom | _Postfix | _Operation

# Types


@dataclass(frozen=True, slots=True)
class TypeName:
    """The name of a type, such as `tokens`, `int` or `budgets`; unknown names are reported later."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class ListType:
    """`[int]`."""

    item: TypeExpr
    span: Span


TypeExpr: TypeAlias = TypeName | ListType

# Items of a block


@dataclass(frozen=True, slots=True)
class BraceBlock:
    """A block `{ … }`. `doc` is a triple-quoted text at its start, without its indentation."""

    doc: str | None
    items: tuple[BlockItem, ...]
    span: Span
    doc_span: Span | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A setting `name = value` or `name += value`, with an optional triple-quoted text behind the value."""

    name: Ident
    op: SettingOp
    value: Expr
    doc: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Let:
    """A definition `let name = value`, or of a function: `let name(a, b) = value`."""

    name: Ident
    params: tuple[Ident, ...] | None
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Dense:
    """A line `dense var in over: body`, with a reward at each element of `over`."""

    var: Ident
    over: Expr
    body: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class NamedBlock:
    """A statement `name { … }` or `name(args) { … }`: `batch { … }`, `stages(cap in …) { … }`."""

    name: Ident
    args: tuple[Arg, ...]
    block: BraceBlock
    span: Span


@dataclass(frozen=True, slots=True)
class ExprStatement:
    """An expression that is an item of a block: the value of a reward or selection."""

    expr: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class ParamDecl:
    """A parameter of a declaration: `alpha: number = 0.1 in 0..1`."""

    name: Ident
    type: TypeExpr
    default: Expr | None
    range: Range | None
    span: Span


@dataclass(frozen=True, slots=True)
class Decl:
    """A declaration, `kind name(params) = value` or `kind name(params) { … }`."""

    kind: Ident
    """The first word, whichever it is."""
    name: Ident
    """The name that it declares."""
    params: tuple[ParamDecl, ...] | None
    """The parameters; None without brackets."""
    value: Expr | None
    """The value; None with a block."""
    block: BraceBlock | None
    """The block; None with a value."""
    doc: str | None
    """The text of the block, of the amended value's block, or in triple quotes behind a value without a block."""
    span: Span
    """The span from the kind to the end."""

    @property
    def kind_name(self) -> str:
        """Return the first word of the declaration, such as `experiment`."""
        return self.kind.name


BlockItem: TypeAlias = Assignment | Let | Dense | NamedBlock | ExprStatement | Decl

# A file


@dataclass(frozen=True, slots=True)
class Param:
    """`param name: type = default in lower..upper`, with an optional triple-quoted text after it."""

    kind_name: ClassVar[str] = "param"
    """The word of the statement."""

    name: Ident
    """The name that specs and `--set` use."""
    type: TypeExpr
    """The type."""
    default: Expr | None
    """The value without `--set`."""
    range: Range | None
    """The bounds of the value."""
    doc: str | None
    """The triple-quoted text behind it."""
    span: Span
    """The span from `param` to the end."""


@dataclass(frozen=True, slots=True)
class ImportName:
    """`name` or `name as alias` in an import."""

    name: Ident
    alias: Ident | None
    span: Span


@dataclass(frozen=True, slots=True)
class Import:
    """An import `from module import names`. Leading dots of `module` mean this file's folder (one) or a folder above."""

    module: str
    module_span: Span
    names: tuple[ImportName, ...]
    span: Span


ModuleItem: TypeAlias = Param | Decl


@dataclass(frozen=True, slots=True)
class Module:
    """A file."""

    path: str
    """The path that messages show."""
    doc: str | None
    """The triple-quoted text at its beginning, without its indentation."""
    imports: tuple[Import, ...]
    """The imports, in order."""
    items: tuple[ModuleItem, ...]
    """The declarations and params, in order."""
    span: Span
    """The span of the text."""
    doc_span: Span | None = None
    """The span of `doc`."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment `# …` as written; `own_line` is true if its line has nothing else."""

    text: str
    own_line: bool
    span: Span


Node: TypeAlias = (
    Expr | TypeExpr | BlockItem | ModuleItem | Module | BraceBlock | Import | ImportName | ParamDecl | Arg
) | (Binding | Comprehension | Ident)

# Walking a tree; none of these functions recurses

_PLACES = frozenset({"span", "unit_span", "module_span", "doc_span", "text", "path"})
_WORDS = _PLACES | {"doc", "op", "module", "suffix", "unit", "long"}
_KINDS = [kind for kind in list(globals().values()) if isinstance(kind, type) and is_dataclass(kind)]
_BELOW = {kind: tuple(f.name for f in fields(kind) if f.name not in _WORDS) for kind in _KINDS}
"""The fields that can hold nodes, by class of node."""
_COMPARED = {kind: tuple(f.name for f in fields(kind) if f.name not in _PLACES) for kind in _KINDS}
"""The fields that `same` compares, by class of node."""


def children(node: Node) -> Iterator[Node]:
    """Yield the direct children of a node in source order."""
    for name in _BELOW[type(node)]:
        value: Any = getattr(node, name)
        if type(value) is tuple:
            yield from value
        elif hasattr(value, "span"):
            yield value


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all its descendants in source order, each parent before its children."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend([*children(node)][::-1])


_NO_LEVEL = (Arg, BraceBlock)


def depth_exceeding(node: Node, limit: int) -> Span | None:
    """Return the span of the first node found more than `limit` levels below `node`; None if the tree is shallower.

    Arguments and blocks add no level, and identifiers are not counted.
    """
    stack = [(node, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > limit:
            return node.span
        child_depth = depth if isinstance(node, _NO_LEVEL) else depth + 1
        stack.extend((child, child_depth) for child in children(node) if not isinstance(child, Ident))
    return None


def same(left: Node, right: Node) -> bool:
    """Return whether two trees are equal, ignoring spans, paths and the spelling of numbers."""
    stack: list[tuple[Any, Any]] = [(left, right)]
    while stack:
        a, b = stack.pop()
        if type(a) is not type(b):
            return False
        if isinstance(a, tuple):
            if len(a) != len(b):
                return False
            stack.extend(zip(a, b, strict=True))
        elif hasattr(a, "span"):
            stack.extend((getattr(a, name), getattr(b, name)) for name in _COMPARED[type(a)])
        elif a != b:
            return False
    return True
