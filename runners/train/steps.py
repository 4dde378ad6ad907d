"""The steps of a stage by its method: what is set up once, what one step does, and the tables it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import polars as pl
import torch

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.model import Model
from reodsl.ir.reward import QuestionBudgets, Reward
from reodsl.ir.reward import Steps as ReasoningSteps
from reodsl.ir.training import Ppo, Sft, Simpo
from reodsl.store.files import sync
from runners.clock import now, spent
from runners.engine.open import open_engine
from runners.engine.protocol import Sampling
from runners.engine.versions import PLACE
from runners.models.folder import Loaded
from runners.prompts import stop_tokens
from runners.rewards.splits import budget_places, question_places
from runners.train.agreement import Learnt
from runners.train.asking import Asking, longest_of
from runners.train.collect import Collector, Experience, Reference, collect
from runners.train.draws import drawn
from runners.train.gather import gather
from runners.train.metrics import write_parquet
from runners.train.ppo import ROLLOUTS, update
from runners.train.questions import Question, pairs_of, questions_of, read_table, traces_of
from runners.train.saved import Row
from runners.train.sft import batch_of, sft_step
from runners.train.simpo import simpo_step
from runners.train.update import Learner
from runners.verify import make_verifier

Numbers = tuple[Row, Row]
"""A step's metrics, and the seconds that its parts took."""


@dataclass(frozen=True, slots=True)
class Steps:
    """`take(n)` does step n (from 0); a context that gives up processes and memory at its end.

    `facts` are what the artifact should say of the stage once, such as how many questions were left out. `sequences`
    is how many traces or pairs there are to pass over.
    """

    take: Callable[[int], Numbers]
    facts: Mapping[str, int]
    sequences: int = 0
    write_tables: Callable[[Path, int], None] = lambda folder, steps: None
    closing: tuple[Callable[[], None], ...] = field(default=())

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for close in self.closing:
            close()


def sft_steps(method: Sft, model: Model, job: Job, loaded: Loaded, learner: Learner, seed: int) -> Steps:
    """Steps of next-token training on the traces of the questions."""
    table = read_table(job.inputs["data"])
    traces, left_out = traces_of(table, model.prompt, loaded.tokenizer, method.max_tokens)
    if "trace_prefix" in table.columns:
        _require_a_batch(len(traces), method.batch, "traces", job)
    lengths = tuple(len(trace.prompt) + len(trace.tokens) for trace in traces)

    def take(number: int) -> Numbers:
        began = now()
        chosen = batch_of(lengths, seed, number, method.batch, method.bucket_by_length)
        row = sft_step(learner, [traces[i] for i in chosen], number)
        return row, spent("update", (began, now()))

    return Steps(take, {"traces": len(traces), "left_out_too_long": left_out}, len(traces))


def simpo_steps(method: Simpo, model: Model, job: Job, loaded: Loaded, learner: Learner, seed: int) -> Steps:
    """Steps of preference training on pairs of responses."""
    table = read_table(job.inputs["data"])
    pairs, left_out = pairs_of(table, model.prompt, loaded.tokenizer, method.max_tokens)
    _require_a_batch(len(pairs), method.batch, "pairs", job)

    def take(number: int) -> Numbers:
        began = now()
        chosen = drawn(seed, number, method.batch, len(pairs))
        row = simpo_step(learner, [pairs[i] for i in chosen], method, number)
        return row, spent("update", (began, now()))

    return Steps(take, {"pairs": len(pairs), "left_out_too_long": left_out}, len(pairs))


def _require_a_batch(count: int, batch: int, what: str, job: Job) -> None:
    if count < batch:
        raise problem(
            "E0935",
            f"the pool gives {count} {what}, and a batch takes {batch}",
            where=job.task.id,
            help=f"sample more questions or more responses a question, or set `batch.prompts` to {count} or less",
        )


