"""Wordings: budgets drawn into prompts, modes in turn, trained prefixes; parts of a reward by hand."""

import collections
import copy
import json
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.ir.expression import Aggregate, Attribute, Constant, Correct, If, Infix
from reodsl.ir.model import Forcing, Prompt
from reodsl.ir.reward import Part, Reward
from reodsl.ir.training import Advantage, Loss, Optimizer
from reodsl.ir.wording import Wording
from reodsl.language import compile_file
from runners.engine.protocol import Request
from runners.grade import SEPARATOR
from runners.models.tokenizer import word_tokenizer
from runners.rollout.questions import (
    PromptedQuestion,
    Reference,
    Wordings,
    choose_wording,
    fill_answer,
    longest_prefix,
    place_wordings,
)
from runners.train import ppo_stage
from runners.train.gather import batch_of, score
from runners.train.optimizers import build_optimizers
from runners.train.ppo import update
from runners.train.update import Learner
from tests.train.models import small_model
from tests.train.test_update import (
    QUESTIONS,
    ROLLOUTS,
    SETTINGS,
    experience,
    method,
    responses_of,
    with_prefixes,
)

TOKENIZER = word_tokenizer((*"123456789", "q", "within", "tokens", "?", "go", "now"))
QUESTION = PromptedQuestion("one", "q ?", "7")


def words(tokens):
    return TOKENIZER.decode(list(tokens))


def ask(*wordings, step=0, at=0, **changes):
    """The question as each of four rollouts is asked it."""
    asking = Wordings(Prompt(template="{question}"), TOKENIZER, 1, wordings, **changes)
    return asking.ask(QUESTION, step, at, 4)


def test_a_teacher_is_told_the_first_answer_and_the_policy_is_not():
    """Neither text is read for a place of the other."""
    teacher = Wording(question="{answer} within {question} go")
    asking = Wordings(Prompt(template="now {question}"), TOKENIZER, 1, (Wording(),), teacher=teacher)
    one = asking.ask(replace(QUESTION, gold=f"7{SEPARATOR}8"), 0, 0, 1)[0]
    assert (words(one.teacher_prompt), words(one.prompt)) == ("now 7 within q ? go", "now q ?")
    boxed = Wording(question=r"{question} \boxed{{answer}} or \boxed{answer}")
    assert fill_answer(boxed, QUESTION, TOKENIZER)[1] == r"q ? \boxed{7} or \boxed{answer}"
    odd = PromptedQuestion("odd", "go {answer}", "{question} 9")
    assert fill_answer(teacher, odd, TOKENIZER) == (Wording(), "{question} 9 within go {answer} go")


SHORT, LONG = ({"lengths": lengths, "correct": (1.0, 0.0)} for lengths in ((2.0, 5.0), (6.0, 9.0)))


CHOSEN = """
from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import ppo
from std.rewards import outcome

wording some { question = "{question} go", when = CONDITION }
wording short { question = "{question}", when = mean(len(z) for z in ref) < 9 tokens }
wording rest { question = "{question}" }

experiment mine = ppo {
  base    = overthinker
  data    = chain_train { source = file("a.jsonl", columns: columns(meta: ["level"])) }
  reward  = outcome
  steps   = 9 steps
  eval    = chain_suite
  rollout { wordings = [some, short, rest], max_tokens = 64 tokens }
  max_prompt        = 32 tokens
  reference_samples = 2
}
"""


def chosen_by(tmp_path, text):
    """A condition of a wording, in the language."""
    path = tmp_path / "chosen.reo"
    path.write_text(CHOSEN.replace("CONDITION", text))
    compiled = compile_file(path)
    assert compiled.spec is not None, compiled.diagnostics
    arm = compiled.spec.study.arm("mine")
    return arm.checkpoint.experiment.stages[0].method.wordings[0].when


