"""Complete the text at a position in a spec: kinds, settings, words, names in scope or to import, modules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from reodsl.diagnostics.model import Edit, Span
from reodsl.ir.expression import READINGS
from reodsl.ir.kinds import DECLARED, FORMULAS, KINDS
from reodsl.ir.setting import Condition, Flag
from reodsl.language.fitting import list_kinds
from reodsl.language.functions import SCHEDULES, SIGNATURES
from reodsl.language.hints import list_declarations
from reodsl.language.modules import LIBRARY, STD, Modules, list_library
from reodsl.language.reference import MEASURE_WORDS, REWARD_WORDS
from reodsl.language.reward.names import FUNCTIONS, MEASURES
from reodsl.language.reward.selection import CHOICES, PICK_SETTINGS
from reodsl.language.values import DeclaredExperiment, Definition, Record, Value, write_value
from reodsl.lsp.analysis import Analysis, lines_of
from reodsl.lsp.fixes import add_import
from reodsl.lsp.meaning import ARGUMENTS, WORDS, describe_field, words_of
from reodsl.lsp.outline import CONDITION, CursorSite, find_kind, is_word, locate
from reodsl.syntax import tree

Sort = Literal["kind", "setting", "word", "name", "function", "module"]
_MODULE = re.compile(r"\s*from\s+([.\w]*)$")
_NAMES = re.compile(r"\s*from\s+([.\w]+)\s+import\s+(?:[\w\s,]*[\s,])?(\w*)$")
MOST_FILES = 200
_REPEATED = {
    "arm": "An arm for each value of a list, or of several.",
    "stage": "A stage for each value of a list.",
}
_NUMBERS = {
    "track": "A number that moves with training: `track warm = min(1, step / 100 steps)`.",
    "metric": "A number that is logged each step: `metric spread = std(len(z) for z in group)`.",
}


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that may be written at the cursor."""

    label: str
    """The text."""
    sort: Sort
    """The sort of name."""
    span: Span
    """The text that it replaces."""
    detail: str = ""
    """A few words beside it."""
    doc: str = ""
    """Its meaning, in Markdown."""
    best: bool = False
    """True if it fits best, and is listed first."""
    snippet: str = ""
    """The text that an editor with snippets writes instead of the label."""
    import_edit: Edit | None = None
    """The import of its name, if the file lacks it."""

    @property
    def rank(self) -> int:
        """Return the place in the list: 0 for what fits best, 1 for names of the library that fit, 2 for all else."""
        return 0 if self.best else 1 if self.import_edit is not None else 2


def completions(analysis: Analysis, line: int, column: int) -> tuple[Completion, ...]:
    """Return what may be written at a position, each text once; empty inside a comment or a text in quotes.

    Args:
        analysis: The evaluated spec.
        line: The line of the cursor, from 1.
        column: The column of the cursor, from 1.
    """
    lines = lines_of(analysis.text)
    text_before = lines[line - 1][: column - 1] if line <= len(lines) else ""
    bare = re.sub(r'"(?:\\.|[^"\\])*"', "", text_before)
    if '"' in bare or "#" in bare:
        return ()
    if match := _MODULE.match(text_before):
        return _distinct(_modules(analysis, _typed_span(analysis, line, column, match.group(1))))
    if match := _NAMES.match(text_before):
        return _distinct(
            _complete_provided(analysis, match.group(1), _typed_span(analysis, line, column, match.group(2)))
        )
    site = locate(analysis.text, line, column)
    word = site.word
    span = Span(str(analysis.path), line, word.span.column if word else column, line, column)
    return _distinct(_complete_at(analysis, site, span))


def _typed_span(analysis: Analysis, line: int, column: int, typed: str) -> Span:
    """Return the span of the text `typed`, which ends at the cursor."""
    return Span(str(analysis.path), line, column - len(typed), line, column)


def _distinct(offers: Iterable[Completion]) -> tuple[Completion, ...]:
    """Return the completions without later ones of the same label."""
    by_label: dict[str, Completion] = {}
    for offer in offers:
        by_label.setdefault(offer.label, offer)
    return tuple(by_label.values())