def ppo_steps(
    method: Ppo,
    verifier_kind: str,
    model: Model,
    job: Job,
    loaded: Loaded,
    learner: Learner,
    seed: int,
    reference: Learner | None = None,
    begun: int = 0,
) -> Steps:
    """Steps of generation, forcing, grading and clipped updates; each leaves its rollouts in the work folder.

    Of processes that train together the first generates, and hands on what it found. `begun` steps are done already.
    """
    # The embedded engine computes in float32.
    same_numbers = job.resources.engine == "embedded" and learner.precision == torch.float32
    if not learner.ranks.first:
        return _following(method, learner, seed, same_numbers, reference)
    reward = (
        method.reward if method.reward.name else method.reward.model_copy(update={"name": job.task.arm or ""})
    )
    method = method.model_copy(update={"reward": reward})
    folder = job.inputs["start"] / "checkpoint"
    table = read_table(job.inputs["data"])
    questions, too_long = questions_of(table, model.prompt, loaded.tokenizer, method.max_prompt)
    places, own_places = _places(reward, job, method.rollout.max_tokens)
    asked = len(questions)
    if places is None and not _own_steps(reward):
        questions = [question for question in questions if question.id in own_places]
    references = _references(job, method) if "reference" in job.inputs else {}
    _require(questions, references, job)
    sampling = Sampling(
        method.rollout.max_tokens,
        method.rollout.temperature,
        method.rollout.top_p,
        method.rollout.top_k,
        stop_tokens(loaded.tokenizer, folder),
    )
    longest = None if job.resources.engine == "embedded" else longest_of(method, loaded.tokenizer)
    beside = None if job.resources.apart else learner.growth
    engine = open_engine(folder, job.resources, longest, job.work / PLACE, beside)
    try:
        # Servers take minutes to start, and others wait less than that inside a collective.
        learner.ranks.wait()
        engine.load_weights(learner.weights(), begun)
        verifier = make_verifier(verifier_kind)
    except BaseException:
        engine.close()
        raise
    collector = Collector(
        engine,
        verifier,
        loaded.tokenizer,
        sampling,
        method.batch.rollouts,
        reward,
        method.forcing,
        places,
        own_places,
        references,
        seed,
        Asking(
            model.prompt,
            loaded.tokenizer,
            method.batch.rollouts,
            seed,
            method.wordings,
            method.wordings_per,
            any(part.on == "prefix" for part in reward.parts),
            method.max_prompt,
        ),
    )
    parts = job.work / "rollouts"
    parts.mkdir(parents=True, exist_ok=True)

    def experience_of(draw: int) -> Experience:
        chosen = drawn(seed, draw, method.batch.prompts, len(questions))
        return collect(collector, [questions[i] for i in chosen], draw)

    def take(number: int) -> Numbers:
        found = gather(experience_of, method, number)
        began = now()
        engine.release()
        learnt = learner.ranks.share(found.learnt)
        row = {**found.row, **update(learner, learnt, method, seed, number, same_numbers, reference)}
        engine.load_weights(learner.weights(), number + 1)
        seconds = {**found.seconds, **spent("update", (began, now()))}
        write_parquet(found.rollouts, parts / _part(number))
        # On the disk before any standing that takes this step for done.
        sync(parts / _part(number))
        return row, seconds

    def write_tables(folder: Path, steps: int) -> None:
        frames = [pl.read_parquet(parts / _part(number)) for number in range(steps)]
        write_parquet(
            pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema=ROLLOUTS),
            folder / "rollouts.parquet",
        )

    facts = {
        "questions": len(questions),
        "left_out_too_long": too_long,
        "left_out_without_budget": asked - len(questions),
    }
    return Steps(take, facts, 0, write_tables, (engine.close, verifier.close))


def _following(
    method: Ppo, learner: Learner, seed: int, same_numbers: bool, reference: Learner | None
) -> Steps:
    """The same steps on a process that learns from what the first one generates."""
    learner.ranks.wait()
    learner.weights()

    def take(number: int) -> Numbers:
        learnt: Learnt = learner.ranks.share(None)
        row = update(learner, learnt, method, seed, number, same_numbers, reference)
        learner.weights()
        return row, {}

    return Steps(take, {})


def _part(number: int) -> str:
    return f"{number:08d}.parquet"


def _places(
    reward: Reward, job: Job, longest: int
) -> tuple[tuple[int, ...] | None, dict[str, tuple[int, ...]]]:
    """Splits that all questions share, or each question's own; neither where responses have their own."""
    if reward.dense is None:
        return (longest,), {}
    split = reward.dense.split
    found = (
        json.loads((job.inputs["budgets"] / "budgets.json").read_text("utf-8"))
        if "budgets" in job.inputs
        else None
    )
    if isinstance(split, QuestionBudgets):
        return None, dict(question_places(split, found))
    return budget_places(split, found), {}


def _own_steps(reward: Reward) -> bool:
    """Whether each response is split at its own reasoning steps."""
    return reward.dense is not None and isinstance(reward.dense.split, ReasoningSteps)


def _references(job: Job, method: Ppo) -> dict[str, Reference]:
    """Lengths and verdicts of the reference's samples by question."""
    table = pl.read_parquet(
        job.inputs["reference"] / "samples.parquet", columns=["question", "tokens", "correct"]
    )
    grouped = table.group_by("question", maintain_order=True).agg("tokens", "correct")
    found = {}
    for name, tokens, correct in grouped.iter_rows():
        kept = slice(0, method.reference_samples)
        found[name] = Reference(tuple(map(float, tokens[kept])), tuple(map(float, correct[kept])))
    return found


def _require(questions: list[Question], references: dict[str, Reference], job: Job) -> None:
    if not questions:
        raise problem(
            "E0932",
            "every question was dropped, because none has a budget",
            where=job.task.id,
            help="train on the questions that the budgets were found for, or keep the unsolved ones: `unsolved = l_max`",
        )
    sizes = (
        {len(references[q.id].lengths) if q.id in references else 0 for q in questions} if references else {1}
    )
    if len(sizes) > 1 or 0 in sizes:
        raise problem(
            "E0930",
            "the reference samples do not cover the questions alike",
            where="samples.parquet",
            notes=[f"samples a question: {', '.join(str(size) for size in sorted(sizes))}"],
            help="sample the same number of responses to every training question",
        )
