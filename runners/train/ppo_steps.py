"""The steps of PPO: engine and verifier are opened once, then one step follows another."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import torch

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.data import Grading, Python
from reodsl.ir.model import Model
from reodsl.ir.reward import Exits, QuestionBudgets, Reward
from reodsl.ir.reward import Steps as ReasoningSteps
from reodsl.ir.training import Ppo
from reodsl.store.files import sync
from runners.answers import thinking_of
from runners.clock import now, spent
from runners.conversations import Talk, open_talk, require_tools
from runners.draws import drawn, met
from runners.engine.open import open_engine
from runners.engine.protocol import Engine, Sampling, Weights
from runners.engine.versions import PLACE
from runners.models.folder import Loaded
from runners.own import open_function
from runners.prompts import continuation_tokens, stop_tokens
from runners.rewards.splits import budget_places, question_places
from runners.train.asking import Asking, longest_of
from runners.train.batch import Batch
from runners.train.beside import Beside
from runners.train.gather import ROLLOUTS, Gathered, gather
from runners.train.metrics import join_parquet, write_parquet
from runners.train.ppo import update
from runners.train.questions import Question, questions_of, read_table
from runners.train.rollouts import Collector, Reference, Rollouts, collect
from runners.train.segments import Flow, collect_segments
from runners.train.spread import await_value, weights_of
from runners.train.steps import Numbers, Steps
from runners.train.tracks import Tracks
from runners.train.update import Learner
from runners.train.waiting import Prepared, keep_waiting, load_waiting
from runners.verify import Early, Verifier, open_verifier

LOADED = "the engine has the weights"
"""What the first process shares when others may go on."""


def ppo_steps(
    method: Ppo,
    grading: Grading,
    model: Model,
    job: Job,
    loaded: Loaded,
    learner: Learner,
    seed: int,
    reference: Learner | None = None,
    begun: int = 0,
    steps: int = 0,
) -> Steps:
    """Steps of generation, forcing, grading and clipped updates; each leaves its rollouts in the work folder.

    Of processes that train together the first generates, and hands on what it found. `begun` of at most `steps` steps
    are done already.
    """
    # In bfloat16 the two round different sums.
    same_numbers = (
        job.resources.engine == "embedded"
        and learner.precision == torch.float32
        and model.precision != "bfloat16"
    )
    if not learner.ranks.first:
        return _following(method, learner, seed, same_numbers, reference)
    if not method.reward.name:
        reward = method.reward.model_copy(update={"name": job.task.arm or ""})
        method = method.model_copy(update={"reward": reward})
    pool = _pool(method, model, job, loaded, seed)
    rollout, stop = method.rollout, stop_tokens(loaded.tokenizer, job.inputs["start"] / "checkpoint")
    sampling = Sampling(rollout.max_tokens, rollout.temperature, rollout.top_p, rollout.top_k, stop)
    asking = _asking(method, model, loaded, seed)
    parts = job.work / "rollouts"
    parts.mkdir(parents=True, exist_ok=True)
    waiting, beside = job.work / "waiting", method.lag > 0 and _beside(job)
    left = load_waiting(waiting, begun) if method.lag else {}
    # None of their processes starts before the first call.
    functions = {
        term.function: open_function(
            Python(function=term.function, **term.limits), "reward", job.folder, job.resources
        )
        for term in method.reward.terms
    }
    talk = _talk(method, grading, model, job, loaded, stop, pool)
    # Last of all that can fail: until there are steps, nobody else would close what is opened here.
    engine, verifier = _opened(method, grading, model, job, loaded, learner, begun, beside)
    early = Early(verifier)
    collector = Collector(
        engine,
        verifier,
        loaded.tokenizer,
        sampling,
        method.batch.rollouts,
        method.reward,
        method.forcing,
        pool.places,
        pool.own_places,
        pool.references,
        seed,
        asking,
        grading.answer,
        functions,
        talk=talk,
        early=early,
        thinking=thinking_of(model, grading),
    )

    def draw(number: int) -> Sequence[int]:
        return drawn(seed, number, method.batch.prompts, len(pool.questions))

    def sample(informed: Collector, number: int) -> Rollouts:
        return collect(informed, [pool.questions[i] for i in draw(number)], number)

    tracks = Tracks(
        method, collector, pool.questions, lambda number: _part(parts, number), job.work / "monitor"
    )
    for number, one in left.items():
        tracks.keep(number, one.gathered.table)

    def gathered_by(number: int, sample: Callable[[Collector, int], Rollouts]) -> Gathered:
        """A step's batch, from rounds that know its tracks; their values are among its numbers."""
        informed, row, seconds = tracks.at(number)
        gathered = gather(lambda draw: sample(informed, draw), method, number)
        tracks.keep(number, gathered.table)
        return replace(gathered, row={**gathered.row, **row}, seconds={**gathered.seconds, **seconds})

    def make(number: int, before: Prepared | None) -> Prepared:
        """The batch of a step; with segments from what the step before left open."""
        segment, flow = method.segment, before.flow if before is not None else Flow()
        if segment is None:
            return Prepared(gathered_by(number, sample))

        def go_on(informed: Collector, _: int) -> Rollouts:
            nonlocal flow
            rollouts, flow = collect_segments(informed, pool.questions, draw, segment, flow)
            return rollouts

        gathered = gathered_by(number, go_on)
        return Prepared(gathered, flow)

    def take(number: int) -> Numbers:
        gathered = gathered_by(number, sample)
        began = now()
        engine.release()
        batch = learner.ranks.share(gathered.batch)
        row = {**gathered.row, **update(learner, batch, method, seed, number, same_numbers, reference)}
        engine.load_weights(weights_of(learner), number + 1)
        learner.ranks.share(LOADED)
        seconds = {**gathered.seconds, **spent("update", (began, now()))}
        write_parquet(gathered.table, _part(parts, number))
        # On the disk before any standing that takes this step for done.
        sync(_part(parts, number))
        return row, seconds

    def write_tables(folder: Path, steps: int) -> None:
        join_parquet([_part(parts, number) for number in range(steps)], ROLLOUTS, folder / "rollouts.parquet")
        tracks.write_table(folder, steps)

    tools = () if talk is None else (talk.function.close,)
    # What is closed last of these is what uses the others.
    closing = (
        engine.close,
        verifier.close,
        early.close,
        *(each.close for each in functions.values()),
        *tools,
    )
    if not method.lag:
        return Steps(take, pool.facts, 0, write_tables, closing)
    prepared = Beside(make, left, beside)

    def take_prepared(number: int) -> Numbers:
        """As `take`, on what weights of `lag` steps ago gave; later steps' responses are made meanwhile."""
        if number > begun:
            prepared.wait()
            engine.load_weights(_weights(learner, beside), number)
        prepared.begin(range(number, min(number + method.lag + 1, steps)))
        if not beside:
            engine.release()
        asked = now()
        gathered = prepared.take(number).gathered
        began = now()
        batch = learner.ranks.share(gathered.batch)
        row = {**gathered.row, **_ages(gathered.table, number)}
        row |= update(learner, batch, method, seed, number, same_numbers, reference)
        seconds = {**gathered.seconds, **spent("update", (began, now())), **spent("wait", (asked, began))}
        if beside:
            # What processors spent is the sum of both halves.
            seconds = {name: value for name, value in seconds.items() if name.startswith("seconds_")}
        write_parquet(gathered.table, _part(parts, number))
        sync(_part(parts, number))
        prepared.forget(number)
        return row, seconds

    def keep(done: int) -> None:
        numbers = range(done, min(done + method.lag, steps))
        keep_waiting(waiting, done, {number: prepared.take(number) for number in numbers})

    return Steps(take_prepared, pool.facts, 0, write_tables, (*closing, prepared.close), keep)


