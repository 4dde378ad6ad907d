"""What models think of tokens: a slow reference with `transformers`, whole stages, several processes, and bad input."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from reodsl.ir.expression import AnswerRun, Constant, Infix, TokenRun, Variable
from reodsl.ir.reward import Metric, Reward
from reodsl.ir.training import Lora
from reodsl.ir.wording import Wording
from runners.engine.protocol import Generation, Insertion
from runners.grade import Claim, Verdict
from runners.rewards.vectorise import needed_cuts
from runners.rollout.grader import GradedRollout, Rollout
from runners.rollout.questions import PromptedQuestion
from runners.train import ppo_stage
from runners.train.batch import TrainBatch
from runners.train.likelihood import ask_models
from runners.train.update import Learner
from tests.train.conftest import FORCING, Stopped
from tests.train.models import small_model
from tests.train.test_rollouts import STOP, TOKENIZER, ScriptedEngine, ids, sampler
from tests.train.test_train import OUTCOME, ppo, same

TEACHER = "(t, under: teacher)"
TEXTS = ["a b a so \\boxed{ 7 } <eos>", "a \\boxed{ 8 } wait b \\boxed{ 7 8 } a", "wait wait b"]
ANSWERS = ["7", "7 8", ""]


def about(number: str, fn: str = "mean", **more: object) -> TokenRun:
    """A statistic of one number of each token."""
    return TokenRun(**{"fn": fn, "of": "y", "value": Variable(name=number)} | more)  # type: ignore[arg-type]


def own_answer(number: str, fn: str = "mean") -> AnswerRun:
    """The same of the tokens of a response's answer."""
    return AnswerRun(fn=fn, of="y", value=Variable(name=number), empty=Constant(value=-1))  # type: ignore[arg-type]


def cut(tokens: int) -> Constant:
    return Constant(value=tokens, unit=1)


STATISTICS = (
    about("prob(t)"),
    about("logprob(t)", "sum", cut=cut(3)),
    about("entropy(t)"),
    about("entropy(t)", "max", cut=cut(2)),
    about(f"logprob{TEACHER}", "min"),
    about(
        f"entropy{TEACHER}", where=Infix(fn=">", left=Variable(name="prob(t)"), right=Constant(value=0.04))
    ),
    about("prob(t)", truth=True),
    about("prob(t)", truth=True, cut=cut(0)),
    about(f"logprob{TEACHER}", "sum", truth=True, cut=cut(3)),
    about("entropy(t)", truth=True, cut=cut(2)),
    own_answer("prob(t)"),
    own_answer(f"logprob{TEACHER}", "sum"),
)


def slow_numbers(model, before, tokens):
    """Each token's probability, its logarithm and the entropy, by a pass of its own over all before it, in float64."""
    found = []
    for at, token in enumerate(tokens):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([(*before, *tokens[:at])])).logits[0, -1].double()
        p = logits.softmax(-1)
        found.append((float(p[token]), math.log(p[token]), float(-(p * p.log()).sum())))
    return found


def slow(node, models, one):
    """A statistic as its words say."""
    teacher = node.value.name.endswith(TEACHER)
    question, response = one.rollout.question, one.rollout.response
    asked = question.teacher_prompt if teacher and question.teacher_prompt else one.rollout.request.prompt
    if node.truth:
        place = len(response.tokens) if node.cut is None else int(node.cut.value)
        if place >= len(response.tokens):
            # The reference answer is where the response's own was, in its last box, or is forced where there is none.
            text = TOKENIZER.decode(response.tokens).split()
            last = max((at for at, word in enumerate(text) if word == "\\boxed{"), default=None)
            lead = (
                response.tokens[: last + 1] if last is not None else (*response.tokens, *ids("so \\boxed{"))
            )
        else:
            lead = (*response.tokens[:place], *ids("so \\boxed{"))
        numbers = slow_numbers(models[teacher], (*asked, *lead), ids(question.gold))
        both = [numbers, numbers]
    else:
        end = None if node.cut is None else int(node.cut.value)
        both = [
            slow_numbers(models[which], asked if which else one.rollout.request.prompt, response.tokens[:end])
            for which in (0, 1)
        ]
    if isinstance(node, AnswerRun):
        words = TOKENIZER.decode(response.tokens).split()
        if "\\boxed{" not in words:
            return -1
        first = max(at for at, word in enumerate(words) if word == "\\boxed{") + 1
        both = [each[first : words.index("}", first)] for each in both]
    at = ("prob", "logprob", "entropy").index(node.value.name.partition("(")[0])
    values = [each[at] for each in both[teacher]]
    if node.where is not None:
        values = [value for value, own in zip(values, both[0], strict=True) if own[0] > 0.04]
    return {"mean": lambda v: sum(v) / len(v), "sum": sum, "max": max, "min": min}[node.fn](values)