def _complete_at(analysis: Analysis, site: CursorSite, span: Span) -> Iterator[Completion]:
    """Yield the completions at the cursor, in any statement that is not an import.

    The cursor may be behind a point, at the start of a declaration, in a formula, at the start of a setting,
    or in a value. In a formula `frame.body` is `reward`, `selection`, `measure` or `condition`; elsewhere it
    is empty. Nothing is yielded where a new name or a param's type is written.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        span: The span that a completion replaces.
    """
    frame, tokens = site.frame, site.tokens_before
    if site.expected is not None and isinstance(site.expected.type, Condition):
        frame.body = CONDITION
    if tokens and tokens[-1].type in ("DOT", "DOTDOT"):
        if not frame.body:
            yield from _complete_member(analysis, site, span)
        return
    if not frame.bracket and not tokens:
        for name in DECLARED:
            yield Completion(
                name, "kind", span, doc=KINDS[name].doc if name in KINDS else "", snippet=write_snippet(name)
            )
        yield Completion("param", "kind", span, doc="A value that `--set` changes.")
        yield Completion("from", "kind", span, doc="An import: `from std.recipes import ppo`.")
        return
    if frame.body:
        if frame.bracket == "{" and not tokens:
            yield from _settings(analysis, site, span)
            for name in (*PICK_SETTINGS, "pick", "drop") if frame.body == "selection" else ():
                yield Completion(name, "setting", span)
            yield Completion(
                "let", "kind", span, doc="Names a value: `let mu = mean(len(z) for z in group)`."
            )
            if frame.body == "reward":
                for name, doc in _NUMBERS.items():
                    yield Completion(name, "kind", span, doc=doc)
        if not tokens or tokens[-1].type not in ("LET", "DENSE", "FOR"):  # else a new name
            yield from _formula(analysis, site, span)
        return
    if frame.bracket == "{" and not tokens and (frame.fields() or frame.kind in KINDS):
        yield from _settings(analysis, site, span)
        return
    if frame.bracket in ("", "{") and tokens and not site.has_sign:
        return  # a new name, or the type of a param
    if frame.bracket == "(" and frame.kind and not any(token.type == "COLON" for token in tokens):
        yield from _arguments(analysis, site, span)
    yield from _values(analysis, site, span)


def write_snippet(kind: str) -> str:
    """Return a declaration of a kind with its required settings, as an editor's snippet.

    The snippet is empty for kinds without required settings, and for kinds that contain other declarations or
    formulas.
    """
    declared_kind = KINDS.get(kind)
    if declared_kind is None or declared_kind.form == "call" or declared_kind.children or kind in FORMULAS:
        return ""
    required = [field for field in declared_kind.fields.values() if field.required and field.example]
    lines = [
        f"  {name.rstrip()} = ${{{i}:{example.strip()}}}"
        for i, (name, _, example) in enumerate((field.example.partition("=") for field in required), 2)
        if example and name.strip().isidentifier()
    ]
    return "\n".join((f"{kind} ${{1:name}} {{", *lines, "  $0", "}")) if lines else ""


def _complete_member(analysis: Analysis, site: CursorSite, span: Span) -> Iterator[Completion]:
    """Yield what may follow a point: a name of the library, a setting, `stages`, or after `reward.` its tracks and metrics.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        span: The span that a completion replaces.
    """
    parts: list[str] = []
    tokens, end = site.tokens_before, len(site.tokens_before)
    while end > 1 and tokens[end - 1].type == "DOT" and is_word(tokens[end - 2]):
        parts.insert(0, tokens[end - 2].text)
        end -= 2
    if parts[:1] == [STD]:
        inside = "".join(f"{folder_name}." for folder_name in parts[1:])
        for name in list_library():
            if name.startswith(inside):
                yield Completion(name.removeprefix(inside).partition(".")[0], "module", span)
        if inside:
            yield from _complete_provided(analysis, ".".join(parts), span)
        return
    main = analysis.program.main
    if main is None or not parts:
        return
    if parts == ["reward"]:
        value = analysis.program.values.get(site.frame.owner)
        reward = value.data.sub("reward") if value is not None and isinstance(value.data, Record) else None
        for item in reward.body.items if isinstance(reward, Definition) else ():
            if isinstance(item, tree.Decl):
                yield Completion(item.name.name, "name", span, item.kind.name, best=True)
        return
    imported = main.imports.get(parts[0])
    owner = (main.key, parts[0]) if imported is None else (imported.module or "", imported.name)
    value = analysis.program.context.memo.get(owner)
    record = value.data if isinstance(value, Value) else None
    for key in parts[1:]:
        record = record.sub(key) if isinstance(record, Record) else None
    if not isinstance(record, Record):
        return
    if isinstance(record, DeclaredExperiment):
        yield Completion(
            "stages", "setting", span, doc="Its stages: `checkpoint(vanilla.stages[4K tokens])`."
        )
    kind = KINDS.get(record.kind)
    for name, field in kind.fields.items() if kind is not None else ():
        if record.at(name) is not None:
            yield Completion(name, "setting", span, doc=describe_field(name, field))


