"""Runners of `evaluate` and `sample` tasks: graded responses, curves and a summary."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.graph.job import Job, Progress, Resources
from reodsl.ir.data import Comparison, Grading
from reodsl.ir.model import Forcing, Model, ServedModel
from reodsl.ir.reward import cuts_below
from reodsl.ir.study import Suite
from reodsl.ir.training import Sampling
from reodsl.ir.wording import Wording
from reodsl.store.manifest import INEXACT, PLACE, read_record, record
from runners.data.draws import derive_seed, questions_seen
from runners.engine.open import open_engine
from runners.engine.protocol import Engine, ForcedTokens, Generation, Limits, Request
from runners.engine.served import RETOKENISED, ServedEngine
from runners.evaluate.given import Texts, read_texts, require_own_tokens, respond_again
from runners.evaluate.tables import UNSETTLED, Chunks, Tables, Text, curves, forced_rows, sample_rows, summary
from runners.grade import Verifier, open_verifier
from runners.models.folder import load_config, load_tokenizer
from runners.models.marks import encode_traces, reads_alike
from runners.models.tokenizer import require_written
from runners.rollout.answers import marks_of, thinking_of
from runners.rollout.grader import (
    Generator,
    GradedRollout,
    Grader,
    GradingQueue,
    Rollout,
    RolloutGroup,
    forced_length,
    grade,
    sampling_of,
)
from runners.rollout.phases import Phases, count_thinking
from runners.rollout.prompts import render_prompt, stop_tokens
from runners.rollout.questions import (
    PromptedQuestion,
    place_wordings,
    questions_of,
    read_references,
    read_table,
    render_questions,
)

CHUNK = 256
"""The number of responses that are generated and graded together, which an interruption may lose. It is the same on all
machines, because rounding differs between batches."""

SERVED_CHUNK = 16
"""The same for a model at an address, whose responses do not depend on the batch and may cost money."""

PER_SERVER = 4
"""The number of chunks that a server gets at once: about four times its batch, so that it is idle only for a small share of
the time at the end. An interruption loses these chunks."""

EXAMPLE_QUESTIONS = 8
"""The number of questions of each benchmark whose first sample is stored with its cuts, for reading."""


@dataclass(frozen=True, slots=True)
class EvaluationWork:
    """The work of an evaluation or sampling task, and the function that makes the tables of a chunk."""

    gradings: Mapping[str, Grading]  # how answers are graded, by benchmark
    rollout: Sampling  # how responses are sampled
    samples: int  # responses to each question
    seed: int  # seed of all random streams
    tables: Callable[[Sequence[GradedRollout], Text], Tables]  # makes the tables of a chunk
    forcing: Forcing | None = None  # how answers are forced; None forces none
    grid: tuple[int, ...] = ()  # budgets in tokens at which longer responses are cut
    texts: Texts | None = None  # imported responses that take the place of sampled responses
    wordings: tuple[Wording, ...] = ()  # prompts, chosen by a question's `mode`

    def count(self, question: PromptedQuestion) -> int:
        """Return how many responses a question has: the number of its imported texts, or else `samples`."""
        return self.samples if self.texts is None else len(self.texts[question.benchmark, question.id])

    def cuts(self, response: Generation) -> tuple[int, ...]:
        """Return the cuts in tokens at which answers are forced in a response."""
        return tuple(cuts_below(self.grid, len(response.tokens))) if self.forcing is not None else ()


def evaluate(job: Job) -> None:
    """Evaluate a model on a suite: sample responses, force answers at the budgets of the grid, grade, and write tables.

    If the task has `base`, imported responses are used instead of sampled responses. The results are `samples.parquet`,
    `forced.parquet`, `examples.parquet`, `curves.json` and `summary.json`.
    """
    suite: Suite = job.task.work["suite"]
    model: Model = job.task.work["model"]
    seed = evaluation_seed(job.task.work)
    gradings = {benchmark.name: benchmark.data.grading for benchmark in suite.benchmarks}
    questions = [q for name in gradings for q in _read_benchmark(job, suite, name)]
    example_ids = frozenset(
        (name, q.id)
        for name in gradings
        for q in [q for q in questions if q.benchmark == name][:EXAMPLE_QUESTIONS]
    )

    def tables(graded: Sequence[GradedRollout], text: Text) -> Tables:
        """Return the tables of a chunk: samples, forced answers, and examples."""
        forced, examples = forced_rows(graded, suite.grid, text, example_ids)
        samples = sample_rows(graded, text)
        if suite.wordings:
            modes = [int(result.rollout.question.features["mode"]) for result in graded]
            samples = samples.with_columns(mode=pl.Series(modes, dtype=pl.Int64))
        return {"samples": samples, "forced": forced, "examples": examples}

    texts = read_texts(job, gradings) if "base" in job.task.work else None
    samples = suite.samples if texts is None else max(map(len, texts.values()))
    plan = EvaluationWork(
        gradings,
        suite.rollout,
        samples,
        seed,
        tables,
        suite.forcing,
        tuple(suite.grid),
        texts,
        suite.wordings,
    )
    if texts is not None:
        record(job.work / PLACE, INEXACT, RETOKENISED)
    chunks, count = work_through(job, model, questions, plan)
    for table in ("samples", "forced", "examples"):
        chunks.join(count, table, job.out / f"{table}.parquet")
    inexact = read_record(job.work / PLACE).get(INEXACT)
    label = {} if inexact is None else {INEXACT: inexact}
    curve_of = curves(job.out / "forced.parquet", tuple(gradings))
    write_json(job.out / "curves.json", {name: curve | label for name, curve in curve_of.items()})
    write_json(
        job.out / "summary.json",
        summary(job.out / "samples.parquet", job.out / "forced.parquet", tuple(gradings)),
    )


def evaluation_seed(work: Mapping[str, Any]) -> int:
    """Return the seed of an evaluation: the suite's seed, or a seed that is derived from it for each replicate."""
    seed: int = work["seed"]
    return derive_seed(seed, "replicate", work["replicate"]) if "replicate" in work else seed