@pytest.mark.parametrize(
    ("text", "reference", "given", "place"),
    [
        ("mean(len(z) for z in ref) < 4 tokens", SHORT, {}, 0),
        ("mean(len(z) for z in ref) < 4 tokens", LONG, {}, 1),
        ("mean(len(z) for z in ref) <= 7.5 tokens", LONG, {}, 0),
        ("mean(correct(z) for z in ref) > 0.5", LONG, {}, 1),
        ("max(len(z) for z in ref) < 6 tokens and x.level > 2", SHORT, {"level": 3.0}, 0),
        ("max(len(z) for z in ref) < 6 tokens and x.level > 2", SHORT, {"level": 2.0}, 1),
    ],
)
def test_a_question_is_asked_in_the_first_wording_that_is_for_it(tmp_path, text, reference, given, place):
    wordings = (
        Wording(question="{question} go", when=chosen_by(tmp_path, text)),
        Wording(question="{question} now"),
    )
    asking = Wordings(
        Prompt(template="{question}"),
        TOKENIZER,
        1,
        wordings,
        choose=partial(choose_wording, wordings, {"one": Reference(**reference)}, 1),
    )
    for step in range(5):
        asked = asking.ask(replace(QUESTION, features=given), step, 0, 4)
        assert {words(one.prompt) for one in asked} == {f"q ? {('go', 'now')[place]}"}
        assert {one.features["mode"] for one in asked} == {float(place)}


def test_a_wording_has_its_share_of_the_questions_that_it_is_for(tmp_path):
    """A question's draw is its own, whatever stands beside it: half of the hard ones, half of what is left, and the rest."""
    hard = chosen_by(tmp_path, "x.level > 2")
    wordings = (Wording(when=hard, share=0.5), Wording(share=0.25), Wording())
    questions = [PromptedQuestion(f"q{n}", "q ?", "7", json.dumps({"level": n % 5})) for n in range(5000)]

    def place(asked, seed=1):
        return {q.id: int(q.features["mode"]) for q in place_wordings(asked, wordings, {}, seed)}

    places = place(questions)
    expected = {True: (0.5, 0.125, 0.375), False: (0.0, 0.25, 0.75)}
    for is_hard, shares in expected.items():
        mine = [places[f"q{n}"] for n in range(5000) if (n % 5 > 2) == is_hard]
        for mode, share in enumerate(shares):
            bound = 4 * math.sqrt(share * (1 - share) / len(mine))
            assert abs(mine.count(mode) / len(mine) - share) <= bound
    assert place(questions[::-2]).items() < places.items()
    other = place(questions, seed=2)
    # Two draws agree where both are in the same wording by chance.
    both = (0.25 + 0.125**2 + 0.375**2) * 0.4 + (0.0625 + 0.5625) * 0.6
    assert abs(sum(other[name] == mode for name, mode in places.items()) / 5000 - both) < 0.03


def test_a_question_is_asked_in_the_same_share_at_every_step():
    wordings = (Wording(question="{question} go", share=0.5), Wording(question="{question} now"))
    for seed in range(9):
        choose = partial(choose_wording, wordings, {}, seed)
        asked = [each for step in range(9) for each in ask(*wordings, step=step, at=step, choose=choose)]
        assert len({each.prompt for each in asked}) == 1


def test_a_question_without_the_number_is_told(tmp_path):
    wordings = (
        Wording(name="hard", question="{question} go", when=chosen_by(tmp_path, "x.level > 2")),
        Wording(),
    )
    with pytest.raises(Problem, match=r"^wording `hard` uses the given number `level`"):
        ask(*wordings, choose=partial(choose_wording, wordings, {}, 1))


def test_a_budget_is_shared_by_a_question_and_drawn_anew_each_step():
    wording = Wording(question="{question} within {budget} tokens", budgets=(2, 4, 8))
    seen = collections.Counter()
    for step in range(300):
        asked = ask(wording, step=step)
        assert len({(one.prompt, one.features["budget"]) for one in asked}) == 1
        budget = int(asked[0].features["budget"])
        assert words(asked[0].prompt) == f"q ? within {budget} tokens"
        seen[budget] += 1
    assert set(seen) == {2, 4, 8}
    assert min(seen.values()) > 60
    ranged = Wording(question="{question} within {budget} tokens", low=3, high=5)
    drawn = {ask(ranged, step=step)[0].features["budget"] for step in range(60)}
    assert drawn == {3.0, 4.0, 5.0}


def test_rollouts_take_wordings_in_turn_or_a_question_takes_one():
    think, not_think = Wording(prefix="go"), Wording(prefix="now")
    asked = ask(think, not_think, learn_prefix=True)
    assert [words(one.prompt) for one in asked] == ["q ? go", "q ? now"] * 2
    assert [one.features["mode"] for one in asked] == [0, 1, 0, 1]
    assert {one.trained_prefix for one in asked} == {1}
    assert {one.trained_prefix for one in ask(think, not_think)} == {0}
    per_question = [ask(think, not_think, per="question", at=at) for at in range(40)]
    assert all(len({one.features["mode"] for one in own}) == 1 for own in per_question)
    assert {own[0].features["mode"] for own in per_question} == {0, 1}


