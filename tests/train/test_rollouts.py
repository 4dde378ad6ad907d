"""One step's experience with an engine and a verifier that are read like a book: what is forced, graded, and when."""

from dataclasses import replace

import pytest

from reodsl.diagnostics import problem
from reodsl.ir.expression import (
    Aggregate,
    Attribute,
    Constant,
    Correct,
    CutAnswer,
    ForcedAnswer,
    Infix,
    Length,
    PythonTerm,
    Variable,
)
from reodsl.ir.model import Forcing
from reodsl.ir.reward import (
    Budgets,
    DenseReward,
    QuestionBudgets,
    ResponseGroup,
    Reward,
    RewardedResponse,
    Steps,
)
from runners.engine.protocol import ForcedTokens, Generation, TokenSampling
from runners.grade import Thinking, Verdict, make_verifier
from runners.models.tokenizer import word_tokenizer
from runners.own.function import FailedRow
from runners.rewards.interpret import interpret
from runners.rewards.vectorise import vectorise
from runners.rollout.answers import answer_after_forcing
from runners.rollout.grader import Generator, Grader, GradingQueue, grade
from runners.rollout.questions import PromptedQuestion, Reference
from runners.train.gather import rollout_columns, score, step_metrics
from runners.train.rollouts import RolloutSampler
from tests.train.test_update import method

TOKENIZER = word_tokenizer(("a", "b", "wait", "7", "8", "\\boxed{", "}", "so"))
STOP = TOKENIZER.eos_token_id


def ids(text):
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


class ScriptedEngine:
    """Answers from a list, and to each forced cut with the verdict that a table holds."""

    def __init__(self, texts, forced):
        self.texts, self.forced, self.calls = texts, forced, []
        self.tells = ()

    def generate(self, requests, sampling, ahead=None, ended=None):
        self.calls.append(("generate", [r.seed for r in requests], sampling))
        found = [ids(text) for text in self.texts]
        responses = [Generation(t, (0.0,) * len(t), (0.0,) * len(t), "stop", (0,)) for t in found]
        for number, cuts in self.tells:
            ended(number, responses[number], {cut: ids(self.forced[number, cut]) for cut in cuts})
        return responses

    def force(self, requests, responses, cuts, forcing, sampling):
        self.calls.append(("force", [tuple(own) for own in cuts], tuple(forcing), sampling))
        return [
            [ForcedTokens(cut, ids(self.forced[number, cut])) for cut in own]
            for number, own in enumerate(cuts)
        ]

    def load_weights(self, state, version):
        self.calls.append(("load", version))

    def close(self):
        self.calls.append(("close",))


def reward(value, split=None):
    if split is None:
        return Reward(name="r", outcome=value)
    return Reward(name="r", dense=DenseReward(split=split, var="L", value=value))


def sampler(engine, rule, places=None, verifier=None, thinking=None, **changes):
    forcing = Forcing(text="so \\boxed{", answer_tokens=2)
    verifier = verifier or make_verifier("exact")
    grader = Grader(verifier, TOKENIZER, (STOP,), forcing=forcing, thinking=thinking, prefixes=True)
    base = {
        "generator": Generator(engine, TOKENIZER, TokenSampling(20, stop_ids=(STOP,)), forcing),
        "grader": grader,
        "queue": GradingQueue(lambda rollouts: grade(rollouts, lambda _: grader)),
        "rollouts": 2,
        "reward": rule,
        "shared_splits": places,
        "question_splits": {},
        "references": {},
        "seed": 9,
    }
    return RolloutSampler(**(base | changes))


QUESTION = PromptedQuestion("q", "", "7", prompt=ids("a b"), features={"n_gold": 3.0})
RESPONSES = ["a b a so \\boxed{ 7 } <eos>", "a \\boxed{ 8 } wait b \\boxed{ 7 }"]