def sample(job: Job) -> None:
    """Sample responses to the questions of a data set, grade them, and write `samples.parquet`.

    A repeated question is asked once. If the task has `met`, only questions that a training will draw are asked. If it
    has `thinking`, thinking tokens are counted.
    """
    work = job.task.work
    model: Model = work["model"]
    gradings = {"": work["grading"]}
    questions = {question.id: question for question in read_questions(job.inputs["data"], "")}
    if "met" in work:
        questions = {name: questions[name] for name in met_by(job, model)}
    tokenizer = load_tokenizer(job.inputs["start"] / "checkpoint") if "thinking" in work else None

    def tables(graded: Sequence[GradedRollout], text: Text) -> Tables:
        """Return the table of a chunk's samples, with the number of thinking tokens if a reward needs it."""
        samples = sample_rows(graded, text).drop("benchmark")
        if tokenizer is not None:
            pairs = [(result.rollout.request.prompt, result.rollout.response) for result in graded]
            counts = [count_thinking(marks_of(model), tokenizer, *pair) for pair in pairs]
            samples = samples.with_columns(thinking=pl.Series(counts, dtype=pl.Int64))
        return {"samples": samples}

    plan = EvaluationWork(gradings, work["rollout"], work["samples"], work["seed"], tables)
    chunks, count = work_through(job, model, list(questions.values()), plan)
    chunks.join(count, "samples", job.out / "samples.parquet")


def met_by(job: Job, model: Model) -> list[str]:
    """Return the ids of the questions that a training will draw, in the order in which they are first drawn.

    Args:
        job: The job; its work `met` has the seed, stage index, number of draws, questions per draw and `max_prompt` of
            the training.
        model: The model's declaration, with its prompt.
    """
    rule = job.task.work["met"]
    tokenizer = load_tokenizer(job.inputs["start"] / "checkpoint")
    questions = render_questions(read_questions(job.inputs["data"], ""), model.prompt, tokenizer)
    # Training leaves out questions that are too long for its prompts.
    ids = [question.id for question in questions if len(question.prompt) <= int(rule["max_prompt"])]
    seed = derive_seed(int(rule["seed"]), "stage", int(rule["index"]))
    return list(dict.fromkeys(ids[i] for i in questions_seen(seed, rule["draws"], rule["prompts"], len(ids))))


def read_questions(folder: Path, benchmark: str) -> list[PromptedQuestion]:
    """Return the questions of a `data` task's result in their order.

    Raises:
        Problem: E0704, if there are no questions.
    """
    questions = questions_of(read_table(folder), benchmark)
    if not questions:
        raise problem(
            "E0704", "the data has no questions", where=benchmark, help="give a source with rows in it"
        )
    return questions