def _beside(job: Job) -> bool:
    """Whether responses can be made while the trainer works: on other devices, or on other cores of a processor."""
    embedded = job.resources.engine == "embedded"
    return job.resources.device == "cpu" if embedded else job.resources.apart


def _weights(learner: Learner, beside: bool) -> Weights:
    """What an engine gets of the learner; a copy where it may look at it again while the learner changes its own."""
    weights = weights_of(learner)
    if beside and isinstance(weights, dict):
        return {name: value.detach().clone() for name, value in weights.items()}
    return weights


def _ages(table: pl.DataFrame, number: int) -> dict[str, float]:
    """How many steps old the oldest weights are that a response has tokens of: in the mean, and the most."""
    ages = number - table["weight_versions"].list.min()
    return {"lag": float(ages.mean()), "lag_max": float(ages.max())}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Pool:
    """What a stage asks, where responses are split, and the reference's samples; `facts` as those of `Steps`."""

    questions: list[Question]
    places: tuple[int, ...] | None
    own_places: dict[str, tuple[int, ...]]
    references: dict[str, Reference]
    facts: dict[str, int]


def _pool(method: Ppo, model: Model, job: Job, loaded: Loaded, seed: int) -> _Pool:
    """The questions that can be trained on. Raises E0927, E0930 and E0932 where there are none, or not all they need."""
    table = read_table(job.inputs["data"])
    questions, too_long = questions_of(table, model.prompt, loaded.tokenizer, method.max_prompt)
    places, own_places = _places(method.reward, job, method.rollout.max_tokens, questions)
    asked = len(questions)
    if places is None and not _own_steps(method.reward):
        questions = [question for question in questions if question.id in own_places]
    references = _references(job, method) if "reference" in job.inputs else {}
    draws = int(job.task.payload["stage"]["steps"]) * (1 + method.resample)
    places_met = met(seed, draws, method.batch.prompts, len(questions))
    _require([questions[at] for at in places_met], references, job)
    facts = {
        "questions": len(questions),
        "left_out_too_long": too_long,
        "left_out_without_budget": asked - len(questions),
    }
    return _Pool(questions, places, own_places, references, facts)


