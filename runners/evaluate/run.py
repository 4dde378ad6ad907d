"""Runners of `evaluate` and `sample` tasks: graded responses, curves and a summary."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.graph.job import Job, Progress, Resources
from reodsl.ir.data import Grading, Tools
from reodsl.ir.model import Forcing, Model
from reodsl.ir.reward import cuts_below
from reodsl.ir.study import Suite
from reodsl.ir.training import Sampling
from runners.conversations import Talk, Turn, converse, force, open_talk, require_tools
from runners.draws import met
from runners.engine.protocol import Ahead, Forced, Response
from runners.engine.versions import PLACE
from runners.evaluate.arrivals import Arrivals, Key, Tables
from runners.evaluate.chunks import Chunks
from runners.evaluate.summary import curves, summary
from runners.evaluate.tables import Sampled, Verifiers, graded_forced, graded_samples, kind_of
from runners.models.folder import load_tokenizer
from runners.models.tokenizer import require_written
from runners.prompts import continuation_tokens, prompt_tokens
from runners.rollout.generator import Question, Reader, open_reader
from runners.seeds import purpose
from runners.verify import open_verifier

CHUNK = 256
"""Responses generated and graded at a time: what is in memory, and what an interruption can cost. Part of the result
only as far as arithmetic differs between batches, which is why no machine chooses its own."""

PER_SERVER = 4
"""Chunks that a server is asked at once: four times what it decodes together, so that its last responses, which leave it
half idle, are a small part. An interruption costs so much."""

EXAMPLE_QUESTIONS = 8
"""Questions of each benchmark whose first sample is kept with its cuts, for reading."""


Arrived = Callable[[Sampled], None]
"""Hears of a response that has ended while others still run, from any thread."""


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do: `ask` gives `samples` responses to each question, `graded` the tables of some responses.

    `room` is the most tokens of response and answer, which the text `forcing` comes between.
    """

    ask: Callable[[Reader, Sequence[Question], Arrived], list[Sampled]]
    graded: Callable[[Reader, Sequence[Sampled]], Tables]
    samples: int
    room: int
    forcing: str = ""


def evaluate(job: Job) -> None:
    """Samples responses to every benchmark, forces answers over the grid, grades, and writes what ARTIFACTS.md lists."""
    suite = Suite.model_validate(job.task.payload["suite"])
    model = Model.model_validate(job.task.payload["model"])
    seed = evaluation_seed(job.task.payload)
    gradings = {benchmark.name: benchmark.data.grading for benchmark in suite.benchmarks}
    questions = [q for name in gradings for q in once(read_questions(job.inputs[f"data:{name}"], name))]
    shown = frozenset(
        (name, q.id)
        for name in gradings
        for q in [q for q in questions if q.benchmark == name][:EXAMPLE_QUESTIONS]
    )
    parts = chunked(questions, suite.samples)
    chunks = Chunks(job.work / f"chunks-{CHUNK}")
    for name, grading in gradings.items():
        require_tools(grading, (question.meta for question in questions if question.benchmark == name))
    with verifiers_of(gradings.values(), job) as verifiers, _Talks(gradings, job, suite.forcing) as talks:

        def ask(reader: Reader, part: Sequence[Question], arrived: Arrived) -> list[Sampled]:
            return respond(reader, part, suite.rollout, suite.samples, seed, suite, talks, arrived)

        def graded(reader: Reader, sampled: Sequence[Sampled]) -> Tables:
            whole = graded_samples(sampled, reader, verifiers, gradings)
            forced, examples = graded_forced(
                sampled, whole, suite.forcing, suite.grid, reader, verifiers, gradings, shown
            )
            return {"samples": whole, "forced": forced, "examples": examples}

        forcing = suite.forcing
        room = suite.rollout.max_tokens + (forcing.answer_tokens if forcing is not None else 0)
        text = forcing.text if forcing is not None else ""
        work_through(job, model, chunks, parts, Work(ask, graded, suite.samples, room, text))
    for table in ("samples", "forced", "examples"):
        chunks.join(len(parts), table, job.out / f"{table}.parquet")
    write_json(job.out / "curves.json", curves(job.out / "forced.parquet", tuple(gradings)))
    write_json(
        job.out / "summary.json",
        summary(job.out / "samples.parquet", job.out / "forced.parquet", tuple(gradings)),
    )


