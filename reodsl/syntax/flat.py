"""Expressions, blocks and items to their canonical text on one line, where they have one."""

from __future__ import annotations

from collections.abc import Iterable

from reodsl.syntax import tree
from reodsl.syntax.attach import Attached
from reodsl.syntax.literals import canonical_number, quote

# How tightly an expression binds; one that binds looser than its place wants stands in ( ).
CHOICE, OR, AND, NOT, COMPARISON, RANGE, SUM, PRODUCT, UNARY, POWER, POSTFIX, ATOM = range(12)
_BINARY = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "^": POWER}


def binding(expr: tree.Expr) -> int:
    """How tightly an expression binds, from `CHOICE` to `ATOM`."""
    match expr:
        case tree.IfElse():
            return CHOICE
        case tree.Logic(op=op):
            return OR if op == "or" else AND
        case tree.Not():
            return NOT
        case tree.Compare():
            return COMPARISON
        case tree.Range():
            return RANGE
        case tree.Binary(op=op):
            return _BINARY[op]
        case tree.Unary():
            return UNARY
        case tree.Attribute() | tree.Index() | tree.Slice() | tree.Call() | tree.Amend():
            return POSTFIX
        case _:
            return ATOM


def parts(expr: tree.Expr) -> list[str | tuple[tree.Expr, int]]:
    """An operation as it is written: words, and operands with the binding that their place wants."""
    match expr:
        case tree.IfElse(then=then, condition=condition, otherwise=otherwise):
            return [(then, OR), " if ", (condition, OR), " else ", (otherwise, CHOICE)]
        case tree.Logic(op=op, left=left, right=right):
            level = binding(expr)
            return [(left, level), f" {op} ", (right, level + 1)]
        case tree.Not(operand=operand):
            return ["not ", (operand, NOT)]
        case tree.Compare(op=op, left=left, right=right):
            return [(left, RANGE), f" {op} ", (right, RANGE)]
        case tree.Range(lower=lower, upper=upper):
            return [(lower, SUM), "..", (upper, SUM)]
        case tree.Binary(op="^", left=left, right=right):
            return [(left, POSTFIX), "^", (right, UNARY)]
        case tree.Binary(op=op, left=left, right=right):
            level = binding(expr)
            return [(left, level), f" {op} ", (right, level + 1)]
        case tree.Unary(op=op, operand=operand):
            return [op, (operand, UNARY)]
        case tree.Attribute(value=value, name=name):
            return [(value, POSTFIX), f".{name.name}"]
        case tree.Index(value=value, index=index):
            return [(value, POSTFIX), "[", (index, CHOICE), "]"]
        case tree.Slice(value=value, lower=lower, upper=upper):
            ends: list[str | tuple[tree.Expr, int]] = [(value, POSTFIX), "["]
            if lower is not None:
                ends.append((lower, CHOICE))
            ends.append(":")
            if upper is not None:
                ends.append((upper, CHOICE))
            return [*ends, "]"]
        case _:
            return [atom(expr)]


def chain(value: tree.Expr) -> list[tuple[str, tree.Expr, int]]:
    """The operands of a chain of equally binding operators: the word before each, and the binding wanted."""
    level = binding(value)
    if isinstance(value, tree.IfElse):
        return [
            ("", value.then, OR),
            ("if ", value.condition, OR),
            ("else ", value.otherwise, CHOICE),
        ]
    if isinstance(value, tree.Compare):
        return [("", value.left, RANGE), (f"{value.op} ", value.right, RANGE)]
    found: list[tuple[str, tree.Expr, int]] = []
    while isinstance(value, tree.Binary | tree.Logic) and binding(value) == level != POWER:
        found.append((f"{value.op} ", value.right, level + 1))
        value = value.left
    return [("", value, level), *reversed(found)]


def atom(expr: tree.Expr) -> str:
    """An expression without operands, calls and lists set aside."""
    match expr:
        case tree.Number(text=text, unit=unit):
            return canonical_number(text) + (f" {unit}" if unit else "")
        case tree.String(value=value, long=long):
            return text_of(value) if long else quote(value)
        case tree.Bool(value=value):
            return "true" if value else "false"
        case tree.Name(name=name):
            return name
    raise TypeError(f"{type(expr).__name__} is no atom")


def text_of(value: str) -> str:
    """A text in triple quotes, or in double ones where it cannot stand in those."""
    if '"""' in value or value.endswith('"') or "\r" in value:
        return quote(value)
    return f'"""{value}"""'


def doc_text(doc: str, indent: int) -> str:
    """A documentation text, its further lines indented; `clean_doc` gives back `doc` exactly."""
    lines = doc.split("\n")
    pad = "  " * indent
    if len(lines) == 1:
        return f'"""{doc}{" " if doc.endswith(chr(34)) else ""}"""'
    rest = [pad + line if line else "" for line in lines]
    # Where all further lines are indented deeper, only the first line's own place keeps that.
    hanging = lines[0].startswith(" ") or all(line.startswith(" ") for line in lines[1:] if line)
    first = ['"""', rest[0]] if hanging else [f'"""{lines[0]}']
    return "\n".join([*first, *rest[1:], f'{pad}"""'])


def type_text(type_: tree.TypeExpr) -> str:
    """`tokens`, `[int]`."""
    depth = 0
    while isinstance(type_, tree.ListType):
        type_, depth = type_.item, depth + 1
    return "[" * depth + type_.name + "]" * depth


def import_name_text(name: tree.ImportName) -> str:
    """`name` or `name as alias`."""
    return name.name.name + (f" as {name.alias.name}" if name.alias is not None else "")


