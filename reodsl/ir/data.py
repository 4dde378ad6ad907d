"""Data: questions with reference answers, from a generated task, a file, a hub or a package."""

from __future__ import annotations

import unicodedata
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from reodsl.diagnostics.model import quote
from reodsl.ir.base import IR, locate
from reodsl.ir.model import HubSource
from reodsl.ir.names import DATA_FILE, OWN_CODE, PACKAGE, PART
from reodsl.ir.setting import (
    COUNT,
    DATA_SOURCES,
    NATURAL,
    READER,
    WORDS,
    AnyOf,
    Kind,
    ListOf,
    Num,
    OfKind,
    OneOf,
    Text,
    kind,
    setting,
    settings_of,
)
from reodsl.ir.task import FoldTask, FoldTraces


def normal_question(question: str) -> str:
    """Return a normal form of a question, by which two questions count as equal.

    It is Unicode NFKC, case-folded, with each run of white space as one space.
    """
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


@kind("columns", form="call")
class Columns(IR):
    """The columns of a source that the questions table reads; `meta` columns keep their names."""

    question: str = setting(Text(), "the question", default="question")
    answer: str = setting(Text(), "the reference answer", default="answer")
    trace: str | None = setting(Text(), "a worked solution", default=None)
    id: str | None = setting(Text(), "a name for the question", default=None)
    meta: tuple[str, ...] = setting(
        ListOf(Text(), lone=True),
        "further columns, for verifiers and rewards",
        'meta: ["entry_point"]',
        default=(),
        later=True,
    )


@kind("python", form="call", positional=("function",))
class Python(IR):
    """A function of yours: in a Python file in the spec's folder, or in an installed package that offers it.

    It is given `batch` answers at a time, each time in a fresh copy of its process. No result is made anew for what
    `incidental` names: a batch that takes more is an error.
    """

    incidental: ClassVar[frozenset[str]] = frozenset({"seconds", "memory"})
    kind: Literal["python"] = "python"
    function: str = setting(
        Text(form=OWN_CODE),
        "`FILE.py:FUNCTION`, or `MODULE:FUNCTION` of an entry point in the group `reodsl.python`",
        'python("checks.py:check")',
    )
    batch: int = setting(Num(integer=True, low=1, high=4096), "answers at a time", default=64)
    seconds: float = setting(
        Num("seconds", low=0, high=86400, above=True), "processor time that a batch may take", default=10.0
    )
    memory: float = setting(
        Num("GiB", low=0, high=1024, above=True), "that its process may take", default=2.0
    )


@kind("tests", form="call")
class Tests(IR):
    """Answers are programs, run against the tests that are their question's `answer`; all have to pass.

    One that takes longer or more memory is wrong.
    """

    kind: Literal["tests"] = "tests"
    seconds: float = setting(
        Num("seconds", low=0, high=3600, above=True),
        "processor time that an answer may take, with all its tests",
        default=10.0,
    )
    memory: float = setting(
        Num("GiB", low=0, high=1024, above=True), "that its process may take", default=1.0
    )


@kind("generated", form="call", positional=("task",))
class TaskData(IR):
    """Questions drawn from a task, or made by a function of yours: `count` distinct questions.

    With `traces`, each comes with a worked solution and questions may repeat. `split` keeps training and
    evaluation apart: a question belongs to `train` or `held_out` by a hash of its content, whatever the task's
    words for it are, one in five held out.
    """

    kind: Literal["generated"] = "generated"
    task: FoldTask | Python = setting(
        OfKind(("task", "python"), 'a task, or `python("FILE.py:FUNCTION")`'),
        "what to draw from: a task, or a function of yours",
        "generated(chain, count: 4096, seed: 1)",
    )
    count: int = setting(COUNT, "how many", "count: 4096")
    seed: int = setting(
        NATURAL, "the seed that draws the questions; the run's seed does not change them", "seed: 1"
    )
    split: Literal["train", "held_out"] = setting(WORDS, "which split of the questions", default="train")
    traces: FoldTraces | None = setting(
        OfKind(("traces",)), "how the worked solutions are written", default=None
    )