def test_a_prompt_that_its_wording_makes_too_long_is_refused(refusal):
    with pytest.raises(Problem) as caught:
        ask(Wording(question="{question} now now"), longest=3)
    refusal("train/E0933.txt", caught.value, task="tiny.train.s1")


def test_room_is_left_for_the_longest_prefix_behind_the_longest_prompt():
    wordings = (
        Wording(prefix="go now"),
        Wording(prefix="within {budget} tokens go", low=7, high=9),
        Wording(question="{question} now now now now now now", budgets=(2,)),
    )
    for wording in (*wordings, Wording(prefix="now {budget}", budgets=(2, 8))):
        leads = {len(a.prompt) - 2 for step in range(40) for a in ask(wording, step=step)}
        if wording.prefix:
            assert longest_prefix([wording], TOKENIZER) == max(leads)
    assert longest_prefix(wordings, TOKENIZER) == 4
    assert longest_prefix((), TOKENIZER) == 0
    forcing = Forcing(text="go now", answer_tokens=3)
    settings, model = method(wordings=wordings, forcing=forcing), SimpleNamespace(tokenizer=TOKENIZER)
    room = settings.max_prompt + settings.rollout.max_tokens
    for engine, longest in (("sglang", room + 4 + 2 + 3), ("embedded", None)):
        job = SimpleNamespace(resources=SimpleNamespace(engine=engine))
        marks = SimpleNamespace(think_open=None, think_close="now")
        context = SimpleNamespace(loaded=model, job=job, model=marks)
        assert ppo_stage._longest_sequence(context, settings) == longest
        phases = settings.rollout.model_copy(update={"solution": 1, "ending": "go go now"})
        ended = settings.model_copy(update={"rollout": phases})
        assert ppo_stage._longest_sequence(context, ended) == (longest and longest + 3)


def mean_correct(mode):
    same = Infix(fn="==", left=Attribute(of="z", field="mode"), right=mode)
    return Aggregate(
        fn="mean", var="z", over="group", value=Correct(of="z"), where=same, empty=Constant(value=0)
    )


DELTA = 0.2
THINKS = Infix(
    fn=">=",
    left=mean_correct(Constant(value=0)),
    right=Infix(fn="+", left=mean_correct(Constant(value=1)), right=Constant(value=DELTA)),
)
INTER = If(
    test=Infix(fn="==", left=Attribute(of="y", field="mode"), right=Constant(value=0)),
    then=THINKS,
    other=Infix(fn="-", left=Constant(value=1), right=THINKS),
)
HGPO = Reward(name="r", parts=(Part(value=Correct(of="y")), Part(value=INTER, weight=0.5, on="prefix")))


