"""Explain the word at a position in a spec, find all uses of a name, and rename it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path

from reodsl.diagnostics.model import Span
from reodsl.ir.expression import TOKENS
from reodsl.ir.kinds import FORMULAS, KINDS
from reodsl.ir.setting import AnyOf, ListOf, Num, OneOf, Setting, Type
from reodsl.language.fitting import describe_type
from reodsl.language.functions import SIGNATURES
from reodsl.language.modules import LIBRARY, ParsedFile, parse_cached
from reodsl.language.reference import MEASURE_WORDS, REWARD_WORDS, default_words
from reodsl.language.reward.names import FUNCTIONS, MEASURES, STATISTICS, TRACK_WORDS
from reodsl.language.values import NestedBlock, Record, Slot, Value, WrittenBudgets, describe, write_value
from reodsl.lsp.analysis import Analysis, analyse, lines_of
from reodsl.lsp.outline import CursorSite, locate, locate_name
from reodsl.numbers.budgets import Schedule
from reodsl.syntax import tree
from reodsl.syntax.scanner import KEYWORDS, Token
from reodsl.syntax.source import MAX_BYTES, Source

ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(STATISTICS, "empty"),
    **dict.fromkeys(TOKENS, "under"),
    "z": "on",
}
"""The named arguments of a reward's functions; the outermost call of a track has a `start` too."""
WORDS = {"under": ("teacher",), "on": ("prefix", "thinking", "solution")}
"""The words that they take."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The explanation of a word in a spec."""

    write: Callable[[], str]
    """Makes the text; a search for uses of a name needs thousands of meanings and no text."""
    span: Span
    """The word."""
    definition: Span | None
    """The span where it is defined; None for a word of the language."""

    @property
    def text(self) -> str:
        """Return the explanation as Markdown."""
        return self.write()


Explanation = tuple[Callable[[], str], Span | None]
"""A function that writes an explanation, and the span where the word is defined."""


def meaning(analysis: Analysis, line: int, column: int) -> Meaning | None:
    """Return the meaning of the word at a position; None without a word or for an unknown word.

    Args:
        analysis: The evaluated spec.
        line: The line of the cursor, from 1.
        column: The column of the cursor, from 1.
    """
    return _explain_site(analysis, locate(analysis.text, line, column))


def _explain_site(analysis: Analysis, site: CursorSite) -> Meaning | None:
    """Return the meaning of the word under the cursor; None without a word or for an unknown word."""
    if site.word is None:
        return None
    explained = _explain(analysis, site, site.word)
    return Meaning(explained[0], site.word.span, explained[1]) if explained is not None else None


def _ready(text: str) -> Explanation:
    """Return a ready explanation of a word of the language, which has no definition in a file."""
    return (lambda: text), None


def _explain(analysis: Analysis, site: CursorSite, word: Token) -> Explanation | None:
    """Return the explanation of a word by its position in the statement; None for an unknown word.

    A word is a module or name of an import, an argument of a call, the kind of a declaration, a setting, or a
    name in a value. Words behind a point have no explanation.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        word: The token of the word.
    """
    tokens, frame = site.tokens_before, site.frame
    if tokens and tokens[0].type == "FROM" and not frame.bracket:
        return _explain_import(analysis, site, word)
    if tokens and tokens[-1].type in ("DOT", "DOTDOT"):
        return None
    follows = site.next_token.type if site.next_token is not None else ""
    if frame.bracket == "(" and frame.kind and follows == "COLON":
        return _explain_argument(analysis, frame.kind, word.text) or (
            _explain_in_reward(word.text) if frame.body else None
        )
    if not tokens and not frame.bracket:
        return _ready(f"**{word.text}**: {KINDS[word.text].doc}") if word.text in KINDS else None
    if not tokens and frame.bracket == "{":
        field = frame.fields().get(word.text)
        if field is not None and follows != "NAME":
            slot = _find_slot(analysis, site, word.text)
            # The definition is the line that set the replaced value, or else the line that set the value.
            defined = (slot.parent or slot).span if slot else None
            return partial(_describe_setting, word.text, field, slot), defined
        if follows == "NAME" and word.text in KINDS:
            return _ready(f"**{word.text}**: {KINDS[word.text].doc}")
    return _explain_name(analysis, site, word)


def _explain_import(analysis: Analysis, site: CursorSite, word: Token) -> Explanation | None:
    """Return the explanation of a module in an import, or of a name that it imports; None for an unknown word."""
    if any(token.type == "IMPORT" for token in site.tokens_before):
        local = analysis.local_names.get((word.span.line, word.text), "")
        return _explain_declared(analysis, word.text) or _explain_declared(analysis, local)
    imported = analysis.sources_of_lines.get(word.span.line)
    target = analysis.find_module(imported.module) if imported is not None else None
    if imported is None or target is None:
        return None
    text = f"**{imported.source}**\n\n{target.module.doc or ''}".strip()
    return (lambda: text), Span(target.path, 1, 1, 1, 1)