def test_budgets_are_forced_below_the_end_and_everything_is_graded():
    engine = ScriptedEngine(RESPONSES, {(0, 2): "7 }", (1, 2): "8 } <eos>", (0, 5): "8", (1, 5): "7"})
    rule = reward(ForcedAnswer(of="y", cut=Variable(name="L")), Budgets(budgets=(2, 5, 12), l_max=20))
    found = sampler(engine, rule, (2, 5, 12, 20)).sample([QUESTION], 4)
    kind, cuts, forcing, sampling = engine.calls[1]
    assert (kind, cuts, forcing) == ("force", [(2, 5), (2, 5)], ids("so \\boxed{"))
    assert (sampling.max_tokens, sampling.temperature, sampling.stop_ids) == (2, 0.0, (STOP,))
    assert found.inputs.correct.tolist() == [[1, 1]]
    assert found.inputs.length.tolist() == [[8, 9]]
    assert found.forced.values.tolist() == [True, False, False, True]
    assert found.inputs.features["n_gold"].tolist() == [[3, 3]]
    # A boxed answer counts from the token that closes it on, until the next one.
    assert found.prefix_answers == (((7, True),), ((4, False), (9, True)))
    parts = ("generate", "force", "grade")
    assert set(found.seconds) == {f"{of}_{part}" for of in ("seconds", "processor") for part in parts}


class Scripted:
    """A function of the user's that notes what it is given."""

    def __init__(self, values):
        self.values, self.rows = values, []

    def call(self, rows):
        self.rows += rows
        return self.values


def test_a_response_that_makes_a_reward_fail_is_paid_least_and_the_reason_is_kept():
    """A fine that is not worked out is no prize: the term counts as 0, and the reward is the lowest of the step."""
    rule = reward(Infix(fn="-", left=Correct(of="y"), right=PythonTerm(function="style.py:fine", of="y")))
    failed = FailedRow("timeout", problem("E0744", "it took\n\x1b[2Jmore", where="/home/style.py:3"))
    made = sampler(
        ScriptedEngine(RESPONSES, {}), rule, (20,), functions={"style.py:fine": Scripted([2.5, failed])}
    )
    graded = made.sample([replace(QUESTION, gold="7")], 0)
    assert graded.inputs.features["style.py:fine"].tolist() == [[2.5, 0.0]]
    assert graded.unsettled == ((), ("reward: it took [2Jmore, line 3",))
    scored = score(graded, method(reward=rule))
    assert scored.rewards.ravel().tolist() == [-1.5, -1.5]
    assert step_metrics(scored)["reward_failures"] == 1
    assert rollout_columns(scored, 1)["unsettled"] == [None, ["reward: it took [2Jmore, line 3"]]


def test_a_function_of_the_users_is_given_whole_responses_once_they_are_graded():
    rule = reward(Infix(fn="+", left=PythonTerm(function="style.py:score", of="y"), right=Correct(of="y")))
    function = Scripted([0.25, -2.0])
    made = sampler(ScriptedEngine(RESPONSES, {}), rule, (20,), functions={"style.py:score": function})
    question = replace(QUESTION, gold="7\x1e9", meta='{"hard": true}', text="a or b?")
    inputs = made.sample([question], 0).inputs
    assert inputs.features["style.py:score"].tolist() == [[0.25, -2.0]]
    shared = {"question": "a or b?", "reference": "7", "references": ["7", "9"], "meta": {"hard": True}}
    assert function.rows == [
        {**shared, "text": "a b a so \\boxed{ 7 }", "answer": "7", "correct": True, "tokens": 8},
        {**shared, "text": RESPONSES[1], "answer": "7", "correct": True, "tokens": 9},
    ]
    values = vectorise(rule, inputs, None, None)
    assert values.ravel().tolist() == [1.25, -1.0]


def test_nothing_is_forced_for_a_reward_that_does_not_ask():
    engine = ScriptedEngine(RESPONSES, {})
    found = sampler(engine, reward(Length(of="y")), (20,)).sample([QUESTION], 0)
    assert [call[0] for call in engine.calls] == ["generate"]
    assert not len(found.forced.keys)


