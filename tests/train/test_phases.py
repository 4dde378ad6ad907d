"""Thinking and a solution with tokens of their own, against a loop that draws, looks and ends thinking token by token."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from reodsl.ir import expression as ex
from reodsl.ir.expression import TRACK, Aggregate, Attribute, Constant, Correct, Infix, Length, StepStatistic
from reodsl.ir.reward import Part, Reward, Track
from reodsl.ir.training import Batch, Loss, Monitor, Plateau
from reodsl.ir.training import Sampling as Rule
from reodsl.ir.wording import Wording
from runners.data.draws import derive_seed
from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import Generation, Insertion, Request, TokenSampling
from runners.evaluate.run import sample
from runners.grade import Thinking, make_verifier, read_answer
from runners.models.folder import load
from runners.rollout.grader import Grader, Rollout
from runners.rollout.phases import Phases, count_thinking, draw_phases, force
from runners.rollout.prompts import continuation_tokens
from runners.rollout.questions import (
    PromptedQuestion,
    place_wordings,
    questions_of,
    read_references,
    read_table,
)
from runners.train.gather import batch_of, make_step, score
from runners.train.rollouts import GradedStep
from tests.train.conftest import FORCING, MODEL, Stopped, dump
from tests.train.test_lag import lagging
from tests.train.test_train import OUTCOME, REO, ppo, same

ENDING = "so . </think>"
SHORT = Rule(max_tokens=14, solution=5)


@pytest.fixture(scope="module")
def loaded(bench):
    return load(bench.root / "base" / "checkpoint")


@pytest.fixture(scope="module")
def engine(loaded):
    made = EmbeddedEngine(loaded.model.config, loaded.model.state_dict())
    yield made
    made.close()


def ids(loaded, text):
    return continuation_tokens(loaded.tokenizer, text)


def requests_of(loaded, count=40):
    asked = [f"<q> {n % 3} a +{1 + n % 2} b -1 c +1 ? <think>" for n in range(count)]
    # One in five does not think, and one in five has begun to end its thinking.
    ends = ("", "", "", " </think>", " a 1 +1 2 so")
    return [Request(ids(loaded, text + ends[n % 5]), seed=100 + n) for n, text in enumerate(asked)]


def slowly(loaded, engine, request, thinking, solution, ending):
    """The tokens of a response, their log-probabilities, where thinking was over, and whether by force."""
    stop = (loaded.tokenizer.eos_token_id,)
    tokens, logprobs, over, forced = [], [], None, False
    mark = ids(loaded, "</think>")[0]
    if request.prompt[-1] == mark:
        over = 0
    while True:
        if over is None and tokens and tokens[-1] == mark:
            over = len(tokens)
        if over is None and len(tokens) == thinking:
            over, forced = len(tokens), True
        if over is not None and len(tokens) == over + solution:
            return tokens, logprobs, over, forced, "length"
        read = [*tokens[:over], *(ending if forced else ()), *tokens[over:]] if over is not None else tokens
        drawn = len(tokens)
        asked = Request((*request.prompt, *read), request.seed, drawn)
        (one,) = engine.generate([asked], TokenSampling(1, stop_ids=stop))
        tokens += one.tokens
        logprobs += one.logprobs
        if one.finish == "stop":
            return tokens, logprobs, len(tokens) if over is None else over, forced, "stop"


@pytest.mark.parametrize(("thinking", "solution"), [(9, 5), (20, 2), (1, 1), (30, 9)])
def test_phases_are_those_of_a_loop_over_tokens(loaded, engine, thinking, solution):
    rule = Rule(max_tokens=thinking + solution, solution=solution, ending=ENDING)
    phases = Phases.of(rule, MODEL, loaded.tokenizer)
    requests = requests_of(loaded)
    sampling = TokenSampling(rule.max_tokens, stop_ids=(loaded.tokenizer.eos_token_id,))
    found = draw_phases(engine, requests, sampling, phases)
    kinds = set()
    for request, response in zip(requests, found, strict=True):
        tokens, logprobs, over, forced, finish = slowly(
            loaded, engine, request, thinking, solution, phases.ending
        )
        assert list(response.tokens) == tokens
        assert response.logprobs == pytest.approx(logprobs, abs=2e-5)
        assert phases.thought(request.prompt, response) == over
        assert response.finish == finish
        expected = (Insertion(over, ids(loaded, ENDING)),) if forced else ()
        assert response.inserted == expected
        kinds.add((forced, finish, len(tokens) == over))
    assert len(kinds) >= 3


def test_a_mark_of_several_tokens_ends_thinking_with_its_last(loaded):
    model = MODEL.model_copy(update={"think_close": "so answer"})
    phases = Phases.of(Rule(max_tokens=9, solution=3), model, loaded.tokenizer)
    assert phases.ending == ids(loaded, "so answer")
    tokens = ids(loaded, "a so answer \\boxed{ 1")
    response = Generation(tokens, (0.0,) * len(tokens), (0.0,) * len(tokens), "length", (0,))
    assert phases.thought((1,), response) == 3
    assert phases.go_on((1,), response) == (response, 1)
    assert phases.thought((1,), response.truncate(2)) is None
    # All that a call drew past the solution's end is no part of the response.
    more = response.then(replace(response, finish="stop"))
    assert phases.go_on((1,), more) == (more.truncate(6), 0)
    assert more.truncate(6).finish == "length"


@pytest.mark.parametrize("mark", ["</think>", "so answer", "a"])
def test_thinking_is_counted_up_to_its_mark_without_phases(loaded, engine, mark):
    """A slow look at all beginnings of a response: the first one whose text holds the mark, or all of it."""
    marks = Thinking(close=mark)
    requests = requests_of(loaded)
    sampling = TokenSampling(14, stop_ids=(loaded.tokenizer.eos_token_id,))
    kinds = set()
    for request, response in zip(requests, engine.generate(requests, sampling), strict=True):
        asked, tokens = loaded.tokenizer.decode(list(request.prompt)), list(response.tokens)
        texts = [loaded.tokenizer.decode(tokens[:n]) for n in range(len(tokens) + 1)]
        held = [n for n, text in enumerate(texts) if mark in text]
        expected = 0 if asked.endswith(mark) else held[0] if held else len(tokens)
        assert count_thinking(marks, loaded.tokenizer, request.prompt, response) == expected
        kinds.add((expected == 0, expected == len(tokens)))
    assert len(kinds) >= (1 if mark == "so answer" else 2)
    ended = replace(response, inserted=(Insertion(2, ids(loaded, "c")),))
    assert count_thinking(marks, loaded.tokenizer, (1,), ended) == 2


def test_answers_are_forced_out_of_what_a_response_read(loaded, engine):
    """At each cut the tokens before are read, and what ended the thinking only behind its last token."""
    phases = Phases.of(Rule(max_tokens=14, solution=5, ending=ENDING), MODEL, loaded.tokenizer)
    stop = (loaded.tokenizer.eos_token_id,)
    requests = requests_of(loaded, 10)
    responses = draw_phases(engine, requests, TokenSampling(14, stop_ids=stop), phases)
    assert any(response.inserted for response in responses)
    text, rule = ids(loaded, FORCING.text), TokenSampling(2, 0.0, stop_ids=stop)
    cuts = [tuple(range(len(response.tokens))) for response in responses]
    found = force(engine, requests, responses, cuts, text, rule)
    for request, response, wanted, answers in zip(requests, responses, cuts, found, strict=True):
        for cut, answer in zip(wanted, answers, strict=True):
            ended = response.inserted and cut > response.inserted[0].after
            at = response.inserted[0].after if ended else cut
            read = (*response.tokens[:at], *(phases.ending if ended else ()), *response.tokens[at:cut])
            assert read == response.sequence(cut)
            (slow,) = engine.generate([Request((*request.prompt, *read, *text), 0)], rule)
            assert (answer.cut, answer.tokens) == (cut, slow.tokens)


def test_an_answer_is_read_as_if_the_model_had_ended_its_thinking(loaded):
    grader = Grader(make_verifier("exact"), loaded.tokenizer, (loaded.tokenizer.eos_token_id,), prefixes=True)
    thought, ending, solution = (
        ids(loaded, "a 1 \\boxed{ 2 } so"),
        ids(loaded, ENDING),
        ids(loaded, "\\boxed{ 3 }"),
    )
    tokens = (*thought, *solution)
    response = Generation(tokens, (), (), "length", (0,), (Insertion(len(thought), ending),))
    rollout = Rollout(PromptedQuestion("q", "", "3"), 0, Request((5,), 0), response)
    last = grader.text(response.sequence())
    assert last == grader.text((*thought, *ending, *solution))
    assert grader.read_whole(rollout, last).text == "3"
    # A slow look at all prefixes: the answer of each is in the text that the model has seen by then.
    prefixes = dict(grader.read_prefixes(rollout, last))
    now = ""
    for count in range(len(tokens) + 1):
        text = read_answer(grader.readers, grader.text(response.sequence(count)))
        assert (prefixes[count].text if count in prefixes else now) == text
        now = text
    assert response.count_own(len(response.sequence())) == len(tokens)
    assert [response.count_own(k) for k in range(len(thought) + 1)] == list(range(len(thought) + 1))


PARTS = Reward(
    name="",
    parts=(
        Part(value=Correct(of="y")),
        Part(
            value=Infix(fn="/", left=Attribute(of="y", field="thinking"), right=Constant(value=9.0)),
            on="thinking",
            weight=-0.5,
        ),
        Part(value=Infix(fn="/", left=Length(of="y"), right=Constant(value=9.0)), on="solution", weight=0.25),
    ),
)


def stage(reward=OUTCOME, rule=SHORT, build=ppo, **changes):
    plain = build(reward, steps=3)
    return plain.model_copy(update={"method": plain.method.model_copy(update={"rollout": rule} | changes)})


@pytest.fixture
def steps(bench, monkeypatch):
    """The graded steps of a stage and its method, of a name."""

    def run(name, method_stage):
        from runners.train import ppo_stage

        kept: list[GradedStep] = []

        def keep(sample, method, number, *more):
            def spied(draw):
                kept.append(sample(draw))
                return kept[-1]

            return make_step(spied, method, number, *more)

        monkeypatch.setattr(ppo_stage, "make_step", keep)
        return kept, bench.train(method_stage, name, start="base", data="questions")

    return run


def zscore(values):
    deviation = np.std(values)
    return (np.array(values) - np.mean(values)) / deviation if deviation > 1e-9 else np.zeros(len(values))


@pytest.mark.parametrize("ending", ["read", "policy"])
def test_each_phase_earns_its_own_advantage_and_what_ended_thinking_as_the_loss_says(steps, loaded, ending):
    rule = stage(PARTS, loss=Loss(ending_tokens=ending))
    kept, out = steps(f"phases_parts_{ending}", rule)
    table = pl.read_parquet(out / "rollouts.parquet")
    size, number, ended = rule.method.batch.rollouts, 0, 0
    for graded in kept:
        batch = batch_of(score(graded, rule.method), rule.method.loss)
        found = batch.advantages.split(batch.num_trained.tolist())
        places, drawn, logprobs = (
            column.split(batch.num_trained.tolist())
            for column in (batch.positions, batch.sampled_mask, batch.engine_logprobs)
        )
        for group in range(0, len(graded.rollouts), size):
            members = graded.rollouts[group : group + size]
            thought = [one.response.inserted[0].after if one.response.inserted else None for one in members]
            mark = ids(loaded, "</think>")[0]
            for k, one in enumerate(members):
                if thought[k] is None:
                    own = one.response.tokens
                    thought[k] = own.index(mark) + 1 if mark in own else len(own)
            right = zscore([float(c) for c in graded.inputs.correct[group // size]])
            thinks, lengths = zscore(thought), zscore([len(one.response.tokens) for one in members])
            for k, one in enumerate(members):
                tokens = one.response.tokens
                expected = [
                    right[k] + (-0.5 * thinks[k] if at < thought[k] else 0.25 * lengths[k])
                    for at in range(len(tokens))
                ]
                row, count = group + k, len(one.response.sequence()) - len(tokens)
                trained, own = list(range(len(tokens))), [True] * len(tokens)
                if count:
                    # All that follows the end of the thinking stands after what ended it.
                    trained = [at + count * (at >= thought[k]) for at in trained]
                if count and ending == "policy":
                    expected[thought[k] : thought[k]] = [expected[thought[k] - 1]] * count
                    trained[thought[k] : thought[k]] = range(thought[k], thought[k] + count)
                    own[thought[k] : thought[k]] = [False] * count
                assert found[row].tolist() == pytest.approx(expected, abs=1e-5)
                # The row is what the model read, and each place is of a token after the prompt.
                begin = int(batch.offsets[row])
                read = batch.tokens[begin : int(batch.offsets[row + 1])].tolist()
                assert read == [*one.request.prompt, *one.response.sequence()]
                assert [at - len(one.request.prompt) for at in places[row].tolist()] == trained
                assert drawn[row].tolist() == own
                assert logprobs[row][drawn[row]].tolist() == pytest.approx(one.response.logprobs, abs=1e-6)
                assert table["thinking"][number] == thought[k]
                assert table["thinking_ended"][number] == bool(one.response.inserted)
                ended += bool(one.response.inserted)
                number += 1
    assert 0 < ended < number
    metrics = pl.read_parquet(out / "metrics.parquet")
    by_step = (
        table.group_by("step").agg(pl.col("thinking", "thinking_ended").cast(pl.Float64).mean()).sort("step")
    )
    for name in ("thinking", "thinking_ended"):
        assert metrics[name].to_list() == pytest.approx(by_step[name].to_list())


def test_what_ended_thinking_earns_as_the_token_before_it_at_budgets_too(steps):
    rule = KINDS["dense trained"]
    kept, _ = steps("phases_dense_tokens", rule)
    ended = 0
    for graded in kept:
        every = batch_of(score(graded, rule.method), rule.method.loss)
        own = batch_of(score(graded, rule.method.model_copy(update={"loss": Loss()})))
        assert every.advantages[every.sampled_mask].tolist() == own.advantages.tolist()
        given = (~every.sampled_mask).nonzero().flatten()
        assert every.advantages[given].tolist() == every.advantages[given - 1].tolist()
        ended += len(given)
    assert ended


def test_the_engines_numbers_are_those_of_the_whole_sequence(steps, loaded):
    """Log-probabilities of the solution are given the ending, by a plain pass of `transformers`."""
    kept, _ = steps("phases_logprobs", stage())
    batch = batch_of(score(kept[0], stage().method))
    for row, one in enumerate(kept[0].rollouts):
        read = torch.tensor([[*one.request.prompt, *one.response.sequence()]])
        with torch.no_grad():
            logits = loaded.model(read).logits[0].log_softmax(-1)
        ends = batch.num_trained.cumsum(0)
        places = batch.positions[int(ends[row]) - int(batch.num_trained[row]) : int(ends[row])]
        expected = [float(logits[at - 1, read[0, at]]) for at in places.tolist()]
        assert one.response.logprobs == pytest.approx(expected, abs=1e-4)


CUT, SHARES, POLICY = (
    Rule(max_tokens=32, solution=4, ending=ENDING),
    (0.3, 0.7),
    Loss(ending_tokens="policy"),
)


def test_whole_responses_are_cut_at_shares_of_their_tokens_and_go_on(steps, loaded, engine):
    """JET's rollouts: each is drawn again alone, token by token after a cut, and read by a plain pass of `transformers`."""
    rule = stage(OUTCOME, CUT, cut_at=SHARES, batch=Batch(prompts=4, rollouts=6), loss=POLICY)
    (graded, *_), out = steps("phases_cut", rule)
    stop, ending = (loaded.tokenizer.eos_token_id,), ids(loaded, ENDING)
    lengths, finishes = set(), set()
    for start in range(0, 24, 6):
        members = graded.rollouts[start : start + 6]
        whole = [one.response for one in members[:2]]
        for one in members[:2]:
            (slow,) = engine.generate([one.request], TokenSampling(32, stop_ids=stop))
            assert (one.response.tokens, one.response.inserted) == (slow.tokens, ())
        for at, one in enumerate(members[2:]):
            base, response = whole[at % 2], one.response
            cut = max(1, int(SHARES[at // 2] * len(base.tokens)))
            assert response.inserted == (Insertion(cut, ending),)
            tokens, finish = list(base.tokens[:cut]), "length"
            while len(tokens) < min(cut + 4, 32) and finish == "length":
                prompt = (*one.request.prompt, *tokens[:cut], *ending, *tokens[cut:])
                (more,) = engine.generate(
                    [Request(prompt, one.request.seed, len(tokens))], TokenSampling(1, stop_ids=stop)
                )
                tokens += more.tokens
                finish = more.finish
            assert (list(response.tokens), response.finish) == (tokens, finish)
            lengths.add(cut)
            finishes.add(finish)
            read = torch.tensor([[*one.request.prompt, *response.sequence()]])
            with torch.no_grad():
                logits = loaded.model(read).logits[0].log_softmax(-1)
            begin = len(one.request.prompt)
            places = [begin + n + len(ending) * (n >= cut) for n in range(len(tokens))]
            expected = [float(logits[place - 1, read[0, place]]) for place in places]
            assert list(response.logprobs) == pytest.approx(expected, abs=1e-4)
    assert len(lengths) > 3
    assert finishes == {"stop", "length"}
    table = pl.read_parquet(out / "rollouts.parquet")
    assert table["thinking_ended"].to_list() == [n % 6 >= 2 for n in range(len(table))]
    batch = batch_of(score(graded, rule.method), rule.method.loss)
    assert int((~batch.sampled_mask).sum()) == 16 * len(ending)


LIMIT = StepStatistic(fn="quantile", var="z", over="monitor", value=Length(of="z"), at=Constant(value=0.75))
WITHIN = Infix(fn="<=", left=Length(of="y"), right=ex.Variable(name=f"{TRACK}limit"))
MONITORED = Reward(name="", outcome=WITHIN, tracks=(Track(name="limit", value=LIMIT),))
MONITOR = Monitor(questions=3, samples=2, every=2)
LEVEL = Plateau(metric="train.length", window=1, within=0.3)

KINDS = {
    "outcome": stage(PARTS),
    "dense": stage(REO, Rule(max_tokens=32, solution=27)),
    "lag": stage(PARTS, build=lagging),
    "dense trained": stage(REO, Rule(max_tokens=32, solution=27), loss=Loss(ending_tokens="policy")),
    "until": stage(PARTS).model_copy(update={"steps": 9, "plateau": LEVEL}),
    "monitor": stage(MONITORED, monitor=MONITOR),
    "cut": stage(OUTCOME, CUT, cut_at=SHARES, batch=Batch(prompts=3, rollouts=6), loss=POLICY),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_stage_ends_with_the_same_bytes(bench, kind):
    rule = KINDS[kind]
    name = f"phases_{kind.replace(' ', '_')}"
    whole = bench.train(rule, f"{name}_whole", start="base", data="questions")
    assert pl.read_parquet(whole / "rollouts.parquet")["thinking_ended"].any()
    saved = rule.model_copy(update={"save_every": 1})
    with pytest.raises(Stopped):
        bench.train(saved, name, start="base", data="questions", stop_at=1)
    same(whole, bench.train(saved, name, start="base", data="questions"))


def test_a_plateau_is_one_of_the_model_s_own_tokens(bench):
    """The stage ends at the first step whose mean length rises by little. Up to there it is the stage without a plateau."""
    rule = KINDS["until"]
    out = bench.train(rule, "phases_level", start="base", data="questions")
    table = pl.read_parquet(out / "rollouts.parquet")
    means = table.group_by("step").agg(pl.col("tokens").mean()).sort("step")["tokens"].to_list()
    rises = [after - before for before, after in itertools.pairwise(means)]
    assert len(means) < rule.steps
    assert [rise <= LEVEL.within for rise in rises] == [False] * (len(rises) - 1) + [True]
    assert json.loads((out / "train.json").read_text())["ended"] == "plateau"
    plain = rule.model_copy(update={"steps": len(means), "plateau": None})
    other = bench.train(plain, "phases_steps", start="base", data="questions")
    assert (out / "rollouts.parquet").read_bytes() == (other / "rollouts.parquet").read_bytes()


def test_the_monitor_set_is_answered_in_phases(bench, loaded, engine):
    """By the loop over tokens, and a track reads lengths that do not count what ended the thinking."""
    rule = KINDS["monitor"]
    out = bench.train(rule, "phases_monitor_loop", start="base", data="questions")
    table = pl.read_parquet(out / "monitor.parquet").filter(pl.col("step") == 1)
    texts = dict(
        pl.read_parquet(bench.root / "questions" / "questions.parquet").select("id", "question").iter_rows()
    )
    seed, ending = derive_seed(derive_seed(1, "stage", 0), "monitor"), ids(loaded, "</think>")
    thinking = SHORT.max_tokens - SHORT.solution
    for number, row in enumerate(table.iter_rows(named=True)):
        place, sample = divmod(number, MONITOR.samples)
        request = Request(ids(loaded, texts[row["question"]]), derive_seed(seed, "rollout", 0, place, sample))
        tokens, _, over, forced, finish = slowly(loaded, engine, request, thinking, SHORT.solution, ending)
        found = (row["tokens"], row["thinking"], row["thinking_ended"], row["finish"])
        assert found == (len(tokens), over, forced, finish)
    assert table["thinking_ended"].any()
    limits = pl.read_parquet(out / "metrics.parquet")["track_limit"].to_list()
    # Of six the fifth is the least that 75% do not exceed.
    assert limits[:2] == [table["tokens"].sort()[4]] * 2


def test_a_reward_without_phases_reads_how_long_responses_think(bench, loaded):
    value = Infix(fn="/", left=Attribute(of="y", field="thinking"), right=Length(of="y"))
    reward = Reward(name="", outcome=value, tracks=MONITORED.tracks)
    wordings = (Wording(prefix="</think>"), Wording(prefix="a"))
    rule = stage(reward, Rule(max_tokens=24), wordings=wordings, monitor=MONITOR)
    out = bench.train(rule, "thinking", start="base", data="questions")
    table = pl.read_parquet(out / "rollouts.parquet")
    for row in table.iter_rows(named=True):
        tokens = ids(loaded, row["text"])
        mark = tokens.index(*ids(loaded, "</think>")) + 1 if "</think>" in row["text"] else row["tokens"]
        assert row["thinking"] == (mark if row["mode"] else 0)
        assert row["reward"] == pytest.approx(row["thinking"] / row["tokens"])
    assert table["thinking"].n_unique() > 2
    assert not table["thinking_ended"].any()
    # No reward reads those of the monitor set, and they are counted like the others.
    assert pl.read_parquet(out / "monitor.parquet")["thinking"].max() > 0


@pytest.mark.parametrize("build", [ppo, lagging])
def test_a_question_is_asked_alike_as_a_plan_counts_it(bench, build):
    """In the tier of the reference's thinking or by a share: in every step, with a lag, and after an interruption."""
    sampled = {"model": dump(MODEL), "rollout": dump(SHORT), "samples": 1, "seed": 1, "thinking": True}
    sampled["grading"] = {"verifier": "exact"}
    if not (bench.root / "thought").exists():
        bench.run("sample", sample, sampled, {"start": "base", "data": "questions"}, "thought")
    theirs = Aggregate(fn="mean", var="z", over="ref", value=Attribute(of="z", field="thinking"))
    short = Infix(fn="<", left=theirs, right=Constant(value=9.0))
    wordings = (Wording(prefix="a", when=short, share=0.5), Wording(prefix="</think>", share=0.25), Wording())
    rule = stage(OUTCOME, SHORT, build, wordings=wordings, reference_samples=1)
    inputs = {"start": "base", "data": "questions", "reference": "thought"}
    whole = bench.train(rule, f"asked_{build.__name__}", **inputs)
    table = pl.read_parquet(whole / "rollouts.parquet").select("question", "mode").unique()
    asked = dict(table.iter_rows())
    assert table.height == len(asked) > 6
    thought = dict(
        pl.read_parquet(bench.root / "thought" / "samples.parquet").select("question", "thinking").iter_rows()
    )
    assert all(thought[question] < 9 for question, mode in asked.items() if mode == 0)
    assert set(asked.values()) == {0, 1, 2}
    told = json.loads((whole / "train.json").read_text())
    known = read_references(bench.root / "thought", 1)
    met = [each for each in questions_of(read_table(bench.root / "questions")) if each.id in known]
    modes = [each.features["mode"] for each in place_wordings(met, wordings, known, 1)]
    assert [told[f"asked_mode_{mode}"] for mode in range(3)] == [modes.count(mode) for mode in range(3)]
    saved, name = rule.model_copy(update={"save_every": 1}), f"asked_{build.__name__}_stopped"
    with pytest.raises(Stopped):
        bench.train(saved, name, **inputs, stop_at=1)
    same(whole, bench.train(saved, name, **inputs))


def test_a_response_that_does_not_think_has_a_solution_alone(bench):
    wordings = (Wording(prefix="</think>"), Wording(prefix="a"))
    out = bench.train(stage(PARTS, wordings=wordings), "phases_modes", start="base", data="questions")
    table = pl.read_parquet(out / "rollouts.parquet")
    silent = table.filter(pl.col("mode") == 0)
    assert silent["thinking"].to_list() == [0] * silent.height
    assert silent["tokens"].max() <= SHORT.solution
    assert not silent["thinking_ended"].any()
    assert table.filter(pl.col("mode") == 1)["thinking"].min() > 0