def _read_benchmark(job: Job, suite: Suite, name: str) -> list[PromptedQuestion]:
    """Return a benchmark's questions, with the index of their wordings as a feature if the suite has wordings.

    Args:
        job: The job, with the questions and perhaps reference samples among its inputs.
        suite: The suite.
        name: The benchmark.
    """
    questions = once(read_questions(job.inputs[f"data:{name}"], name))
    if not suite.wordings:
        return questions
    folder = job.inputs.get(f"reference:{name}")
    references = {} if folder is None else read_references(folder, suite.reference_samples)
    return place_wordings(questions, suite.wordings, references, job.task.work["seed"])


def once(questions: list[PromptedQuestion]) -> list[PromptedQuestion]:
    """Return a benchmark's questions unchanged, after checking that each question occurs once.

    Curves average over rows, and scores over questions: with duplicates they would disagree.

    Raises:
        Problem: E0705, if a question occurs twice.
    """
    num_duplicates = len(questions) - len({question.id for question in questions})
    if num_duplicates:
        raise problem(
            "E0705",
            f"{num_duplicates} of {len(questions)} questions of a benchmark are duplicates",
            where=questions[0].benchmark,
            help="evaluate on questions without worked solutions, which give a question several rows",
        )
    return questions


def chunked(
    questions: Sequence[PromptedQuestion], samples: int, responses: int = CHUNK
) -> list[list[PromptedQuestion]]:
    """Divide questions into chunks of about `responses` responses; all samples of a question are in the same chunk.

    Args:
        questions: The questions.
        samples: The number of responses to each question.
        responses: The number of responses of a chunk.
    """
    size = max(1, responses // samples)
    return [list(questions[start : start + size]) for start in range(0, len(questions), size)]


@dataclass(frozen=True, slots=True)
class Responder:
    """An opened checkpoint with its engine, the wordings of questions, and the grader of each benchmark."""

    generator: Generator
    model: Model
    graders: Mapping[str, Grader]
    wordings: tuple[Wording, ...] = ()

    def grade(self, rollouts: Sequence[Rollout]) -> list[GradedRollout]:
        """Return rollouts with the verdicts on their answers."""
        return grade(rollouts, lambda question: self.graders[question.benchmark])


def open_responder(
    job: Job, model: Model, questions: Sequence[PromptedQuestion], plan: EvaluationWork, stack: ExitStack
) -> Responder:
    """Open a task's checkpoint in an engine, and the verifiers of its benchmarks.

    Benchmarks with equal comparison and tolerance share a verifier. The engine is a server if the model has an address.

    Args:
        job: The job.
        model: The model's declaration.
        questions: All questions; the longest prompt sets the largest sequence of an engine that is not embedded.
        plan: The work of the task.
        stack: The stack that closes engine and verifiers.

    Raises:
        Problem: As `open_engine`, and E0815, if the tokenizer cannot write the forcing text.
    """
    checkpoint, resources = job.inputs["start"] / "checkpoint", job.resources
    tokenizer = load_tokenizer(checkpoint)
    stop = stop_tokens(tokenizer, checkpoint)
    forced = forced_length(plan.forcing, tokenizer)
    phases = Phases.of(plan.rollout, model, tokenizer)
    if plan.forcing is not None:
        require_written(tokenizer, plan.forcing.text, "the text that forces an answer")
    verifiers: dict[tuple[Comparison, float], Verifier] = {}
    graders = {}
    for name, grading in plan.gradings.items():
        comparison = grading.verifier, grading.tolerance
        if comparison not in verifiers:
            verifiers[comparison] = open_verifier(*comparison, job.folder, resources)
            stack.callback(verifiers[comparison].close)
        thinking = thinking_of(model, grading)
        graders[name] = Grader(verifiers[comparison], tokenizer, stop, grading.answer, plan.forcing, thinking)
    longest = None
    if resources.engine != "embedded":
        prompts = (len(_prompt(model, plan.wordings, question, tokenizer)) for question in questions)
        ending = 0 if phases is None else len(phases.ending)
        longest = max(prompts, default=1) + plan.rollout.max_tokens + ending + forced
    if plan.texts is not None:
        require_own_tokens(job, plan.texts, tokenizer)
    engine: Engine
    if isinstance(model.source, ServedModel):
        limits = Limits(longest or model.context, _token_bound(tokenizer, checkpoint))
        decode = partial(tokenizer.decode, skip_special_tokens=False)
        same_controls = partial(reads_alike, tokenizer)
        engine = ServedEngine(
            model.source,
            lambda text: encode_traces(tokenizer, [text])[0],
            decode,
            limits,
            job.work / PLACE,
            same_controls,
        )
    else:
        engine = open_engine(checkpoint, resources, longest, job.work / PLACE, None, model.precision)
    stack.callback(engine.close)
    sampling = sampling_of(plan.rollout, stop, logprobs=False)
    generator = Generator(engine, tokenizer, sampling, plan.forcing, phases)
    return Responder(generator, model, graders, plan.wordings)


def _token_bound(tokenizer: Any, checkpoint: Path) -> int:
    """Return a number above all token ids: the size of the tokenizer, or the config's vocabulary if it is larger.

    The config is read only if the folder has `config.json`.
    """
    config_size = load_config(checkpoint).vocab_size if (checkpoint / "config.json").is_file() else 0
    return max(len(tokenizer), config_size)


def requests_of(responder: Responder, question: PromptedQuestion, samples: int, seed: int) -> list[Request]:
    """Return a request for each of `samples` responses to a question.

    The random numbers of a request depend only on the seed, the benchmark, the question's id and the sample's index.
    """
    prompt = _prompt(responder.model, responder.wordings, question, responder.generator.tokenizer)
    name = f"{question.benchmark}\0{question.id}"
    return [Request(prompt, derive_seed(seed, name, sample)) for sample in range(samples)]


def _prompt(
    model: Model, wordings: Sequence[Wording], question: PromptedQuestion, tokenizer: Any
) -> tuple[int, ...]:
    """Return the token ids of a question's prompt, in its wording if the suite has wordings."""
    prompt = wordings[int(question.features["mode"])].over(model.prompt) if wordings else model.prompt
    return render_prompt(prompt, question.text, tokenizer)


def respond(
    responder: Responder,
    questions: Sequence[PromptedQuestion],
    plan: EvaluationWork,
    on_rollout: Callable[[int, Rollout], None],
) -> list[Rollout]:
    """Return responses to questions, with forced answers at their cuts.

    Imported texts of the plan take the place of sampled responses, if there are any.

    Args:
        responder: The opened checkpoint.
        questions: The questions.
        plan: The work of the task.
        on_rollout: Called from any thread with the index and the rollout of each response that the engine reports
            early.

    Returns:
        The rollouts, question by question and sample by sample.
    """
    owners = [(question, sample) for question in questions for sample in range(plan.count(question))]
    requests = [
        request
        for question in questions
        for request in requests_of(responder, question, plan.count(question), plan.seed)
    ]

    def ended(index: int, response: Generation, answers: Mapping[int, tuple[int, ...]]) -> None:
        """Give a response that the engine reports early to `on_rollout`; `answers` are its forced answers by cut."""
        forced = tuple(ForcedTokens(cut, answers.get(cut, ())) for cut in plan.cuts(response))
        on_rollout(index, Rollout(*owners[index], requests[index], response, forced))

    if plan.texts is None:
        responses = responder.generator.generate(requests, lambda _, response: plan.cuts(response), ended)
    else:
        tokenizer, stop = responder.generator.tokenizer, responder.generator.sampling.stop_ids
        texts = [plan.texts[question.benchmark, question.id][sample][:2] for question, sample in owners]
        responses = [respond_again(*text, tokenizer, stop) for text in texts]
    forced = responder.generator.force(requests, responses, list(map(plan.cuts, responses)))
    columns = zip(owners, requests, responses, forced, strict=True)
    return [Rollout(*owner, request, response, tuple(cut)) for owner, request, response, cut in columns]


def chunks_at_once(resources: Resources) -> int:
    """Return how many chunks are generated together: one by the embedded engine, several per server.

    Results of the embedded engine depend on the batch in their last bits. It therefore gets the same batches on all
    machines. A server's results do not depend on the batch, and it starts a new request as soon as another ends.
    """
    if resources.engine == "served":
        return PER_SERVER * CHUNK // SERVED_CHUNK
    return 1 if resources.engine == "embedded" else PER_SERVER * resources.engines


def work_through(
    job: Job, model: Model, questions: Sequence[PromptedQuestion], plan: EvaluationWork
) -> tuple[Chunks, int]:
    """Generate, grade and store the chunks that are not stored yet; return all chunks and their number.

    The checkpoint is opened only if a chunk is missing. Responses are graded as soon as the engine reports them, or
    else while the next batch is generated.

    Args:
        job: The job.
        model: The model's declaration.
        questions: The questions.
        plan: The work of the task.
    """
    chunk_size = SERVED_CHUNK if job.resources.engine == "served" else CHUNK
    chunks, contents = (
        Chunks(job.work / f"chunks-{chunk_size}"),
        chunked(questions, plan.samples, chunk_size),
    )
    pending = [index for index in range(len(contents)) if not chunks.done(index)]
    reporter = ProgressReporter(job, chunks, len(contents), frozenset(pending), plan.forcing is not None)
    if not pending:
        reporter.report()
        return chunks, len(contents)
    size = chunks_at_once(job.resources)
    if plan.texts is not None:
        # With imported texts, a call stores its chunks only when all answers are forced.
        size = min(size, PER_SERVER)
    with ExitStack() as opened:
        responder = open_responder(job, model, questions, plan, opened)
        graders = GradingQueue(responder.grade)
        # Also after an error, grade and store the responses that have arrived.
        opened.callback(graders.close)
        text = next(iter(responder.graders.values())).text

        def keep(index: int, graded: Sequence[GradedRollout]) -> float:
            """Store the tables of a chunk, and return the time in monotonic seconds."""
            chunks.put(index, plan.tables(graded, text))
            return time.monotonic()

        for batch in (pending[start : start + size] for start in range(0, len(pending), size)):
            groups = {
                index: graders.expect(sum(map(plan.count, contents[index])), partial(keep, index))
                for index in batch
            }
            slots = [(group, slot) for group in groups.values() for slot in range(group.count)]
            batch_questions = [question for index in batch for question in contents[index]]
            rollouts = respond(responder, batch_questions, plan, partial(_add_early, graders, slots))
            # This waits for the grading of the batch before, so that memory holds at most two batches.
            reporter.report()
            graders.add((*slot, rollout) for slot, rollout in zip(slots, rollouts, strict=True))
            reporter.grading |= {index: group.result for index, group in groups.items()}
        reporter.report()
    return chunks, len(contents)


def _add_early(
    graders: GradingQueue, slots: Sequence[tuple[RolloutGroup[float], int]], index: int, rollout: Rollout
) -> None:
    """Add a rollout to the grading queue as soon as the engine reports it.

    Args:
        graders: The grading queue.
        slots: For each rollout of a batch, its group and its index in the group.
        index: The index of the rollout in the batch.
        rollout: The rollout.
    """
    graders.add([(*slots[index], rollout)])


@dataclass(slots=True)
class ProgressReporter:
    """The progress of a task over its chunks, reported in their order."""

    job: Job  # hears of the progress
    chunks: Chunks  # the stored chunks
    count: int  # number of chunks
    fresh: frozenset[int]  # indices of the chunks that this attempt makes
    forced: bool = False  # whether chunks have a table of forced answers
    grading: dict[int, Future[float]] = field(default_factory=dict)  # when it is stored, by index
    began: float = field(default_factory=time.monotonic)  # monotonic seconds
    finished: float = 0.0  # when the last reported chunk was stored, monotonic seconds
    next: int = 0  # index of the next chunk to report
    right: float = 0.0  # right responses so far
    length: float = 0.0  # tokens of all responses so far
    responses: int = 0  # responses so far
    tokens: int = 0  # tokens of this attempt's responses
    unjudged: Counter[str] = field(default_factory=Counter)  # answers that were never judged, by reason

    def report(self) -> None:
        """Report chunks in order, up to the first that is not generated yet.

        A chunk that is being graded is waited for. Stored chunks of earlier attempts count in accuracy and length, but
        not in `tokens_per_second`.
        """
        while self.next < self.count and (self.next not in self.fresh or self.next in self.grading):
            if self.next in self.grading:
                # The time of storing; this report may come a full batch later.
                self.finished = self.grading.pop(self.next).result()
            samples = self.chunks.get(self.next, "samples", ("correct", "tokens", "unsettled"))
            self.right += float(samples["correct"].sum())
            self.length += float(samples["tokens"].sum())
            self.responses += samples.height
            numbers = {
                "accuracy": self.right / max(1, self.responses),
                "length": self.length / max(1, self.responses),
            }
            forced = [self.chunks.get(self.next, "forced", ("unsettled",))] if self.forced else []
            for why in pl.concat([samples.select("unsettled"), *forced])["unsettled"].drop_nulls():
                self.unjudged[why.partition(":")[0]] += 1
            numbers |= {
                name: float(self.unjudged[why]) for name, why in UNSETTLED.items() if self.unjudged[why]
            }
            if self.next in self.fresh:
                self.tokens += int(samples["tokens"].sum())
                numbers["tokens_per_second"] = self.tokens / max(1e-9, self.finished - self.began)
            self.next += 1
            self.job.progress(Progress(self.next, self.count, numbers))


def write_json(path: Path, value: Any) -> None:
    """Write JSON in the form of stored results: indented, with finite numbers only."""
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