def _settings(analysis: Analysis, site: CursorSite, span: Span) -> Iterator[Completion]:
    """Yield the settings that the block around the cursor lacks, with required settings marked as best.

    Settings of other training methods are left out if the method is known. Declarations that the block may
    contain follow.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        span: The span that a completion replaces.
    """
    kind = KINDS.get(site.frame.kind)
    method, inherited = _find_known_settings(analysis, site)
    for name, field in site.frame.fields().items():
        if name in site.setting_names or (method and field.methods and method not in field.methods):
            continue
        names = inherited | set(site.setting_names)
        missing = field.required and name not in names and names.isdisjoint(field.unless)
        yield Completion(
            name, "setting", span, "required" if missing else "", describe_field(name, field), missing
        )
    for child in kind.children if kind is not None else ():
        yield Completion(child, "kind", span, doc=KINDS[child].doc if child in KINDS else "")
        if child in _REPEATED:
            yield Completion(f"{child}s", "kind", span, doc=_REPEATED[child])


def _find_known_settings(analysis: Analysis, site: CursorSite) -> tuple[str, set[str]]:
    """Return what the evaluation knows of the block around the cursor.

    Returns:
        The training method of the declaration, empty if it is unknown; and the names of the settings of the
        block that have a value, for example from a recipe.
    """
    value = analysis.program.values.get(site.frame.owner)
    if value is None or not isinstance(value.data, Record) or site.frame.path is None:
        return "", set()
    method = value.data.at("method")
    names = {name for name in site.frame.fields() if value.data.at(".".join((*site.frame.path, name)))}
    return write_value(method.value) if method is not None else "", names


def _arguments(analysis: Analysis, site: CursorSite, span: Span) -> Iterator[Completion]:
    """Yield the arguments of the function around the cursor, with required ones that need their names marked as best.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        span: The span that a completion replaces.
    """
    signature = find_kind(site.frame.kind)
    positional = signature.positional if signature is not None else ()
    for name, field in site.frame.fields().items():
        detail, best = "required" if field.required else "", field.required and name not in positional
        yield Completion(name, "setting", span, detail, describe_field(name, field), best)
    for param in analysis.parameters.get(site.frame.kind, {}).values():
        yield Completion(param.name.name, "setting", span, "" if param.default is not None else "required")


def _values(analysis: Analysis, site: CursorSite, span: Span) -> Iterator[Completion]:
    """Yield the values that may follow: words of the setting, names of this file and the library, functions.

    Names of the library are yielded only for the kinds that the setting accepts, with the edit that imports
    them.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        span: The span that a completion replaces.
    """
    field = site.expected
    kinds = list_kinds(field.type) if field is not None else ()
    if field is None and not site.frame.bracket and site.tokens_before:
        declared = KINDS.get(site.tokens_before[0].text)
        kinds = declared.parents if declared is not None else ()
    parameter = analysis.parameters.get(site.frame.kind, {}).get(site.frame.argument or "")
    if parameter is not None and isinstance(parameter.type, tree.TypeName):
        kinds = (parameter.type.name,)
    if field is not None:
        flags = ("true", "false") if isinstance(field.type, Flag) else ()
        for word in (*words_of(field.type), *flags):
            yield Completion(word, "word", span, doc=field.doc, best=True)
    for local in site.locals.values():
        yield Completion(local.name, "name", span, local.kind, best=local.kind in kinds)
    scope = dict(_list_scope(analysis))
    for name, item in scope.items():
        if name != site.frame.owner:
            yield Completion(name, "name", span, item.kind_name, item.doc or "", item.kind_name in kinds)
    for module, kind, name in list_declarations():
        if kind in kinds and name not in scope:
            edit = add_import(analysis, module, name)
            yield Completion(name, "name", span, f"{kind} of {module}", import_edit=edit)
    for function in (*SIGNATURES.values(), *(kind for kind in KINDS.values() if kind.form == "call")):
        best = function.name in (*kinds, *(SCHEDULES if "budgets" in kinds else ()))
        yield Completion(function.name, "function", span, "", function.doc, best)


