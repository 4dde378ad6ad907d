"""A batch against lists of rows: select, concat and crop, and what a model reads of it."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runners.train.batch import TrainBatch, make_packed, make_padded, unshuffle

CPU = torch.device("cpu")
ROWS = st.lists(
    st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.lists(st.integers(0, 9), max_size=5)),
    min_size=1,
    max_size=6,
)


def batch_of(rows):
    """A batch whose advantages number its trained tokens from 1, every third of which is 0."""
    batch = TrainBatch.of([prompt for prompt, _ in rows], [tokens for _, tokens in rows])
    numbers = torch.arange(1.0, len(batch.weights) + 1)
    return replace(
        batch, advantages=torch.where(numbers % 3 == 0, 0.0, numbers), sampled_mask=numbers % 2 == 0
    )


def rows_of(batch):
    """The rows as lists: prompt, trained tokens, and the columns that the tests fill in."""
    found, trained, place = [], batch.num_trained.tolist(), 0
    for number, count in enumerate(trained):
        first, end = batch.offsets[number : number + 2].tolist()
        own = slice(place, place + count)
        columns = (
            batch.advantages[own].tolist(),
            batch.sampled_mask[own].tolist(),
            batch.weights[own].tolist(),
        )
        found.append(
            (batch.tokens[first : end - count].tolist(), batch.tokens[end - count : end].tolist(), *columns)
        )
        place += count
    assert place == len(batch.weights)
    return found


@given(ROWS, st.data())
def test_rows_are_selected_and_joined_as_lists_are(rows, data):
    batch = batch_of(rows)
    every = rows_of(batch)
    assert [(prompt, tokens) for prompt, tokens, *_ in every] == rows
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    part = batch.select(chosen)
    assert rows_of(part) == [every[i] for i in chosen]
    assert rows_of(TrainBatch.concat([part, batch])) == [every[i] for i in chosen] + every
    assert not len(part.old_logprobs)


@given(ROWS)
def test_a_row_is_cropped_to_its_last_advantage(rows):
    batch = batch_of(rows)
    every = rows_of(batch)
    wanted = [max((i + 1 for i, own in enumerate(row[2]) if own), default=0) for row in every]
    counts = batch.last_advantages()
    assert counts.tolist() == wanted
    cut = [
        (prompt, *(column[:n] for column in columns))
        for (prompt, *columns), n in zip(every, wanted, strict=True)
    ]
    assert rows_of(batch.crop(counts)) == cut


def test_inputs_point_at_what_predicts_each_trained_token():
    batch = TrainBatch.of([(5, 6), (1,)], [(7, 8, 9), (2, 3)])
    rows = torch.tensor([1, 0])
    inputs = make_padded(batch.select(rows), CPU)
    assert inputs.ids.tolist() == [[1, 2, 0, 0], [5, 6, 7, 8]]
    assert inputs.positions.tolist() == [0, 1, 5, 6, 7]
    assert inputs.targets.tolist() == [2, 3, 7, 8, 9]


@pytest.mark.parametrize("rows", [[], [0]])
def test_a_micro_batch_without_rows_is_one_token_from_which_nothing_is_learnt(rows):
    batch = TrainBatch.of([(5,)], [(7, 8)]).select(rows)
    inputs = make_padded(batch, CPU)
    assert inputs.ids.shape == (1, 2 if rows else 1)
    assert len(inputs.positions) == len(inputs.targets) == len(batch.weights) == 2 * len(rows)


TURNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), min_size=1, max_size=3),
        st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.integers(1, 9)), max_size=4),
    ),
    min_size=1,
    max_size=5,
)
"""Rows: a prompt, and trained tokens with what is only read before each."""


@given(TURNS, st.data())
def test_what_is_read_between_trained_tokens_is_learnt_from_nowhere(rows, data):
    every, gaps = [], []
    for _, steps in rows:
        tokens, places = [], []
        for read, own in steps:
            if read:
                places.append((len(tokens), len(read)))
            tokens += [*read, own]
        every.append(tokens)
        gaps.append(places)
    batch = TrainBatch.of([prompt for prompt, _ in rows], every, gaps)
    assert batch.num_trained.tolist() == [len(steps) for _, steps in rows]
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    batch = TrainBatch.concat([batch.select(chosen), TrainBatch.of([(4,)], [(5, 6)])])
    counts = [data.draw(st.integers(0, n)) for n in batch.num_trained.tolist()]
    wanted = [*([*rows[i]] for i in chosen), [[4], [([], 5), ([], 6)]]]
    for cropped, kept in ((batch, batch.num_trained.tolist()), (batch.crop(torch.tensor(counts)), counts)):
        expected, targets = [], []
        for (prompt, steps), count in zip(wanted, kept, strict=True):
            sequence = list(prompt)
            for read, own in steps[:count]:
                sequence += read
                expected.append(sequence[-1])
                targets.append(own)
                sequence.append(own)
        for inputs in (make_padded(cropped, CPU), make_packed(cropped, CPU)):
            assert inputs.ids.flatten()[inputs.positions].tolist() == expected
            assert inputs.targets.tolist() == targets


def test_a_column_is_put_in_the_order_of_rows() -> None:
    counts, column = torch.tensor([2, 0, 1, 3]), torch.tensor([30, 31, 32, 20, 0, 1])
    assert unshuffle(column, torch.tensor([3, 2, 0]), counts).tolist() == [0, 1, 20, 30, 31, 32]