def _explain_name(analysis: Analysis, site: CursorSite, word: Token) -> Explanation | None:
    """Return the explanation of a name used as a value; None for an unknown name.

    The name may be a word of the setting, a local name, a declaration, a function, or a word of rewards; the
    first of these that applies is explained. In a formula a called function of rewards comes before
    declarations.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        word: The token of the name.
    """
    field = site.expected
    if field is not None and word.text in words_of(field.type):
        return _ready(f"`{word.text}`: {field.doc}")
    local = site.locals.get(word.text)
    # In `arm vanilla = vanilla` the second name means another declaration.
    is_same_declaration = local is not None and local.span.line == word.span.line and site.has_sign
    is_call = site.next_token is not None and site.next_token.type == "LPAR"
    if local is not None and local.kind == "variable" and is_call:
        local = None  # a variable is not called: `z(…)` is a part of a reward
    if local is not None and not (is_same_declaration and local.kind not in ("variable", "parameter")):
        text = f"**{local.kind}** `{word.text}`"
        return (lambda: text), local.span._replace(path=str(analysis.path))
    if is_call and site.frame.body and word.text in FUNCTIONS:
        return _explain_in_reward(word.text)  # even if the file declares this name
    declared = _explain_declared(analysis, word.text)
    if declared is not None:
        return declared
    function = SIGNATURES.get(word.text) or KINDS.get(word.text)
    if function is not None and function.form == "call":
        arguments = "".join(f"\n- `{name}`: {argument.doc}" for name, argument in function.fields.items())
        return _ready(f"**{word.text}**(…): {function.doc}\n{arguments}")
    return _explain_in_reward(word.text)


@cache
def _explain_in_reward(word: str) -> Explanation | None:
    """Return the explanation of a word of formulas, as the list of its documented uses; None for other words."""
    plain_words = "y", "x", "group", "batch", "history", "ref", "dense", "track", "metric"
    named = {"start", *ARGUMENTS.values(), *WORDS, *(value for words in WORDS.values() for value in words)}
    if word not in (*FUNCTIONS, *TRACK_WORDS, *MEASURES, *plain_words, *named):
        return None
    uses = (*REWARD_WORDS, *MEASURE_WORDS)
    # Names of arguments are also English words, so they are searched only in code; `z` is also a variable.
    pattern = rf"\b{word}\b" if word != "z" else r"\bz\("
    forms = [f"- {c}: {means}" for c, means in uses if re.search(pattern, c if word in named else c + means)]
    return _ready(f"**{word}** in a reward\n\n" + "\n".join(forms)) if forms else None


def _explain_declared(analysis: Analysis, name: str) -> Explanation | None:
    """Return the explanation of a declaration or param that the file declares or imports; None for an unknown name."""
    item = analysis.find_item(name)
    return (partial(_describe_declared, analysis, *item), item[1].name.span) if item is not None else None


def _describe_declared(analysis: Analysis, module: ParsedFile, item: tree.ModuleItem) -> str:
    """Return a declaration in Markdown: its head, formula, value and comment, and the file if it is another one.

    A value is shown for params and budgets only, since other declarations are records of settings.

    Args:
        analysis: The evaluated spec.
        module: The file that declares the item.
        item: The declaration or param.
    """
    parts = [f"**{item.kind_name}** `{item.name.name}`"]
    if isinstance(item, tree.Decl) and item.params:
        params = ", ".join(_quote_span(analysis, param.span) for param in item.params)
        parts[0] += f"({params})"
    if isinstance(item, tree.Decl) and item.kind_name in FORMULAS and item.block is not None:
        body = re.sub(r'^\{\s*""".*?"""', "{", _lines_at(analysis, item.block.span), flags=re.DOTALL)
        parts.append(f"```reo\n{body}\n```")
    if isinstance(item, tree.Param):
        parts.append(f"`{_quote_span(analysis, item.span)}`")
    value = analysis.program.context.memo.get((module.key, item.name.name))
    text = _show_value(value)
    if text and not (
        isinstance(value, Value) and isinstance(value.data, Record) and not _budgets(value.data)
    ):
        parts.append(f"value: {text}")
    if item.doc:
        parts.append(item.doc.strip())
    if module is not analysis.program.main:
        parts.append(f"from {module.path}, line {item.name.span.line}")
    return "\n\n".join(parts)