def test_bare_prefixes_are_graded_without_the_engine():
    engine = ScriptedEngine(RESPONSES, {})
    rule = reward(CutAnswer(of="y", cut=Variable(name="L")), Budgets(budgets=(3, 4, 8), l_max=20))
    found = sampler(engine, rule, (3, 4, 8, 20)).sample([QUESTION], 0)
    assert [call[0] for call in engine.calls] == ["generate"]
    assert (found.unforced_verdicts.keys // found.unforced_verdicts.width).tolist() == [0, 0, 1, 1, 1]
    assert (found.unforced_verdicts.keys % found.unforced_verdicts.width).tolist() == [3, 4, 3, 4, 8]
    assert not found.unforced_verdicts.values.any()
    late = reward(CutAnswer(of="y", cut=Infix(fn="-", left=Length(of="y"), right=Constant(value=1))))
    assert sampler(ScriptedEngine(RESPONSES, {}), late, (20,)).sample(
        [QUESTION], 0
    ).unforced_verdicts.values.tolist() == [True, False]


THOUGHTS = ["<think> a \\boxed{ 7 } wait", "a \\boxed{ 7 } </think> b \\boxed{ 7 } <eos>"]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    ("thinking", "asked", "right", "prefixes"),
    [
        (None, "a b", [1, 1], (((5, True),), ((4, True),))),
        (Thinking(), "a b", [0, 1], ((), ((9, True),))),
        # A prompt that closes the thinking: the first response opens it again, the second one has answered before it.
        (Thinking(), "a </think>", [0, 1], ((), ((4, True), (5, False), (9, True)))),
    ],
)
def test_no_answer_counts_in_thinking_that_is_skipped(early, thinking, asked, right, prefixes):
    engine = ScriptedEngine(THOUGHTS, {(0, 2): "7 }", (1, 2): "7 }", (0, 5): "7 }", (1, 5): "8 }"})
    rule = reward(ForcedAnswer(of="y", cut=Variable(name="L")), Budgets(budgets=(2, 5), l_max=20))
    made = sampler(engine, rule, (2, 5, 20), thinking=thinking)
    engine.tells = ((0, (2, 5)), (1, (2, 5))) if early else ()
    found = made.sample([replace(QUESTION, prompt=ids(asked))], 4)
    assert found.inputs.correct.tolist() == [right]
    assert found.prefix_answers == prefixes
    # Forced answers are asked for, and count wherever they come.
    assert found.forced.values.tolist() == [True, True, True, False]


def test_reasoning_steps_give_each_response_its_own_places():
    rule = reward(
        ForcedAnswer(of="y", cut=Variable(name="L")), Steps(separator=" } ", keywords=("wait",), l_max=20)
    )
    engine = ScriptedEngine(RESPONSES, {(1, 4): "7"})
    found = sampler(engine, rule).sample([QUESTION], 0)
    assert engine.calls[1][1] == [(), (4,)]
    assert found.inputs.split_tokens[0].tolist() == [[8, 8], [4, 9]]
    assert found.inputs.present[0].tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("own", [False, True])
def test_splits_past_a_responses_end_are_left_out(own):
    """The first response has 8 tokens and the second 9; of budgets for all, and of a question's own."""
    value = ForcedAnswer(of="y", cut=Variable(name="L"))
    split = Budgets(budgets=(2, 8, 12), l_max=20, reached=True)
    if own:
        split = QuestionBudgets(rollouts=("a",), l_max=20, reached=True)
    places = (4, 20) if own else (2, 8, 12, 20)
    of_questions = {"question_splits": {"q": places}} if own else {"shared_splits": places}
    engine = ScriptedEngine(RESPONSES, {(n, cut): "7" for n in range(2) for cut in (2, 4, 8)})
    found = sampler(engine, reward(value, split), **of_questions).sample([QUESTION], 0)
    assert engine.calls[1][1] == ([(4,), (4,)] if own else [(2,), (2, 8)])
    assert found.inputs.split_tokens[0].tolist() == ([[4, 8], [4, 9]] if own else [[2, 8, 8], [2, 8, 9]])
    assert found.inputs.present[0].sum(axis=1).tolist() == ([2, 2] if own else [2, 3])