def with_modes(found, lead):
    """The same experience, its rollouts in two modes by turns, the last `lead` tokens of each prompt a prefix."""
    modes = np.array([[0.0, 1.0] * (ROLLOUTS // 2)] * QUESTIONS)
    found.inputs.features["mode"] = modes
    return with_prefixes(found, lead)


@pytest.mark.parametrize("lead", [0, 2])
def test_parts_are_normalised_apart_and_added_where_they_belong(lead):
    """Verdicts by question: 1 0 1 0, 1 1 1 1, 0 0 0 1; modes 0 1 0 1.

    Question 1: thinking is right always, not thinking never: 1 >= 0 + .2, thinking wins. Intra z = +1 -1 +1 -1, inter
    z = +1 -1 +1 -1. Question 2: 1 < 1 + .2: not thinking wins; intra 0, inter -1 +1 -1 +1. Question 3: 0 < .5 + .2:
    not thinking wins; intra: mean 1/4, deviation sqrt(3)/4, so -1/sqrt(3) three times and sqrt(3).
    """
    found = with_modes(experience(small_model()), lead)
    scored = score(found, method(reward=HGPO, advantage=Advantage()))
    root = 3**0.5
    intra = [1, -1, 1, -1, 0, 0, 0, 0, -1 / root, -1 / root, -1 / root, root]
    inter = [1, -1, 1, -1, -1, 1, -1, 1, -1, 1, -1, 1]
    batch = batch_of(scored)
    advantages = batch.advantages.split(batch.num_trained.tolist())
    for own, within, between, response in zip(advantages, intra, inter, responses_of(found), strict=True):
        assert len(own) == lead + len(response.tokens)
        first = max(lead, 1)
        assert own[:first].tolist() == pytest.approx([within + 0.5 * between] * first, rel=1e-6)
        assert own[first:].tolist() == pytest.approx([within] * (len(own) - first), rel=1e-6)


def test_a_prefix_that_is_learnt_is_trained_as_if_it_had_been_sampled():
    """The same tokens, once as prefixes that are learnt and once as the beginnings of sampled responses."""
    lead = 2
    model = small_model()
    base = experience(model)
    led = with_modes(base, lead)
    rule = method(reward=HGPO)
    scored = score(led, rule)
    longer = []
    for one in base.rollouts:
        request, response = one.request, one.response
        prompt, tokens = request.prompt[:-lead], (*request.prompt[-lead:], *response.tokens)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).squeeze(1)
        logprobs = tuple(float(x) for x in own)
        changed = type(response)(tokens, logprobs, logprobs, response.finish, 0)
        longer.append(replace(one, request=Request(prompt, request.seed), response=changed))
    sampled = replace(scored, graded=replace(base, rollouts=tuple(longer)))
    results = []
    for found in (scored, sampled):
        own = copy.deepcopy(model)
        update(Learner.of(own, build_optimizers(own, SETTINGS), 0.5), batch_of(found), rule, 5, 0)
        results.append(torch.cat([p.detach().ravel() for p in own.parameters()]))
    assert float((results[0] - results[1]).abs().mean()) < 1e-5
    start = torch.cat([p.detach().ravel() for p in model.parameters()])
    assert float((results[0] - start).abs().mean()) > 1e-3


def slow_adapt_think(model, found, lead, low, high):
    """Zhang et al. 2025, AdaptThink, response by response, for one token that opens each of two modes.

    The loss is -min(r A, clip(r) A) over all responses, with r = (pi(y) / pi_IS(y)) ^ (1 / |y|), as their code has it;
    pi_IS gives the first token 1/2, and the others what the policy before the step did.
    """
    loss = torch.zeros(())
    for one, right in zip(found.rollouts, found.inputs.correct.ravel(), strict=True):
        request, response = one.request, one.response
        prompt, tokens = request.prompt[:-lead], (*request.prompt[-lead:], *response.tokens)
        logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        new = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).squeeze(1)
        sampled = new.detach().clone()
        sampled[0] = math.log(0.5)
        r = torch.exp((new - sampled).mean())
        # Half of the verdicts stand for the reference.
        advantage = float(right) - 0.5
        loss = loss - torch.minimum(r * advantage, r.clamp(1 - low, 1 + high) * advantage)
    return loss / len(found.rollouts)


@pytest.mark.parametrize("lead", [1, 2])
def test_modes_that_are_given_in_shares_are_trained_as_adapt_think_does(lead):
    """The gradient of one step, by the paper's objective and by the settings that say it."""
    model = small_model()
    found = with_modes(experience(model), lead)
    half = Reward(name="r", outcome=Infix(fn="-", left=Correct(of="y"), right=Constant(value=0.5)))
    rule = method(
        reward=half,
        advantage=Advantage(normalise="none"),
        loss=Loss(ratio="sequence", mode_tokens="shares"),
        loss_mean="response",
        wordings=(Wording(prefix="think"), Wording(prefix="answer")),
        minibatches=1,
        epochs=1,
    )
    assert rule.learns_prefix
    slow = copy.deepcopy(model)
    expected = slow_adapt_think(slow, found, lead, 0.2, 0.2)
    expected.backward()
    still = Optimizer(algorithm="adamw", lr=1e-9, grad_norm=0.0)
    learner = Learner.of(model, build_optimizers(model, still), 0.0)
    row = update(learner, batch_of(score(found, rule)), rule, 5, 0)
    assert row["loss"] == pytest.approx(float(expected.detach()), abs=1e-5)
    for (name, p), q in zip(model.named_parameters(), slow.named_parameters(), strict=True):
        torch.testing.assert_close(p.grad, q[1].grad, atol=1e-5, rtol=1e-3, msg=name)
    # What was not drawn does not count as a difference between trainer and engine.
    assert row["ratio_error"] < 1e-4


def test_a_reward_of_whole_responses_reaches_their_prefixes():
    found = with_modes(experience(small_model()), 2)
    batch = batch_of(score(found, method(loss=Loss(mode_tokens="policy"))))
    for own, response in zip(
        batch.advantages.split(batch.num_trained.tolist()), responses_of(found), strict=True
    ):
        assert len(own) == 2 + len(response.tokens)
        assert len(set(own.tolist())) == 1