@pytest.mark.parametrize("own_words", [False, True])
def test_each_statistic_is_that_of_a_loop_with_transformers(own_words):
    """Micro-batches of few tokens; a teacher that is asked otherwise reads the same tokens."""
    models = [small_model(vocab=len(TOKENIZER), seed=seed) for seed in (0, 1)]
    learners = [Learner.of(each, (), 0.0, microbatch=20) for each in models]
    question = PromptedQuestion(
        "q", "", "7 8", prompt=ids("a b"), teacher_prompt=ids("b b wait") if own_words else ()
    )
    made = sampler(ScriptedEngine([], {}), Reward(name="r", outcome=STATISTICS[0]), (20,), rollouts=3)
    made = replace(
        made,
        reward=Reward(
            name="r",
            outcome=Constant(value=1),
            metrics=tuple(Metric(name=f"m{at}", value=each) for at, each in enumerate(STATISTICS)),
        ),
    )
    graded = []
    for number, (text, answer) in enumerate(zip(TEXTS, ANSWERS, strict=True)):
        tokens = ids(text)
        told = tuple(each[1] for each in slow_numbers(models[0], question.prompt, tokens))
        response = Generation(tokens, told, told, "stop" if tokens[-1] == STOP else "length", (0,))
        (_, request), *_ = made.requests(question, 0, 0)
        rollout = Rollout(question, number, request, response)
        read = (Claim(answer, "7 8"), Verdict(False, "fast")) if answer else None
        closes = max((at + 1 for at, each in enumerate(text.split()) if each == "}"), default=0)
        prefixes = ((closes, read),) if read else ()
        graded.append(
            GradedRollout(rollout, text, read or (Claim("", "7 8"), Verdict(False, "fast")), {}, prefixes)
        )
    inputs = made.reward_inputs([question] * 3, [one.rollout.response for one in graded])
    passes = []

    def ask(teacher: bool, entropies: bool, batch: TrainBatch) -> torch.Tensor:
        passes.append((teacher, entropies, len(batch)))
        return learners[teacher].measure(batch.teacher_rows() if teacher else batch, 1.0, entropies)

    asked = needed_cuts(made.reward, inputs).tokens
    found = ask_models(asked, graded, inputs, made.grader, ask)
    # Of each response once by each model; of answers at two cuts and the end by the policy, and at one by the teacher.
    assert sorted(passes) == [(False, True, 3), (False, True, 9), (True, False, 3), (True, True, 3)]
    for node in STATISTICS:
        for number, one in enumerate(graded):
            place = len(one.rollout.response.tokens)
            place = place if node.cut is None else min(place, int(node.cut.value))
            value = float(found[node](torch.tensor([number]).numpy(), torch.tensor([place]).numpy())[0])
            assert value == pytest.approx(slow(node, models, one), abs=2e-5), node
    made.queue.close()


def test_what_ended_thinking_is_read_and_not_asked_about():
    models = [small_model(vocab=len(TOKENIZER))]
    learner = Learner.of(models[0], (), 0.0)
    tokens, said = ids("a b b a"), ids("wait so")
    response = Generation(tokens, (0.0,) * 4, (0.0,) * 4, "length", (0,), (Insertion(2, said),))
    batch = TrainBatch.of([ids("b a")], [response.sequence()], [response.gaps()])
    numbers = learner.measure(batch, 1.0, with_entropies=True)
    first = slow_numbers(models[0], ids("b a"), tokens[:2])
    then = slow_numbers(models[0], (*ids("b a"), *tokens[:2], *said), tokens[2:])
    assert numbers[0].tolist() == pytest.approx([each[1] for each in (*first, *then)], abs=1e-5)
    assert numbers[1].tolist() == pytest.approx([each[2] for each in (*first, *then)], abs=1e-5)