@kind("file", form="call", positional=("path",))
class File(IR):
    """A Parquet, JSONL, JSON or CSV file; a relative path starts at the spec's folder."""

    kind: Literal["file"] = "file"
    path: str = setting(Text(form=DATA_FILE), "where it is", 'file("questions.jsonl")')
    columns: Columns = setting(
        OfKind(("columns",)), "which columns to read", default=Columns.model_construct()
    )


class HubData(HubSource):
    """A data set of a hub by name, found in the local cache or a local mirror."""

    name: str | None = setting(Text(form=PART), "a data set's configuration", default=None)
    split: str = setting(Text(form=PART), "a data set's split", default="train", required=False)
    columns: Columns = setting(
        OfKind(("columns",)), "a data set's columns", default=Columns.model_construct()
    )


HUB = Kind("hub", HubSource.__doc__ or "", settings_of(HubData), "call", positional=("repo",))


@kind("package", form="call", positional=("package",))
class PackageData(IR):
    """Questions that a Python package makes: `count` of `task` of `package`, drawn by `seed`.

    `split` keeps training and evaluation apart as in `generated(…)`; `all` does not. With `traces`, chains of sums and
    differences come with worked solutions.
    """

    kind: Literal["package"] = "package"
    package: str = setting(
        Text(form=PACKAGE), "its name", 'package("reasoning-gym", task: "chain_sum", count: 64, seed: 1)'
    )
    task: str = setting(Text(), "the questions' task", 'task: "chain_sum"')
    count: int = setting(COUNT, "how many questions", "count: 64")
    seed: int = setting(NATURAL, "draws them", "seed: 1")
    options: tuple[str, ...] = setting(
        ListOf(Text()),
        "settings of the task, with values in JSON",
        'options: ["max_terms=4", "operators=[]"]',
        default=(),
        required=False,
    )
    split: Literal["all", "train", "held_out"] = setting(WORDS, "which split of the questions", default="all")
    traces: FoldTraces | None = setting(
        OfKind(("traces",)), "how worked solutions of sums and differences are written", default=None
    )


DataSource = Annotated[TaskData | File | HubData | PackageData, Field(discriminator="kind")]


@kind("marks", form="call")
class Marks(IR):
    """Text around a question that is no part of the question: marks of a chat, or an instruction that models get anyway."""

    before: str = setting(
        Text(),
        "what each question begins with; surrounding white space is ignored",
        default="",
        required=False,
    )
    after: str = setting(
        Text(), "what each question ends with; surrounding white space is ignored", default="", required=False
    )


class LastBox(IR):
    r"""An answer is the content of the last `\boxed{…}` whose braces are balanced."""

    kind: Literal["boxed"] = "boxed"


class LastNumber(IR):
    """An answer is the last number."""

    kind: Literal["last_number"] = "last_number"


@kind("after", form="call", positional=("marker",))
class After(IR):
    """Reads the line after the last marker as the answer."""

    kind: Literal["after"] = "after"
    marker: str = setting(Text(), "the text before the answer", 'after("####")')


@kind("regex", form="call", positional=("pattern",))
class Regex(IR):
    """Reads the first group of the last match as the answer, or the entire match if there is no group."""

    kind: Literal["regex"] = "regex"
    pattern: str = setting(Text(), "a regular expression of Rust's dialect", 'regex("Answer: *(.+)")')


class Code(IR):
    """An answer is the content of the last block of code between two lines that start with ``` (a fence)."""

    kind: Literal["code"] = "code"


class FullText(IR):
    """An answer is all of the response."""

    kind: Literal["whole"] = "whole"


AnswerReader = Annotated[LastBox | LastNumber | After | Regex | Code | FullText, Field(discriminator="kind")]


def reader_words(reader: AnswerReader) -> str:
    """Return a reader, a rule that finds the answer in a response, as a spec writes it: `after("####")`."""
    match reader:
        case After(marker=marker):
            return f"after({quote(marker)})"
        case Regex(pattern=pattern):
            return f"regex({quote(pattern)})"
    return reader.kind