def evaluation_seed(payload: Mapping[str, Any]) -> int:
    """The seed of an evaluation's draws: the suite's, and another for each seed of the study that has its own checkpoint."""
    seed = int(payload["seed"])
    replicate = payload.get("replicate")
    return seed if replicate is None else purpose(seed, "replicate", int(replicate))


def sample(job: Job) -> None:
    """Samples graded responses to a data set's questions, each asked once however many worked solutions it has."""
    payload = job.task.payload
    model = Model.model_validate(payload["model"])
    rollout = Sampling.model_validate(payload["rollout"])
    samples, seed = int(payload["samples"]), int(payload["seed"])
    gradings = {"": Grading.model_validate(payload["grading"])}
    questions = {question.id: question for question in read_questions(job.inputs["data"], "")}
    if "met" in payload:
        questions = {name: questions[name] for name in met_by(job, model)}
    parts = chunked(list(questions.values()), samples)
    chunks = Chunks(job.work / f"chunks-{CHUNK}")
    require_tools(gradings[""], (question.meta for question in questions.values()))
    with verifiers_of(gradings.values(), job) as verifiers, _Talks(gradings, job) as talks:

        def ask(reader: Reader, part: Sequence[Question], arrived: Arrived) -> list[Sampled]:
            return respond(reader, part, rollout, samples, seed, talks=talks, arrived=arrived)

        def graded(reader: Reader, sampled: Sequence[Sampled]) -> Tables:
            return {"samples": graded_samples(sampled, reader, verifiers, gradings).drop("benchmark")}

        work_through(job, model, chunks, parts, Work(ask, graded, samples, rollout.max_tokens))
    chunks.join(len(parts), "samples", job.out / "samples.parquet")


def met_by(job: Job, model: Model) -> list[str]:
    """The ids of the questions that the steps of a training meet, which `met` in the payload is about, each once."""
    rule = job.task.payload["met"]
    tokenizer = load_tokenizer(job.inputs["start"] / "checkpoint")
    table = pl.read_parquet(job.inputs["data"] / "questions.parquet", glob=False)
    metas = table["meta"].to_list() if "meta" in table.columns else ()
    prompts = prompt_tokens(model.prompt, tokenizer, table["question"].to_list(), metas)
    # What is too long for the training's prompts is drawn by no step.
    ids = [
        str(name)
        for name, prompt in zip(table["id"], prompts, strict=True)
        if len(prompt) <= int(rule["max_prompt"])
    ]
    seed = purpose(int(rule["seed"]), "stage", int(rule["index"]))
    return list(dict.fromkeys(ids[at] for at in met(seed, rule["draws"], rule["prompts"], len(ids))))


def read_questions(folder: Path, benchmark: str) -> list[Question]:
    """The questions of a `data` artifact, in their order. A Problem (E0703) where there are none."""
    frame = pl.read_parquet(folder / "questions.parquet", glob=False)
    if not frame.height:
        raise problem(
            "E0703", "the data has no questions", where=benchmark, help="give a source with rows in it"
        )
    meta = frame["meta"] if "meta" in frame.columns else pl.Series([None] * frame.height, dtype=pl.String)
    rows = zip(frame["id"], frame["question"], frame["answer"], meta, strict=True)
    return [Question(benchmark, str(i), str(text), str(gold), str(m or "")) for i, text, gold, m in rows]


def once(questions: list[Question]) -> list[Question]:
    """A benchmark's questions. A Problem (E0705) where one is there again: curves would count rows, scores the question."""
    more = len(questions) - len({question.id for question in questions})
    if more:
        raise problem(
            "E0705",
            f"{more} of {len(questions)} questions of a benchmark are duplicates",
            where=questions[0].benchmark,
            help="evaluate on questions without worked solutions: with them one may stand in several rows",
        )
    return questions


