"""What a study compares: arms asked alike, whose tokens are tokens of one vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.language.checks.cases import Case, StageCase, View, root_model, stage_check
from reodsl.language.resolve import arm_suite
from reodsl.language.values import Arm, Compound, Record, Study, Value, items_of, plain, walk


def content(record: Record | None) -> object:
    """Return a record's settings without names and places; two records that mean the same have equal ones."""
    if record is None:
        return None

    def of(value: object) -> object:
        if isinstance(value, Record):
            return content(value)
        return tuple(of(each) for each in value) if isinstance(value, tuple) else value

    settings = tuple(sorted((path, of(plain(slot.value))) for path, slot in walk(record)))
    parts = tuple(content(each) for each in record.parts) if isinstance(record, Compound) else None
    return (record.kind, settings, parts)


def key(suite: Record) -> object:
    """Return a key that is equal for suites of the same settings, but for those that the price alone reads."""
    fields = {name: slot for name, slot in suite.fields.items() if name != "expected_length"}
    return repr(content(replace(suite, fields=fields)))


def difference(one: Record, two: Record, *, but: Sequence[str] = ()) -> str:
    """Return the settings in which two suites differ, in words; empty where they differ in `but` alone."""
    names = [name for name in one.fields if repr(_field(one, name)) != repr(_field(two, name))]
    return ", ".join(f"`{name}`" for name in names if name not in (*but, "expected_length"))


def _field(record: Record, name: str) -> object:
    value = record.get(name)
    data = plain(value) if value is not None else None
    if isinstance(data, tuple):
        return tuple(content(each) if isinstance(each, Record) else each for each in data)
    return content(data) if isinstance(data, Record) else data


def one_suite(study: Study, arm: Arm, wanted: Record) -> str:
    """Return what to write so that an arm is evaluated on the same suite as others."""
    shared = study.sub("eval")
    if shared is not None and content(shared) == content(wanted):
        return f"take `eval` out of `{arm.name}`: it has the study's suite then, `{shared.name}`"
    if shared is not None:
        return f"give `{arm.name}` the same suite: `eval = {wanted.name}`"
    return f"give `{arm.name}` the same suite: `eval = {wanted.name}`, or set one in the study for all arms"


def check_rows(study: Study, table: Record | None, arms: Sequence[Arm]) -> Iterator[Diagnostic]:
    """Report W0605: arms in one table that were evaluated differently; E0601 where it compares them question by question.

    Ways to ask may differ: they are what some studies are about. Without a table it is the one that every report has.
    """
    suites = [(arm, suite) for arm in arms if (suite := arm_suite(study, arm)) is not None]
    rows = items_of(table, "rows")
    spans = {each.data.name: each.span for each in rows if isinstance(each.data, Record)}
    for arm, suite in suites[1:]:
        first, wanted = suites[0]
        names = "" if suite is wanted else difference(suite, wanted, but=("wording",))
        if not names:
            continue
        balanced = table is not None and table.data("subset") == "balanced"
        yield (error if balanced else warning)(
            "E0601" if balanced else "W0605",
            f"the {f'table `{table.name}`' if table is not None else 'report'} compares arms that are evaluated differently",
            spans.get(arm.name, arm.span),
            f"on `{suite.name}`, which differs in {names}",
            others=[Label(spans.get(first.name, first.span), f"on `{wanted.name}`")],
            help=f"{one_suite(study, arm, wanted)}; or show them in {'two' if table is not None else 'different'} tables",
        )
        return


def check_shared(study: Study, arms: Sequence[Arm]) -> Iterator[Diagnostic]:
    """Report W0607: a suite of the study that no arm is evaluated on, for each has its own."""
    slot, shared = study.fields.get("eval"), study.sub("eval")
    if slot is None or slot.span is None or shared is None or not arms:
        return
    suites = [arm_suite(study, arm) for arm in arms]
    if any(suite is shared for suite in suites):
        return
    wanted = key(shared)
    if not any(suite is not None and key(suite) == wanted for suite in suites):
        yield warning(
            "W0607",
            f"no arm is evaluated on `{shared.name}`: each has a suite of its own, which goes before the study's",
            slot.value.span,
            "changes nothing",
            help=f"take it out, or give it to the arms: `arm {arms[0].name} = … {{ eval = {shared.name} }}`",
        )