NamedVerifier = Literal["math", "exact", "package"]
"""The verifiers that the language has a word for."""
VerifierSetting = NamedVerifier | Python | Tests


class Chance(IR):
    """Grades by `of`, and then counts half of all answers as right, whatever they say.

    Rehearsals compare answers so: an untrained model is never right, and nothing would be selected or learnt.
    """

    kind: Literal["chance"] = "chance"
    of: VerifierSetting


Comparison = VerifierSetting | Chance
"""The ways to compare answers: a verifier of ours by its name, tests of programs, or own code; in a rehearsal by chance."""


def verifier_words(verifier: Comparison) -> str:
    """Return a short description of a verifier, the rule that compares answers: its name, function or limits."""
    if isinstance(verifier, Chance):
        return f"{verifier_words(verifier.of)}, then by chance"
    if isinstance(verifier, Tests):
        return f"tests of {verifier.seconds:g} s and {verifier.memory:g} GiB"
    return verifier.function if isinstance(verifier, Python) else verifier


class Grading(IR):
    """The part of `Data` that graded results depend on."""

    later = frozenset({"thinking"})
    verifier: Comparison = "math"
    answer: tuple[AnswerReader, ...] = (LastBox.model_construct(),)
    tolerance: float = 1e-4
    thinking: Literal["read", "skip"] = "read"

    @property
    def words(self) -> str:
        """Return how answers are found in responses, as a spec writes the rules, in their order."""
        readers = ", then ".join(reader_words(reader) for reader in self.answer)
        return readers if self.thinking == "read" else f"{readers}, after thinking"


@kind("data", parents=("data",))
class Data(IR):
    """Questions with reference answers: their sources, how responses are graded, and what happens to equal questions.

    `take`, evenly spaced, are all that a rehearsal keeps.
    """

    presentation = frozenset({"name"})
    later = frozenset({"take"})
    name: str
    sources: tuple[DataSource, ...] = setting(
        ListOf(OfKind(DATA_SOURCES, "`generated(…)`, `file(…)`, `hub(…)` or `package(…)`"), lone=True),
        "a source, or a list of sources that are read in order",
        'source = file("questions.jsonl")',
        spelled="source",
    )
    verifier: Comparison = setting(
        AnyOf(
            (
                OneOf(get_args(NamedVerifier)),
                OfKind(("python", "tests"), '`python("FILE.py:FUNCTION")` or `tests()`'),
            )
        ),
        "how answers are compared; `python(…)` is a function of yours, `tests()` runs programs",
        'verifier = python("checks.py:check")',
        default="math",
    )
    answer: tuple[AnswerReader, ...] = setting(
        ListOf(READER, lone=True, most=8),
        "where the answer of a response is read; in a list, the first reader that finds an answer; "
        "for `tests()` it is `code`",
        'answer = [boxed, after("####")]',
        default=(LastBox.model_construct(),),
        in_spec="boxed",
    )
    tolerance: float = setting(
        Num(low=0, high=1, below=True, example="0.0001"),
        "how much a rounded number may differ, as a share of the reference; an integer reference is "
        "compared exactly",
        default=0.0001,
    )
    thinking: Literal["read", "skip"] = setting(
        WORDS,
        "whether an answer inside the thinking counts; `skip` reads only the text after the last "
        "closing mark, so a response whose thinking was cut has no answer",
        default="read",
        later=True,
    )
    duplicates: Literal["error", "drop"] = setting(WORDS, "what to do with equal questions", default="error")
    strip: tuple[Marks, ...] = setting(
        ListOf(OfKind(("marks",)), lone=True),
        "marks that are removed from the beginning and end of each question, in order",
        'strip = marks(before: "USER:", after: "ASSISTANT:")',
        default=(),
        required=False,
        later=True,
    )
    questions: int | None = setting(COUNT, "the number of questions, for the price alone", default=None)
    take: int | None = None  # how many questions are kept; None keeps all

    @property
    def grading(self) -> Grading:
        """Return the settings on which graded results of these questions depend."""
        settings = {name: getattr(self, name) for name in Grading.model_fields}
        return locate(Grading(**settings), self.given_at)