def test_a_metric_and_an_outcome_force_at_their_splits():
    """One number a response: the mean over budgets of whether the forced answer is right."""
    mean = Aggregate(fn="mean", var="M", over="splits", value=ForcedAnswer(of="y", cut=Variable(name="M")))
    rule = Reward(name="r", outcome=mean, split=Budgets(budgets=(4,), l_max=20))
    engine = ScriptedEngine(RESPONSES, {(0, 4): "8", (1, 4): "7"})
    found = sampler(engine, rule, places=(4, 20)).sample([QUESTION], 0)
    assert vectorise(rule, found.inputs, found.forced.look_up, found.unforced_verdicts.look_up)[
        0, :, 0
    ].tolist() == [0.5, 1.0]


def test_draws_depend_on_seed_step_question_and_rollout_alone():
    def seeds(step, seed=9):
        engine = ScriptedEngine(RESPONSES * 2, {})
        sampler(engine, reward(Length(of="y")), (20,), seed=seed).sample([QUESTION, QUESTION], step)
        return engine.calls[0][1]

    assert len(set(seeds(0))) == 4
    assert seeds(3) == seeds(3)
    assert not set(seeds(3)) & (set(seeds(4)) | set(seeds(3, seed=8)))


def test_reference_and_own_budgets_follow_the_question():
    rule = reward(ForcedAnswer(of="y", cut=Variable(name="L")), Budgets(budgets=(4,), l_max=20))
    made = sampler(
        ScriptedEngine(RESPONSES, {(0, 3): "7", (1, 3): "7"}),
        rule,
        question_splits={"q": (3, 20)},
        references={"q": Reference((4.0, 6.0, 8.0), (1.0, 0.0, 1.0))},
    )
    inputs = made.sample([QUESTION], 0).inputs
    assert inputs.split_tokens.tolist() == [[[3, 20]]]
    assert inputs.reference_length is not None
    assert inputs.reference_length.tolist() == [[4, 6, 8]]
    assert made.references["q"].correct == (1.0, 0.0, 1.0)


def test_a_reward_compares_how_long_a_response_and_the_reference_think():
    """A response thinks up to its first `wait`, or for all of its tokens; the reference as it was counted."""
    theirs = Aggregate(fn="mean", var="z", over="ref", value=Attribute(of="z", field="thinking"))
    rule = reward(Infix(fn="-", left=Attribute(of="y", field="thinking"), right=theirs))
    reference = Reference((4.0, 6.0, 8.0), (1.0, 0.0, 1.0), (2.0, 6.0, 1.0))
    made = sampler(
        ScriptedEngine(RESPONSES, {}), rule, (20,), references={"q": reference}, marks=Thinking(close="wait")
    )
    graded = made.sample([QUESTION], 0)
    assert graded.inputs.features["thinking"].tolist() == [[8, 5]]
    values = vectorise(rule, graded.inputs, graded.forced.look_up, graded.unforced_verdicts.look_up)
    assert values.ravel().tolist() == [5, 2]
    responses = [RewardedResponse(n, True, features={"thinking": float(t)}) for n, t in ((8, 8), (9, 5))]
    group = ResponseGroup("q", tuple(responses), reference.responses())
    assert [interpret(rule, group, at) for at in range(2)] == [[5], [2]]


@pytest.mark.parametrize(
    ("text", "continuation", "answer"),
    [
        ("so \\boxed{", "7 } b", "7"),
        ("so \\boxed{", "\\frac{1}{2} } b", "\\frac{1}{2}"),
        ("so \\boxed{", "7", "7"),
        ("</think> in short:", "it is \\boxed{ 8 } .", "8"),
        ("</think> in short:", "it is } b", "it is"),
    ],
)
def test_the_answer_after_a_forcing_text(text, continuation, answer):
    assert answer_after_forcing(Forcing(text=text, answer_tokens=9), continuation) == answer


@pytest.mark.parametrize(
    ("close", "continuation", "answer"),
    [
        ("\n", " 7\nand so on", "7"),
        ("\n", "\n\n 7 a\nand so on", "7 a"),
        ("\n", "7", "7"),
        ("\n", "\n", ""),
        (" ", " 7 and so on", "7"),
        ("\n###", "\n### 7", ""),
    ],
)
def test_an_answer_may_end_with_its_line(close, continuation, answer):
    forcing = Forcing(text="Answer:", answer_tokens=9, close=close)
    assert answer_after_forcing(forcing, continuation) == answer