def needs_brackets(expr: tree.Expr) -> bool:
    """Statements that, bare, would read as a nested block or as the text of their block."""
    base = expr.base if isinstance(expr, tree.Amend) else None
    named = base.function if isinstance(base, tree.Call) else base
    return isinstance(named, tree.Name) or (isinstance(expr, tree.String) and expr.long)


class Flat:
    """Texts on one line, each made once; None where a comment or a block written over lines forbids it."""

    def __init__(self, comments: Attached) -> None:
        self.comments = comments
        self.known: dict[int, str | None] = {}

    def expr(self, expr: tree.Expr, level: int = CHOICE) -> str | None:
        """An expression where something binding as `level` is wanted."""
        own = id(expr)
        if own not in self.known:
            self.known[own] = self._expr(expr)
        text = self.known[own]
        return f"({text})" if text is not None and binding(expr) < level else text

    def _expr(self, expr: tree.Expr) -> str | None:
        match expr:
            case tree.Call(function=function, args=args):
                head = self.expr(function, POSTFIX)
                inner = self._list(map(self.arg, args))
                blocked = self.comments.inside(expr, args)
                return None if head is None or inner is None or blocked else f"{head}({inner})"
            case tree.ListExpr(items=items):
                inner = self._list(map(self.expr, items))
                return None if inner is None or self.comments.inside(expr, items) else f"[{inner}]"
            case tree.Amend(base=base, block=block):
                head, inner = self.expr(base, POSTFIX), self.block(block)
                return None if head is None or inner is None else f"{head} {inner}"
        words = []
        for part in parts(expr):
            word = part if isinstance(part, str) else self.expr(*part)
            if word is None:
                return None
            words.append(word)
        return "".join(words)

    def _list(self, texts: Iterable[str | None]) -> str | None:
        found = list(texts)
        return None if None in found else ", ".join(text for text in found if text is not None)

    def arg(self, arg: tree.Arg) -> str | None:
        """`value`, `name: value`, `var in over` or `expr for var in over if condition`."""
        words: list[str | None]
        match arg.value:
            case tree.Binding(var=var, over=over):
                words = [f"{var.name} in ", self.expr(over, RANGE)]
            case tree.Comprehension(expr=expr, var=var, over=over, condition=condition):
                words = [self.expr(expr), f" for {var.name} in ", self.expr(over, OR)]
                if condition is not None:
                    words += [" if ", self.expr(condition, OR)]
            case tree.Compare(op="in", left=tree.Name()) if arg.name is None:
                words = ["(", self.expr(arg.value), ")"]  # else it would read as a binding
            case value:
                words = ["" if arg.name is None else f"{arg.name.name}: ", self.expr(value)]
        return None if None in words else "".join(word for word in words if word is not None)

    def args(self, node: tree.Nested) -> str | None:
        """`(a, b)` of a nested block; empty without arguments."""
        inner = self._list(map(self.arg, node.args))
        if inner is None or self.comments.inside(node, node.args):
            return None
        return f"({inner})" if node.args else ""

    def params(self, decl: tree.Decl) -> str | None:
        """`(a: int, b: number = 1 in 0..2)` of a declaration; empty without them."""
        if decl.params is None:
            return ""
        inner = self._list(map(self.param, decl.params))
        return None if inner is None or self.comments.inside(decl, decl.params) else f"({inner})"

    def param(self, param: tree.Param | tree.ParamDecl) -> str | None:
        """`name: type = default in lower..upper`."""
        words: list[str | None] = [f"{param.name.name}: {type_text(param.type)}"]
        if param.default is not None:
            words += [" = ", self.expr(param.default, SUM)]
        if param.range is not None:
            words += [" in ", self.expr(param.range)]
        return None if None in words else "".join(word for word in words if word is not None)

    def block(self, block: tree.Block) -> str | None:
        """`{ a = 1, b = 2 }`, if it was written on one line."""
        own = id(block)
        if own not in self.known:
            self.known[own] = self._block(block)
        return self.known[own]

    def _block(self, block: tree.Block) -> str | None:
        span = block.span
        if span.line != span.end_line or block.doc is not None or self.comments.inside(block, block.items):
            return None
        inner = self._list(map(self._item, block.items))
        if inner is None or "\n" in inner:
            return None
        return f"{{ {inner} }}" if inner else "{}"

    def _item(self, item: tree.BlockItem) -> str | None:
        words: list[str | None]
        match item:
            case tree.Setting(name=name, op=op, value=value, doc=None):
                words = [f"{name.name} {op} ", self.expr(value)]
            case tree.Let(name=name, value=value):
                words = [f"let {name.name} = ", self.expr(value)]
            case tree.Dense(var=var, over=over, body=body):
                words = [f"dense {var.name} in ", self.expr(over), ": ", self.expr(body)]
            case tree.Nested(name=name, block=block):
                words = [name.name, self.args(item), " ", self.block(block)]
            case tree.Decl(value=None, block=tree.Block() as block):
                words = [f"{item.kind.name} {item.name.name}", self.params(item), " ", self.block(block)]
            case tree.Decl(value=value, doc=None) if value is not None:
                words = [f"{item.kind.name} {item.name.name}", self.params(item), " = ", self.expr(value)]
            case tree.ExprStatement(expr=expr) if needs_brackets(expr):
                words = ["(", self.expr(expr), ")"]
            case tree.ExprStatement(expr=expr):
                words = [self.expr(expr)]
            case _:
                return None
        return None if None in words else "".join(word for word in words if word is not None)