def _describe_setting(name: str, field: Setting, slot: Slot | None) -> str:
    """Return a setting in Markdown: its description, its value, and the value that it replaces.

    Args:
        name: The name of the setting.
        field: The declaration of the setting.
        slot: The setting in the record around the cursor; None if the setting has no value.
    """
    parts = [describe_field(name, field)]
    if slot is not None and not isinstance(slot.value.data, NestedBlock):
        parts.append(f"value: {_show_value(slot.value) or describe(slot.value)}{_format_origin(slot)}")
        replaced = slot.parent
        if replaced is not None:
            parts.append(f"replaces {_show_value(replaced.value) or 'a value'}{_format_origin(replaced)}")
    return "\n\n".join(parts)


def describe_field(name: str, field: Setting) -> str:
    """Return a setting or argument in Markdown: description, type, range, default and training methods."""
    range_ = field.type.range_words() if isinstance(field.type, Num) else ""
    facts = [f"{describe_type(field.type)}, {range_}" if range_ else describe_type(field.type)]
    default = default_words(field)
    if default:
        facts.append(default if field.required else f"default {default}")
    if field.methods:
        facts.append(f"for {', '.join(field.methods)}")
    return f"**{name}**: {field.doc}\n\n{'; '.join(facts)}"


def words_of(type_: Type) -> tuple[str, ...]:
    """Return the words that a setting of this type may have, also as items of a list."""
    match type_:
        case OneOf():
            return type_.words
        case ListOf():
            return words_of(type_.item)
        case AnyOf():
            return tuple(word for option in type_.options for word in words_of(option))
    return ()


def _find_slot(analysis: Analysis, site: CursorSite, name: str) -> Slot | None:
    """Return the setting in the block around the cursor, with its value; None if it has no value."""
    value = analysis.program.values.get(site.frame.owner)
    if site.frame.path is None or value is None or not isinstance(value.data, Record):
        return None
    return value.data.at(".".join((*site.frame.path, name)))


def _show_value(value: Value | None) -> str:
    """Return a value on one line for an explanation; empty for None and for a nameless record except budgets."""
    if value is None:
        return ""
    if isinstance(value.data, Record):
        budgets = _budgets(value.data)
        if budgets is not None:
            return f"{', '.join(str(budget) for budget in budgets.budgets)}, to {budgets.l_max} tokens"
        return describe(value) if value.data.name else ""
    text = write_value(value)
    return f"`{text if len(text) <= 80 else text[:79] + '…'}`"


def _budgets(record: Record) -> Schedule | None:
    """Return the schedule of a record that is budgets; None for other records."""
    return record.schedule if isinstance(record, WrittenBudgets) else None


def _format_origin(slot: Slot) -> str:
    """Return where a setting was given, ` (PATH, line N): COMMENT`; empty for a default."""
    where = f" ({slot.span.path}, line {slot.span.line})" if slot.span is not None else ""
    return f"{where}: {slot.doc.strip()}" if slot.doc.strip() else where


def _explain_argument(analysis: Analysis, function: str, name: str) -> Explanation | None:
    """Return the explanation of an argument of a function, reward or selection; None for an unknown argument.

    Args:
        analysis: The evaluated spec.
        function: The name of the function, reward or selection.
        name: The name of the argument.
    """
    signature = SIGNATURES.get(function) or KINDS.get(function)
    if signature is not None and name in signature.fields:
        return _ready(describe_field(name, signature.fields[name]))
    parameter = analysis.parameters.get(function, {}).get(name)
    if parameter is None:
        return None
    span = parameter.span
    return (lambda: f"**{name}**: `{_quote_span(analysis, span)}`"), parameter.name.span


def _quote_span(analysis: Analysis, span: Span) -> str:
    """Return the source text of a span on one line."""
    return " ".join(_lines_at(analysis, span).split())


def _lines_at(analysis: Analysis, span: Span) -> str:
    """Return the source text of a span."""
    lines = list(lines_of(analysis.sources[span.path])[span.line - 1 : span.end_line])
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


MOST_FILES = 5000
"""The most files that are searched for a name; only files that contain the name are compiled."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A use of a name: its span in a file, and the text of the file."""

    file: Path
    text: str
    span: Span


def references(
    analysis: Analysis, texts: Mapping[Path, str], line: int, column: int, folder: bool = True
) -> tuple[Occurrence, ...]:
    """Return the uses of the name at a position, with its declaration; empty for a word of the language.

    Args:
        analysis: The evaluated spec.
        texts: The texts of open editors by path.
        line: The line of the cursor, from 1.
        column: The column of the cursor, from 1.
        folder: Whether to search all specs of the folder and of folders below; false for this file only.
    """
    target = _find_target(analysis, line, column)
    if target is None:
        return ()
    name, declared = target
    places = list(_find_in_file(analysis, name, declared))
    for path, text in _read_specs(analysis.path.parent, texts) if folder else ():
        if path != analysis.path and re.search(rf"\b{name}\b", text):
            places += _find_in_file(analyse(path, {**texts, path: text}), name, declared)
    return tuple(places)