class Stopping:
    """A verifier that is stopped at the answer 8, fails on 9, and takes 7 for right."""

    def grade(self, answers):
        status = {"8": "timeout", "9": "failed"}
        return [
            Verdict(answer.text == "7", status.get(answer.text, "checked"), "slow" * (answer.text == "8"))
            for answer in answers
        ]


class Noting:
    """Right where texts are equal; notes what is graded together."""

    def __init__(self):
        self.calls = []

    def grade(self, answers):
        self.calls.append([(answer.text, answer.which) for answer in answers])
        return make_verifier("exact").grade(answers)


@pytest.mark.parametrize(
    ("tells", "most"),
    [
        ((), 1),
        # Of the second response one forced answer is not there yet; nothing is known of the first.
        (((1, (5,)),), 3),
        (((1, (2, 5)), (0, (2, 5))), 2),
    ],
    ids=["nothing", "some", "everything"],
)
def test_what_an_engine_tells_early_is_graded_early_and_the_rest_later(tells, most):
    engine = ScriptedEngine(RESPONSES, {(0, 2): "7 }", (1, 2): "8 } <eos>", (0, 5): "8", (1, 5): "7"})
    rule = reward(ForcedAnswer(of="y", cut=Variable(name="L")), Budgets(budgets=(2, 5, 12), l_max=20))
    plain = sampler(engine, rule, (2, 5, 12, 20)).sample([QUESTION], 4)
    verifier = Noting()
    engine.tells = tells
    found = sampler(engine, rule, (2, 5, 12, 20), verifier=verifier).sample([QUESTION], 4)
    # Each answer is graded once, and the step is the same.
    # What is told while others are graded is graded together.
    assert 1 <= len(verifier.calls) <= most
    assert sorted(one for call in verifier.calls for one in call) == sorted(
        [
            *(("7", "0"), ("7", "1")),
            *(("7", "0/2"), ("8", "0/5"), ("8", "1/2"), ("7", "1/5")),
            *(("7", "0:7"), ("8", "1:4"), ("7", "1:9")),
        ]
    )
    assert found.inputs.correct.tolist() == plain.inputs.correct.tolist() == [[1, 1]]
    assert found.forced.values.tolist() == plain.forced.values.tolist() == [True, False, False, True]
    assert found.prefix_answers == plain.prefix_answers


@pytest.mark.parametrize(("ended", "share"), [(7, 1.0), (8, 0.25), (9, 2 / 9)])
def test_a_share_of_answers_is_of_eight_responses_that_ended_or_more(ended, share):
    """Two of them answer; two more were cut off, and have an answer or none."""

    class Cut(ScriptedEngine):
        def generate(self, *arguments, **more):
            responses = super().generate(*arguments, **more)
            return [*responses[:ended], *(replace(each, finish="length") for each in responses[ended:])]

    answered, silent = "so \\boxed{ 7 } <eos>", "a b <eos>"
    texts = [answered] * 2 + [silent] * (ended - 2) + [answered, silent]
    rule = sampler(Cut(texts, {}), reward(Correct(of="y")), (20,), rollouts=len(texts))
    assert rule.sample([QUESTION], 0).answered == pytest.approx(share)


def test_answers_that_were_never_judged_are_counted():
    engine = ScriptedEngine(RESPONSES, {(0, 2): "8 }", (1, 2): "7 }"})
    rule = reward(ForcedAnswer(of="y", cut=Variable(name="L")), Budgets(budgets=(2, 12), l_max=20))
    found = sampler(engine, rule, (2, 12, 20), verifier=Stopping()).sample([QUESTION], 4)
    # One forced answer, and the first box of the second response.
    assert found.unsettled == (("timeout: slow",), ("timeout: slow",))
    row = step_metrics(score(found, method(reward=reward(Correct(of="y")))))
    assert (row["verifier_timeouts"], row["verifier_failures"]) == (2, 0)
