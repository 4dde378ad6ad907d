"""Data: questions with reference answers, from a generated task, a file, a hub or a package."""

from __future__ import annotations

import json
import unicodedata
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_serializer

from reodsl.ir.base import IR, canonical, named, without_unsaid
from reodsl.ir.names import ADDRESS, OWN_CODE, PACKAGE, PART, REPO, REVISION, VARIABLE
from reodsl.ir.settings import data as data_settings
from reodsl.ir.task import FoldTask, FoldTraces, Programs


def normal_question(question: str) -> str:
    """The text by which two questions count as the same: Unicode NFKC, case folded, runs of space made one."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


class Columns(data_settings.Columns, IR):
    """Which columns of the source hold what the questions table needs; those of `meta` keep their names."""

    later = frozenset({"meta"})
    _dump = model_serializer(mode="wrap")(without_unsaid)


class Python(data_settings.Python, IR):
    """A function of the user's: `FILE.py:FUNCTION` in the spec's folder, or `MODULE:FUNCTION` that a package offers.

    It is given `batch` answers at a time, each time in a fresh copy of its process, with `seconds` of processor time and
    `memory` GiB. No result is made anew for these two, which `incidental` names: a batch that takes more is an error.
    """

    incidental: ClassVar[frozenset[str]] = frozenset({"seconds", "memory"})
    kind: Literal["python"] = "python"
    function: Annotated[str, named(OWN_CODE)]


class Tools(data_settings.Tools, IR):
    """Tools that a response may call, by the environment that has them: `turns` of the model at most.

    What tools say between two turns has at most `reply` tokens. None of it counts as a response's tokens.
    """

    code: Python


class Tests(data_settings.Tests, IR):
    """Answers are programs: right where all tests of the question pass, which its reference answer holds.

    An answer has `seconds` of processor time and `memory` GiB. One that takes more is wrong.
    """

    kind: Literal["tests"] = "tests"


class Judge(data_settings.Judge, IR):
    """A model behind an address says whether an answer is right: by `prompt`, the question, the reference and `meta`.

    It may write `max_tokens` for an answer. No result depends on what `incidental` names: where it is, how it is asked,
    and what ends the run. `unclear` is one of these, as a run that it ends can go on; what it counted as wrong is told
    apart in the result.
    """

    incidental: ClassVar[frozenset[str]] = frozenset(
        {"address", "key", "unclear", "seconds", "at_once", "retries", "most_tokens", "expected"}
    )
    kind: Literal["judge"] = "judge"
    address: Annotated[str, named(ADDRESS)]
    key: Annotated[str, named(VARIABLE)] | None = None


class Generated(data_settings.Generated, IR):
    """`count` distinct questions of a task, or of a function of the user's; `seed` draws them, apart from the run's seed.

    With `traces`, each comes with a worked solution and questions may repeat. `split` keeps training and
    evaluation apart: a question belongs to `train` or `held_out` by a hash of what is asked, whatever the task's
    words for it are, one in five held out.
    """

    kind: Literal["generated"] = "generated"
    task: FoldTask | Programs | Python
    traces: FoldTraces | None = None


class File(data_settings.File, IR):
    """A local Parquet, JSONL, JSON or CSV file; a relative path starts at the spec's folder."""

    kind: Literal["file"] = "file"
    columns: Columns = Columns()


class HubData(IR):
    """A data set of a hub by name, found in the local cache or a local mirror."""

    kind: Literal["hub"] = "hub"
    repo: Annotated[str, named(REPO)]
    name: Annotated[str, named(PART)] | None = None
    split: Annotated[str, named(PART)] = "train"
    revision: Annotated[str, named(REVISION)] | None = None
    columns: Columns = Columns()


class PackageData(IR):
    """Questions that a Python package makes: `count` of `task` of `package`, drawn by `seed`.

    `options` are settings of the task, each a text `name=value`. `split` keeps training and evaluation apart as
    `Generated` does; `all` does not. With `traces`, chains of sums and differences come with worked solutions.
    """

    kind: Literal["package"] = "package"
    package: Annotated[str, named(PACKAGE)]
    task: str
    count: int
    seed: int
    options: tuple[str, ...] = ()
    split: Literal["all", "train", "held_out"] = "all"
    traces: FoldTraces | None = None


DataSource = Annotated[Generated | File | HubData | PackageData, Field(discriminator="kind")]


class Marks(IR):
    """What stands around a question in its source and is not part of it: `before` at its beginning, `after` at its end.

    White space around either does not count.
    """

    before: str = ""
    after: str = ""