def chunked(questions: Sequence[Question], samples: int) -> list[list[Question]]:
    """Questions in order, as many at a time as make `CHUNK` responses; a question's samples are never parted."""
    size = max(1, CHUNK // samples)
    return [list(questions[at : at + size]) for at in range(0, len(questions), size)]


def respond(
    reader: Reader,
    part: Sequence[Question],
    rollout: Sampling,
    samples: int,
    seed: int,
    suite: Suite | None = None,
    talks: _Talks | None = None,
    arrived: Arrived = lambda _: None,
) -> list[Sampled]:
    """Responses to some questions; with a suite that forces, answers at each budget of its grid below the end.

    `talks` are the tools that responses may call. `arrived` hears of those that an engine tells of as they end.
    """
    forcing = suite.forcing if suite is not None else None
    if forcing is not None:
        require_written(reader.tokenizer, forcing.text, "the text that forces an answer")
    grid = suite.grid if suite is not None and forcing is not None else ()
    owners = [(question, number) for question in part for number in range(samples)]
    requests = [request for question in part for request in reader.requests(question, samples, seed)]
    drawn = reader.sampling(rollout)
    turns: Sequence[tuple[Turn, ...]] = [()] * len(requests)
    forced: Sequence[Sequence[Forced]] = [()] * len(requests)
    opened = [talks.of(reader, question) if talks is not None else None for question, _ in owners]

    def ended(index: int, response: Response, answers: Mapping[int, tuple[int, ...]]) -> None:
        cuts = cuts_below(grid, len(response.tokens))
        arrived(Sampled(*owners[index], response, [Forced(cut, answers.get(cut, ())) for cut in cuts]))

    if any(opened):
        metas = [question.meta for question, _ in owners]
        responses, turns = converse(reader.engine, requests, drawn, opened, metas)
        if forcing is not None:
            words = continuation_tokens(reader.tokenizer, forcing.text)
            sampling = reader.forced_sampling(forcing)
            cuts = [cuts_below(grid, len(response.tokens)) for response in responses]
            forced = force(reader.engine, requests, responses, cuts, words, sampling)
    elif forcing is None:
        responses = reader.engine.generate(requests, drawn, ended=ended)
    else:
        words = continuation_tokens(reader.tokenizer, forcing.text)
        ahead = Ahead(
            lambda _, response: cuts_below(grid, len(response.tokens)),
            words,
            reader.forced_sampling(forcing),
        )
        responses = reader.engine.generate(requests, drawn, ahead, ended)
        cuts = [cuts_below(grid, len(response.tokens)) for response in responses]
        forced = reader.engine.force(requests, responses, cuts, words, ahead.sampling)
    return [
        Sampled(question, number, response, answers, before)
        for (question, number), response, answers, before in zip(
            owners, responses, forced, turns, strict=True
        )
    ]


class _Talks:
    """The tools of each benchmark's questions, opened when they are first needed, and closed at the end."""

    def __init__(self, gradings: Mapping[str, Grading], job: Job, forcing: Forcing | None = None) -> None:
        self._gradings, self._job, self._forcing = gradings, job, forcing
        self._opened: dict[Tools, Talk] = {}

    def __enter__(self) -> _Talks:
        return self

    def __exit__(self, *_: object) -> None:
        for talk in self._opened.values():
            talk.function.close()

    def of(self, reader: Reader, question: Question) -> Talk | None:
        """What a response to a question may call."""
        tools = self._gradings[question.benchmark].tools
        if tools is None:
            return None
        if tools not in self._opened:
            after = 0
            if self._forcing is not None:
                after = len(continuation_tokens(reader.tokenizer, self._forcing.text))
                after += self._forcing.answer_tokens
            self._opened[tools] = open_talk(
                tools,
                reader.model,
                reader.tokenizer,
                reader.stop,
                reader.context - after,
                self._job.folder,
                self._job.resources,
            )
        return self._opened[tools]


def asked_together(resources: Resources) -> int:
    """Chunks whose questions are asked at once: one of the embedded engine's, some for each server.

    A server takes a new request as soon as one ends, and answers it alike whatever is beside; the embedded engine's
    last bits follow its batches, so that no machine chooses those.
    """
    return 1 if resources.engine == "embedded" else PER_SERVER * resources.engines


def work_through(
    job: Job, model: Model, chunks: Chunks, parts: Sequence[Sequence[Question]], work: Work
) -> None:
    """Do what is left of the chunks, and report each. The checkpoint is loaded only when something is left.

    As many chunks are asked for at once as `asked_together` says. Responses are graded as they end, as far as the engine
    tells, and those of one call beside the next.
    """
    left = [index for index in range(len(parts)) if not chunks.done(index)]
    if not left:
        _Seen(job, chunks, len(parts), frozenset()).report()
        return
    size = asked_together(job.resources)
    seen = _Seen(job, chunks, len(parts), frozenset(left))
    reader = open_reader(
        job.inputs["start"] / "checkpoint",
        model,
        job.resources,
        [question for part in parts for question in part],
        (work.room, work.forcing),
        job.work / PLACE,
    )
    arrivals = Arrivals(lambda sampled: work.graded(reader, sampled), chunks.put)
    try:
        for batch in (left[at : at + size] for at in range(0, len(left), size)):
            kept = {index: arrivals.expect(index, _keys(parts[index], work.samples)) for index in batch}
            asked = [question for index in batch for question in parts[index]]
            sampled = work.ask(reader, asked, arrivals.add)
            # What was asked before is graded by now, or is waited for: no more than two batches are held at once.
            seen.report()
            for each in sampled:
                arrivals.add(each)
            seen.grading |= kept
        seen.report()
    finally:
        # Whatever ended this: what was answered is graded and kept.
        arrivals.close()
        reader.engine.close()


def _keys(part: Sequence[Question], samples: int) -> list[Key]:
    return [(question.benchmark, question.id, number) for question in part for number in range(samples)]


@dataclass(slots=True)
class _Seen:
    """What is reported of the chunks, in their order: of `count` those in `fresh` were made by this attempt."""

    job: Job
    chunks: Chunks
    count: int
    fresh: frozenset[int]
    grading: dict[int, Future[float]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    finished: float = 0.0
    next: int = 0
    right: float = 0.0
    length: float = 0.0
    responses: int = 0
    tokens: int = 0

    def report(self) -> None:
        """Report all chunks up to the first that was not even asked for; wait for those that are being graded."""
        while self.next < self.count and (self.next not in self.fresh or self.next in self.grading):
            if self.next in self.grading:
                # Not the time of this report, which may come a whole batch later.
                self.finished = self.grading.pop(self.next).result()
            done = self.chunks.get(self.next, "samples", ("correct", "tokens"))
            self.right += float(done["correct"].sum())
            self.length += float(done["tokens"].sum())
            self.responses += done.height
            numbers = {
                "accuracy": self.right / max(1, self.responses),
                "length": self.length / max(1, self.responses),
            }
            if self.next in self.fresh:
                self.tokens += int(done["tokens"].sum())
                numbers["tokens_per_second"] = self.tokens / max(1e-9, self.finished - self.began)
            self.next += 1
            self.job.progress(Progress(self.next, self.count, numbers))


@contextmanager
def verifiers_of(gradings: Iterable[Grading], job: Job) -> Any:
    """A verifier for each way in which answers are compared, closed at the end."""
    kinds = dict.fromkeys(kind_of(grading) for grading in gradings)
    verifiers: Verifiers = {
        (name, tolerance): open_verifier(name, tolerance, job.folder, job.resources, job.work)
        for name, tolerance in kinds
    }
    try:
        yield verifiers
    finally:
        for verifier in verifiers.values():
            verifier.close()


def write_json(path: Path, value: Any) -> None:
    """JSON as artifacts hold it: indented, finite numbers only."""
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