NOT_RENAMABLE = "only names that a spec declares can be renamed"


def rename(
    analysis: Analysis, texts: Mapping[Path, str], line: int, column: int, new: str
) -> tuple[Occurrence, ...] | str:
    """Return the uses of a name that a new name must replace, or a message that says why it cannot be renamed.

    Names of the language, of settings and of the standard library cannot be renamed. The new name must be
    valid, and must not be declared or imported in a file with a use.

    Args:
        analysis: The evaluated spec.
        texts: The texts of open editors by path.
        line: The line of the cursor, from 1.
        column: The column of the cursor, from 1.
        new: The new name.
    """
    target = _find_target(analysis, line, column)
    if target is None:
        return NOT_RENAMABLE
    if target[1][0].is_relative_to(LIBRARY):
        return "this is a name of the standard library; give it another name here by `import NAME as OTHER`"
    if not _NAME.fullmatch(new) or new.upper() in KEYWORDS:
        return f"`{new}` is not a name: letters, digits and _, and no keyword"
    if sum(1 for _ in islice(_list_specs(analysis.path.parent), MOST_FILES + 1)) > MOST_FILES:
        return (
            f"there are more than {MOST_FILES:,} specs in this folder and below: not every use would be found"
        )
    places = references(analysis, texts, line, column)
    for file, text in {occurrence.file: occurrence.text for occurrence in places}.items():
        module = parse_cached(Source(str(file), text)).module if new in text else None
        names = [item.name for item in module.items] if module is not None else []
        names += (
            [item.alias or item.name for clause in module.imports for item in clause.names] if module else []
        )
        if any(name.name == new for name in names):
            return f"{file.name} has a `{new}` already"
    return places


def _find_target(analysis: Analysis, line: int, column: int) -> tuple[str, tuple[Path, int, int]] | None:
    """Return the name at a position, and the file, line and column of its declaration; None without a declaration."""
    return _find_declaration(analysis, meaning(analysis, line, column))


def _find_declaration(
    analysis: Analysis, explanation: Meaning | None
) -> tuple[str, tuple[Path, int, int]] | None:
    """Return an explained name and the (file, line, column) of its declaration.

    The result is None for a word without a declaration. It is None too if the text at the definition is not the
    name, as for an import with `as`, because a renaming would miss it.
    """
    if explanation is None or explanation.definition is None:
        return None
    word = _text_at(analysis.text, explanation.span)
    file = analysis.file_of(explanation.definition.path)
    source = analysis.text if file == analysis.path else analysis.sources.get(explanation.definition.path, "")
    # The definition of a setting or of an import with `as` has another name: it cannot be renamed with it.
    if _text_at(source, explanation.definition) != word:
        return None
    return word, (file, explanation.definition.line, explanation.definition.column)


def _find_in_file(analysis: Analysis, name: str, declared: tuple[Path, int, int]) -> Iterator[Occurrence]:
    """Yield the uses of a name in a file.

    Args:
        analysis: The evaluated file.
        name: The name.
        declared: The file, line and column of its declaration. A use with another declaration is left out.
    """
    for site in locate_name(analysis.text, name):
        explanation = _explain_site(analysis, site)
        target = _find_declaration(analysis, explanation)
        if explanation is not None and target is not None and target[1] == declared:
            yield Occurrence(analysis.path, analysis.text, explanation.span)


def _read_specs(folder: Path, texts: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """Yield (path, text) for the specs of a folder and of folders below, at most `MOST_FILES`.

    The text of an open editor replaces the text on the disk. Unreadable and too large files are skipped.
    """
    for path in islice(_list_specs(folder), MOST_FILES):
        text = texts.get(path)
        if text is None:
            try:
                if not path.is_file() or path.stat().st_size > MAX_BYTES:
                    continue
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
        yield path, text


def _list_specs(folder: Path) -> Iterator[Path]:
    """Yield the specs of a folder and below, except in hidden folders, which may be stores or environments."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".reo") and not name.startswith("."):
                yield Path(parent, name)


def _text_at(text: str, span: Span) -> str:
    """Return the text of a span that lies on one line; empty for other spans."""
    lines = lines_of(text)
    if span.line != span.end_line or span.line > len(lines):
        return ""
    return lines[span.line - 1][span.column - 1 : span.end_column - 1]