RLPR = Reward(
    name="rlpr",
    outcome=Infix(fn="-", left=about("prob(t)", truth=True), right=about("prob(t)", truth=True, cut=cut(0))),
    metrics=(
        Metric(name="surprise", value=about("entropy(t)")),
        Metric(
            name="drift",
            value=replace(
                about("logprob(t)"),
                value=Infix(
                    fn="-", left=Variable(name="logprob(t)"), right=Variable(name=f"logprob{TEACHER}")
                ),
            ),
        ),
    ),
)


def asking(steps=3, save_every=0, **changes):
    stage = ppo(RLPR, steps=steps)
    method = stage.method.model_copy(update={"forcing": FORCING, **changes})
    return stage.model_copy(update={"method": method, "save_every": save_every})


def metrics(out):
    return pl.read_parquet(out / "metrics.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"resample": 1}, {"lag": 1}], ids=str)
def test_a_stage_that_asks_goes_on_to_the_same_bytes(bench, changes):
    name = f"asks_{'_'.join(changes)}"
    whole = bench.train(asking(**changes), f"{name}_whole", start="base", data="questions")
    told = metrics(whole)
    # Before anything is learnt the policy is the reference model.
    assert abs(told["metric_drift"][0]) < 1e-6
    assert abs(told["metric_drift"][2]) > 1e-5
    assert (told["metric_surprise"] > 0).all()
    assert told["reward"].is_between(-1, 1).all()
    with pytest.raises(Stopped):
        bench.train(asking(save_every=1, **changes), name, start="base", data="questions", stop_at=2)
    same(whole, bench.train(asking(save_every=1, **changes), name, start="base", data="questions"))


def test_adapters_are_asked_with_and_without(bench):
    stage = asking().model_copy(update={"lora": Lora(rank=4)})
    told = metrics(bench.train(stage, "asks_adapters", start="base", data="questions"))
    assert abs(told["metric_drift"][0]) < 1e-6 < abs(told["metric_drift"][2])


def test_another_model_is_asked(bench):
    told = metrics(bench.train(asking(), "asks_init", start="base", data="questions", teacher="init"))
    # Untrained weights think less of what the policy says.
    assert told["metric_drift"][0] > 0.5


@pytest.mark.heavy
def test_two_processes_ask_as_one_does(bench):
    one, two = (
        metrics(bench.train(asking(), name, start="base", data="questions", resources=resources))
        for name, resources in (("asks_one", Resources()), ("asks_two", Resources(trainers=2)))
    )
    for name in ("reward", "metric_drift", "metric_surprise"):
        assert one[name].to_list() == pytest.approx(two[name].to_list(), abs=1e-4), name


def test_a_question_without_an_answer_ends_the_stage_before_it_samples(bench, refusal, monkeypatch):
    monkeypatch.setattr(ppo_stage, "open_engine", None)
    without = bench.root / "unanswered"
    without.mkdir(exist_ok=True)
    table = pl.read_parquet(bench.root / "questions" / "questions.parquet")
    empty = pl.when(pl.int_range(pl.len()) == 3).then(pl.lit("")).otherwise(pl.col("answer")).alias("answer")
    table.with_columns(empty).write_parquet(without / "questions.parquet")
    with pytest.raises(Problem) as caught:
        bench.train(asking(), "refused", start="base", data="unanswered")
    refusal("train/E0941.txt", caught.value)
    stage = ppo(OUTCOME, steps=1)
    taught = {"kl": 1.0, "teacher_wording": Wording(question="{answer} {question}")}
    stage = stage.model_copy(update={"method": stage.method.model_copy(update=taught)})
    with pytest.raises(Problem, match="the prompt of the teacher has the reference answers"):
        bench.train(stage, "refused_teacher", start="base", data="unanswered")


def test_a_reference_answer_past_the_context_is_told_before_a_step(bench, refusal, monkeypatch):
    monkeypatch.setattr(ppo_stage, "open_engine", None)
    stage = asking()
    longer = stage.method.rollout.model_copy(update={"max_tokens": 74})
    method = stage.method.model_copy(update={"rollout": longer})
    # Of 96: a prompt of 20, a response of 74, a forcing text of 3 and an answer of one token.
    with pytest.raises(Problem, match="98 tokens, and the context has 96") as caught:
        bench.train(stage.model_copy(update={"method": method}), "refused", start="base", data="questions")
    refusal("train/E0941_longer.txt", caught.value)
