"""Responses of several turns, by the embedded engine, against a sampler that reads everything anew for each token."""

import random
from dataclasses import replace

import pytest

from runners.conversations import EarlierTurn, calls_of, converse, force, turn_text, turns_before
from runners.draws import forced_seed, hash_seeds, uniforms, wrap_seeds
from runners.engine.protocol import Generation, Inserted, Request, TokenSampling
from tests.conversations.counting import SAMPLING, Next, Words, talk
from tests.engine.engine_reference import (
    STOP,
    engine_of,
    make_model,
    make_requests,
    reference_continue,
    reference_draw,
    reference_logits,
)


@pytest.fixture(scope="module")
def model():
    return make_model("qwen3-gqa-tied")


def slow(model, request, sampling, one, facts):
    """A response token by token: its own tokens, their log-probabilities, what was inserted, its turns, and its end."""
    stream, words = hash_seeds(wrap_seeds([request.seed])), Words()
    own, logprobs, inserted, turns, begun = [], [], [], [], 0
    sequence = list(request.prompt)
    while True:
        uniform = float(uniforms(stream, len(own))[0])
        drawn = reference_draw(reference_logits(model, sequence)[-1], uniform, sampling)
        own.append(drawn.token)
        logprobs.append(drawn.logprob)
        sequence.append(drawn.token)
        if drawn.token not in sampling.stop_ids:
            if len(own) == sampling.max_tokens or len(sequence) == one.context:
                return own, logprobs, inserted, turns, "length"
            continue
        text = words.decode(own[begun:-1])
        calls = calls_of(text)
        if not calls or len(turns) + 1 == one.turns:
            return own, logprobs, inserted, turns, "stop"
        row = {"meta": facts, "turns": [], "text": text, "calls": calls}
        said = Next.answer({**row, "state": turns[-1].state if turns else None})
        if said is None:
            return own, logprobs, inserted, turns, "stop"
        words_said = [7, *map(int, " ".join(said["replies"]).split()), 8]
        if len(own) == sampling.max_tokens or len(sequence) + len(words_said) >= one.context:
            return own, logprobs, inserted, turns, "length"
        inserted.append((len(own), tuple(words_said)))
        turns.append(EarlierTurn(text, tuple(calls), tuple(said["replies"]), said["state"]))
        sequence += words_said
        begun = len(own)


@pytest.mark.parametrize(("context", "most"), [(500, 4), (30, 4), (500, 2)])
def test_turns_are_those_of_a_slow_sampler(model, context, most):
    requests = make_requests(6, 4, seed=3)
    one = talk(context=context, turns=most)
    responses, turns = converse(
        engine_of(model, rows=7), requests, SAMPLING, [one] * len(requests), ['{"x": 1}'] * len(requests)
    )
    ends = set()
    for request, response, before in zip(requests, responses, turns, strict=True):
        own, logprobs, inserted, wanted, finish = slow(model, request, SAMPLING, one, {"x": 1})
        assert list(response.tokens) == own
        assert response.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert len(response.behaviour) == len(own)
        assert [(each.after, each.tokens) for each in response.inserted] == inserted
        assert (list(before), response.finish) == (wanted, finish)
        assert len(request.prompt) + len(response.sequence()) <= context
        ends.add((len(before), finish))
    counts = {count for count, _ in ends}
    assert counts >= {0, 1}
    assert max(counts) < most
    assert 2 in counts or (context, most) != (500, 4)
    assert {finish for _, finish in ends} == {"stop", "length"}
    assert all(row["meta"] == {"x": 1} for row in one.function.rows)


def test_a_response_does_not_depend_on_what_runs_beside_it(model):
    requests = make_requests(5, 3, seed=4)
    together, _ = converse(engine_of(model), requests, SAMPLING, [talk()] * 15, [""] * 15)
    for request, response in zip(requests, together, strict=True):
        (alone,), _ = converse(engine_of(model), [request], SAMPLING, [talk()], [""])
        assert (alone.tokens, alone.inserted) == (response.tokens, response.inserted)


def test_without_a_talk_it_is_one_turn(model):
    requests = make_requests(3, 2, seed=5)
    responses, turns = converse(engine_of(model), requests, SAMPLING, [None] * 6, [""] * 6)
    assert responses == engine_of(model).generate(requests, SAMPLING)
    assert turns == [()] * 6


def test_answers_are_forced_within_the_turn_of_their_cut(model):
    requests = make_requests(6, 4, seed=3)
    responses, _ = converse(engine_of(model), requests, SAMPLING, [talk()] * 24, [""] * 24)
    cuts = [
        sorted({0, len(r.tokens), 99, *(i.after + d for i in r.inserted for d in (-1, 0, 1))})
        for r in responses
    ]
    greedy, words = TokenSampling(3, temperature=0.0, stop_ids=(STOP,)), (9, 10)
    forced = force(engine_of(model), requests, responses, cuts, words, greedy)
    seen = 0
    for request, response, wanted, answers in zip(requests, responses, cuts, forced, strict=True):
        assert [answer.cut for answer in answers] == wanted
        for answer in answers:
            if answer.cut >= len(response.tokens):
                assert answer.tokens == ()
                continue
            prefix = [*request.prompt, *response.sequence(answer.cut), *words]
            seed = forced_seed(request.seed, answer.cut)
            assert list(answer.tokens) == reference_continue(model, prefix, seed, greedy)[0]
            seen += any(each.after <= answer.cut for each in response.inserted)
    assert seen > 10


def test_a_forced_answer_has_the_stream_of_its_cut_in_the_response(model):
    """Drawn, and not greedily: in the second turn as if the response had one."""
    request = Request((3, 4, 5), 77)
    response = Generation((6, 7, 8, 9, 10), (), (), "stop", (0,), (Inserted(2, (11, 12)),))
    drawn = TokenSampling(6, temperature=1.5, stop_ids=(STOP,))
    ((early, late),) = force(engine_of(model), [request], [response], [[1, 4]], (13,), drawn)
    for one, prefix in ((early, (3, 4, 5, 6, 13)), (late, (3, 4, 5, 6, 7, 11, 12, 8, 9, 13))):
        assert list(one.tokens) == reference_continue(model, prefix, forced_seed(77, one.cut), drawn)[0]


def test_a_request_has_a_limit_of_its_own(model):
    requests = make_requests(4, 3, seed=6)
    plain = replace(SAMPLING, stop_ids=(STOP,))
    whole = engine_of(model).generate(requests, plain)
    rng = random.Random(0)
    limits = [rng.randint(1, 30) for _ in requests]
    limited = [replace(request, most=most) for request, most in zip(requests, limits, strict=True)]
    for response, most, full in zip(
        engine_of(model, rows=5).generate(limited, plain), limits, whole, strict=True
    ):
        assert response.tokens == full.tokens[:most]
        assert response.finish == ("stop" if response.tokens[-1] == STOP else "length")


def test_what_was_inserted_stands_where_it_was_heard():
    response = Generation((1, 2, 3, 4), (), (), "stop", (0,), (Inserted(1, (8,)), Inserted(3, (9, 9))))
    assert response.sequence() == (1, 8, 2, 3, 9, 9, 4)
    assert [response.sequence(count) for count in range(4)] == [(), (1, 8), (1, 8, 2), (1, 8, 2, 3, 9, 9)]
    assert turn_text(response, Words(), (4,)) == ""
    turns = (EarlierTurn("a", (), ("x",)), EarlierTurn("b", (), ("y",)))
    assert [turns_before(turns, response, cut).count("text") for cut in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert turns_before(turns, response).count("text") == 2