def _opened(
    method: Ppo,
    grading: Grading,
    model: Model,
    job: Job,
    loaded: Loaded,
    learner: Learner,
    begun: int,
    beside: bool,
) -> tuple[Engine, Verifier]:
    """The engine with the learner's weights, and the verifier; nothing stays open where one of them fails."""
    # What tools say is bounded by the context alone.
    whole = job.resources.engine == "embedded" or grading.tools is not None
    longest = None if whole else longest_of(method, loaded.tokenizer)
    growth = None if job.resources.apart else learner.growth
    folder = job.inputs["start"] / "checkpoint"
    engine = open_engine(folder, job.resources, longest, job.work / PLACE, growth, model.precision)
    try:
        # Servers take minutes to start, and others wait less than that inside a collective.
        learner.ranks.wait()
        engine.load_weights(_weights(learner, beside), begun)
        learner.ranks.share(LOADED)
        return engine, open_verifier(grading.verifier, grading.tolerance, job.folder, job.resources, job.work)
    except BaseException:
        engine.close()
        raise


def _talk(
    method: Ppo, grading: Grading, model: Model, job: Job, loaded: Loaded, stop: tuple[int, ...], pool: _Pool
) -> Talk | None:
    """The tools that responses may call. Raises E0750 where questions have some that nobody is let call."""
    require_tools(grading, (question.meta for question in pool.questions))
    if grading.tools is None:
        return None
    forcing = method.forcing
    after = 0
    if forcing is not None:
        after = len(continuation_tokens(loaded.tokenizer, forcing.text)) + forcing.answer_tokens
    context = loaded.model.config.max_position_embeddings - after
    return open_talk(grading.tools, model, loaded.tokenizer, stop, context, job.folder, job.resources)


def _asking(method: Ppo, model: Model, loaded: Loaded, seed: int) -> Asking:
    return Asking(
        model.prompt,
        loaded.tokenizer,
        method.batch.rollouts,
        seed,
        method.wordings,
        method.wordings_per,
        method.learns_prefix,
        method.max_prompt,
    )


def _following(
    method: Ppo, learner: Learner, seed: int, same_numbers: bool, reference: Learner | None
) -> Steps:
    """The same steps on a process that learns from what the first one generates."""
    learner.ranks.wait()
    await_value(learner)

    def take(number: int) -> Numbers:
        # Until the batch comes, a server that was lost may need the present weights again.
        batch: Batch = await_value(learner)
        row = update(learner, batch, method, seed, number, same_numbers, reference)
        if not method.lag:
            await_value(learner)
        return row, {}

    return Steps(take, {})


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:08d}.parquet"


def _places(
    reward: Reward, job: Job, longest: int, questions: Sequence[Question]
) -> tuple[tuple[int, ...] | None, dict[str, tuple[int, ...]]]:
    """Splits that all questions share, or each question's own; neither where responses have their own."""
    split = reward.splits
    if split is None:
        return (longest,), {}
    chosen = (
        json.loads((job.inputs["budgets"] / "budgets.json").read_text("utf-8"))
        if "budgets" in job.inputs
        else None
    )
    if isinstance(split, QuestionBudgets):
        return None, dict(question_places(split, chosen, [question.id for question in questions]))
    return budget_places(split, chosen), {}


def _own_steps(reward: Reward) -> bool:
    """Whether each response is split at places of its own: reasoning steps, or exits."""
    return isinstance(reward.splits, (ReasoningSteps, Exits))


def _references(job: Job, method: Ppo) -> dict[str, Reference]:
    """Lengths and verdicts of the reference's samples by question."""
    table = pl.read_parquet(
        job.inputs["reference"] / "samples.parquet", columns=["question", "tokens", "correct"], glob=False
    )
    grouped = table.group_by("question", maintain_order=True).agg("tokens", "correct")
    references = {}
    for name, tokens, correct in grouped.iter_rows():
        kept = slice(0, method.reference_samples)
        references[name] = Reference(tuple(map(float, tokens[kept])), tuple(map(float, correct[kept])))
    return references


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