def _formula(analysis: Analysis, site: CursorSite, span: Span) -> Iterator[Completion]:
    """Yield the names and functions that may follow in the formula of a reward, selection, measure or condition.

    After `for NAME in` only sets of responses are yielded, and after `dense NAME in` only budgets and
    parameters. After an argument with fixed words, such as `under:`, only the words are yielded.

    Args:
        analysis: The evaluated spec.
        site: The cursor with the tokens and brackets around it.
        span: The span that a completion replaces.
    """
    words = [token.type for token in site.tokens_before]
    argument = site.tokens_before[-2].text if words[-1:] == ["COLON"] and len(words) > 1 else ""
    if argument in WORDS:
        yield from (
            Completion(name, "word", span, doc=_word_doc(name), best=True) for name in WORDS[argument]
        )
        return
    body = site.frame.body
    in_track = lines_of(analysis.text)[span.line - 1].lstrip().startswith("track ")
    if words[-1:] == ["IN"]:
        clause = "FOR" if "FOR" in words and "DENSE" not in words[-4:] else "DENSE"
        of_reward = ("batch", "history", "y", "truth", "answer")
        extra = ("steps", "monitor") if in_track else of_reward * (body == "reward")
        for name in ("group", "ref", *extra) if clause == "FOR" else ():
            yield Completion(name, "name", span, "responses", _word_doc(name), best=True)
        if clause == "DENSE":
            for local in site.locals.values():
                if local.kind == "parameter":
                    yield Completion(local.name, "name", span, local.kind, best=True)
            yield from _list_names(analysis, span, ("budgets",))
        return
    for local in site.locals.values():
        # A `let` can use only names above it, and only tracks can use a metric.
        above = (local.span.line, local.span.column) < (span.line, span.column)
        if (above and (in_track or local.kind != "metric")) or local.kind not in ("let", "track", "metric"):
            yield Completion(local.name, "name", span, local.kind, best=True)
    if not words and site.frame.kind in ARGUMENTS:
        name = ARGUMENTS[site.frame.kind]
        yield Completion(name, "setting", span, doc=_word_doc(name))
    names = {"measure": ("group", *MEASURES), CONDITION: ("x", "ref")}.get(body, ("y", "x", "group", "ref"))
    for name in names:
        yield Completion(name, "name", span, "of a response", _word_doc(name), best=True)
    for name in (*FUNCTIONS, *(CHOICES if body == "selection" else ())):
        reading = READINGS.get(name)
        if reading is None or (reading.sampled if body == CONDITION else f"a {body}" in reading.bodies):
            yield Completion(name, "function", span, "", _word_doc(name))
    yield from _list_names(analysis, span, ("param", "budgets"))


def _list_names(analysis: Analysis, span: Span, kinds: tuple[str, ...]) -> Iterator[Completion]:
    """Yield completions of `span` by names in the file's scope, imports included, that are of the given kinds."""
    for name, item in _list_scope(analysis):
        if item.kind_name in kinds:
            yield Completion(name, "name", span, item.kind_name, item.doc or "")


def _word_doc(name: str) -> str:
    """Return the documented uses of a word in rewards and measures as a Markdown list."""
    return "\n".join(
        f"- {code}: {means}"
        for code, means in (*REWARD_WORDS, *MEASURE_WORDS)
        if re.search(rf"\b{name}\b", code)
    )


def _list_scope(analysis: Analysis) -> Iterator[tuple[str, tree.ModuleItem]]:
    """Yield the names that the spec declares or imports, each with its declaration."""
    if (main := analysis.program.main) is None:
        return
    yield from main.items.items()
    loaded = analysis.program.context.modules.loaded
    for name, imported in main.imports.items():
        target = loaded.get(imported.module) if imported.module is not None else None
        if target is not None and imported.name in target.items:
            yield name, target.items[imported.name]


def _modules(analysis: Analysis, span: Span) -> Iterator[Completion]:
    """Yield the modules that a file may import: the library's, and specs in its folder and the folders below."""
    for name in list_library():
        yield Completion(f"{STD}.{name}", "module", span)
    folder = analysis.path.parent
    if folder.is_relative_to(LIBRARY):
        return
    for path in sorted([*folder.glob("*.reo"), *folder.glob("*/*.reo")])[:MOST_FILES]:
        parts = path.relative_to(folder).with_suffix("").parts
        if path != analysis.path and all(word.isidentifier() for word in parts):
            yield Completion("." + ".".join(parts), "module", span)


def _complete_provided(analysis: Analysis, module: str, span: Span) -> Iterator[Completion]:
    """Yield the names that a module declares."""
    for item in _list_items(analysis, module):
        yield Completion(item.name.name, "name", span, item.kind_name, item.doc or "")


def _list_items(analysis: Analysis, module: str) -> tuple[tree.ModuleItem, ...]:
    """Return the declarations of a module that this file could import; empty for an unknown module.

    A text with only the import is parsed, which finds the module as the file itself would.

    Args:
        analysis: The evaluated spec.
        module: The module as an import writes it.
    """
    open_modules = analysis.program.context.modules
    modules = Modules(open_modules.root, open_modules.drafts)
    path = str(analysis.path)
    probe = modules.parsed(path, f"from {module} import x\n", path, std=analysis.path.is_relative_to(LIBRARY))
    imported = probe.imports.get("x") if probe is not None else None
    target = modules.loaded.get(imported.module) if imported is not None and imported.module else None
    return target.module.items if target is not None else ()