def check_scored(study: Study, arms: Sequence[Arm], members: Sequence[Arm]) -> Iterator[Diagnostic]:
    """Report E0601: an arm scored against a frontier of arms that were evaluated otherwise, ways to ask apart."""
    first = next((arm for arm in members if arm_suite(study, arm) is not None), None)
    wanted = arm_suite(study, first) if first is not None else None
    inside = {arm.name for arm in members}
    for arm in arms if wanted is not None and first is not None else ():
        suite = arm_suite(study, arm)
        if suite is None or arm.name in inside or wanted is None or first is None:
            continue
        names = "" if suite is wanted else difference(suite, wanted, but=("wording",))
        if names:
            yield error(
                "E0601",
                f"`{arm.name}` is scored against a frontier of arms that are evaluated differently",
                arm.span,
                f"on `{suite.name}`, which differs in {names}",
                others=[Label(first.span, f"on `{wanted.name}`")],
                help=one_suite(study, arm, wanted),
            )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a model's tokens are known by: its word list, or how many there are."""

    model: Record
    known: object


def vocabulary(record: Record | None) -> Vocabulary | None:
    """Return the vocabulary behind an arm or a checkpoint; None where the spec does not have it."""
    model = root_model(record)
    source = model.sub("source") if model is not None else None
    tokenizer = source.sub("tokenizer") if source is not None else None
    if model is None:
        return None
    if tokenizer is not None:
        words = (*tokenizer.data("words"), tokenizer.data("eos"), tokenizer.data("pad"))
        return Vocabulary(model, tuple(sorted(set(words))))
    dimensions = model.sub("dimensions")
    return Vocabulary(model, dimensions.data("vocabulary")) if dimensions is not None else None


@stage_check
def check_pool(case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """Report W0606: a pool's responses may have words that the model that is trained on them does not know."""
    if stage.pool is None:
        return
    theirs, ours = vocabulary(stage.pool.sub("of")), vocabulary(case.record)
    if theirs is None or ours is None or not isinstance(theirs.known, tuple):
        return
    lacking = sorted({*theirs.known} - {*ours.known}) if isinstance(ours.known, tuple) else []
    if lacking:
        yield View(stage.pool)["of"].warning(
            "W0606",
            "the pool has responses of a model with another vocabulary",
            f"`{theirs.model.name}` knows `{lacking[0]}`{f' and {len(lacking) - 1} more' if lacking[1:] else ''}",
            Label(ours.model.span, f"`{ours.model.name}` does not"),
            help="take the pool from a checkpoint of the model that is trained, or train one with these words",
            notes=["a response with such a word stops the training"],
        )


def check_vocabularies(
    what: str, arms: Sequence[Value], model: Record | None, at: Span
) -> Iterator[Diagnostic]:
    """Report W0606: budgets shared by arms whose tokens are of different vocabularies.

    `model` is the arm that the budgets are for, where there is one; else arms are compared with the first.
    """
    vocabularies = [(each.span, vocabulary(each.data)) for each in arms if isinstance(each.data, Record)]
    first = (
        (at, vocabulary(model)) if model is not None else (vocabularies[0] if vocabularies else (at, None))
    )
    for span, other in vocabularies:
        wanted = first[1]
        if other is None or wanted is None or other.known == wanted.known:
            continue
        yield warning(
            "W0606",
            f"{what} has arms with different tokenizers",
            span,
            f"tokens of `{other.model.name}`",
            others=[Label(first[0], f"tokens of `{wanted.model.name}`")],
            notes=["a budget in tokens may mean another amount of text in another vocabulary"],
            help="keep to models with one tokenizer",
        )
        return