class Boxed(IR):
    r"""An answer is the content of the last `\boxed{…}` whose braces are balanced."""

    kind: Literal["boxed"] = "boxed"


class LastNumber(IR):
    """An answer is the number that stands last."""

    kind: Literal["last_number"] = "last_number"


class After(data_settings.After, IR):
    """An answer is the line after the last `marker`."""

    kind: Literal["after"] = "after"


class Regex(data_settings.Regex, IR):
    """An answer is the first group of the last match of `pattern`, or the whole match where it has no group."""

    kind: Literal["regex"] = "regex"


class Code(IR):
    """An answer is the content of the last block of code between two lines that start with ``` (a fence)."""

    kind: Literal["code"] = "code"


class Whole(IR):
    """An answer is all of the response."""

    kind: Literal["whole"] = "whole"


AnswerReader = Annotated[Boxed | LastNumber | After | Regex | Code | Whole, Field(discriminator="kind")]


def reader_words(reader: AnswerReader) -> str:
    """A way to read answers, as a spec has it."""
    match reader:
        case After(marker=marker):
            return f"after({json.dumps(marker, ensure_ascii=False)})"
        case Regex(pattern=pattern):
            return f"regex({json.dumps(pattern, ensure_ascii=False)})"
    return reader.kind


Verifying = Literal["math", "exact", "package"] | Python | Tests | Judge


class Chance(IR):
    """Grades by `of`, and then counts half of all answers as right, whatever they say.

    Rehearsals compare answers so: an untrained model is never right, and nothing would be selected or learnt.
    """

    kind: Literal["chance"] = "chance"
    of: Verifying


Comparison = Verifying | Chance
"""How answers are compared: a verifier that is there, by its name, tests of programs, the user's own, or a model as a judge;
in a rehearsal by chance."""


def verifier_words(verifier: Comparison) -> str:
    """A verifier for people: its name, or its function's."""
    if isinstance(verifier, Chance):
        return f"{verifier_words(verifier.of)}, then by chance"
    if isinstance(verifier, Tests):
        return f"tests of {verifier.seconds:g} s and {verifier.memory:g} GiB"
    if isinstance(verifier, Judge):
        return f"the judge {verifier.model}"
    return verifier.function if isinstance(verifier, Python) else verifier


class Grading(IR):
    """How responses are graded: where an answer is read, of several ways the first that finds one; how it is compared
    with the reference; and how far rounded numbers may be apart, as a share of the reference. `tools` are those that
    responses may call before they are graded. With `thinking` at `skip` no answer is read in a model's thinking.
    """

    later = frozenset({"tools", "thinking"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    verifier: Comparison = "math"
    answer: tuple[AnswerReader, ...] = (Boxed(),)
    tolerance: float = 1e-4
    tools: Tools | None = None
    thinking: Literal["read", "skip"] = "read"

    @property
    def words(self) -> str:
        """Where answers are read, as a spec has it."""
        where = ", then ".join(reader_words(reader) for reader in self.answer)
        return where if self.thinking == "read" else f"{where}, after thinking"

    @property
    def essence(self) -> Any:
        """Its canonical form without what no verdict depends on: where a judge is, and limits that end a run."""
        form = canonical(self)
        if isinstance(self.verifier, (Judge, Python)):
            left_out = self.verifier.incidental
            form["verifier"] = {name: each for name, each in form["verifier"].items() if name not in left_out}
        if self.tools is not None:
            code = form["tools"]["code"]
            form["tools"]["code"] = {
                name: each for name, each in code.items() if name not in Python.incidental
            }
        return form


class Data(data_settings.Data, IR):
    """A questions table: its sources one after another, how responses are graded, what to do with duplicates.

    `answer`, `tolerance`, `tools` and `thinking` are those of `Grading`.

    `strip` takes marks off the questions, one after another, where a question has them. `questions`, how many there are,
    is for pricing alone, before the sources are at hand. `take`, evenly spaced, are all that a rehearsal keeps.
    """

    presentation = frozenset({"name"})
    later = frozenset({"strip", "take", "tools"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    name: str
    sources: tuple[DataSource, ...]
    verifier: Annotated[Comparison, Field(description="how answers are compared")] = "math"
    answer: tuple[AnswerReader, ...] = (Boxed(),)
    strip: tuple[Marks, ...] = ()
    take: int | None = None
    tools: Tools | None = None

    @property
    def grading(self) -> Grading:
        """How responses to these questions are graded."""
        return Grading(**{name: getattr(self, name) for name in Grading.model_fields})
