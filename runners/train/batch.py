"""Sequences to learn from, as columns: one record from the rollout to the loss, cut into micro-batches."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from runners.train.attention import PackedSequences
from runners.train.ranks import Ranks

NO_VALUES, NO_TOKENS = torch.zeros(0), torch.zeros(0, dtype=torch.int32)
ROW_COLUMNS = ("tokens", "offsets", "num_trained", "teacher_tokens", "teacher_offsets")


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """Rows of tokens to train on, as columns: row i is `tokens[offsets[i]:offsets[i + 1]]`, a prompt and a response.

    The prompt is only read, and so are an environment's tokens between trained tokens. Columns after `num_trained` have
    one value for each trained token, row after row, or are empty if nobody needs them.

    A teacher with a wording of its own reads `teacher_tokens[teacher_offsets[i]:teacher_offsets[i + 1]]` instead of row
    i's prompt; both are empty if it reads the row as it is.
    """

    tokens: Tensor
    """Token ids of all rows, one row after another, [tokens of all rows]."""
    offsets: Tensor
    """The start of each row in `tokens`, and the end of the last row, [rows + 1]."""
    num_trained: Tensor
    """The number of trained tokens of each row, [rows]; the last of them ends the row."""
    positions: Tensor = NO_VALUES
    """The number of tokens of its row before each trained token, [trained tokens]. Never empty."""
    weights: Tensor = NO_VALUES
    """The factor of each token's loss, which carries the mean over the batch."""
    advantages: Tensor = NO_VALUES
    """The advantage of each token."""
    importance: Tensor = NO_VALUES
    """The trainer's probability over the engine's, as the method bounds it; multiplies the policy's term."""
    sampled_mask: Tensor = NO_VALUES
    """True if the engine sampled the token; false for a trained token of the engine's prompt."""
    engine_logprobs: Tensor = NO_VALUES
    """`logprobs` of `Generation`; 0 for a token that the engine did not sample."""
    sampling_logprobs: Tensor = NO_VALUES
    """`sampling_logprobs` of `Generation`; 0 for a token that the engine did not sample."""
    old_logprobs: Tensor = NO_VALUES
    """The log-probabilities that ratios divide by."""
    reference_logprobs: Tensor = NO_VALUES
    """The log-probabilities of the reference model."""
    topk_ids: Tensor = NO_VALUES
    """The k tokens that the reference model finds most likely, [trained tokens, k]."""
    topk_logprobs: Tensor = NO_VALUES
    """Their log-probabilities, and last that of all other tokens together, [trained tokens, k + 1]."""
    teacher_tokens: Tensor = NO_TOKENS
    """Token ids of the teacher's prompts, one after another."""
    teacher_offsets: Tensor = NO_TOKENS
    """The start of each teacher's prompt, and the end of the last, [rows + 1]."""

    @staticmethod
    def of(
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[Sequence[int]],
        gaps: Sequence[Sequence[tuple[int, int]]] | None = None,
        teacher: Sequence[Sequence[int]] = (),
    ) -> TrainBatch:
        """Return rows of prompts and the trained tokens after them; every weight is 1.

        Args:
            prompts: Token ids of each row's prompt.
            tokens: Token ids of each row's response.
            gaps: Spans of each response that are only read, as (first, count) among its tokens, in order.
            teacher: The prompts that a teacher reads instead, if it has its own.
        """
        lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, tokens, strict=True)]
        every = chain.from_iterable(span for pair in zip(prompts, tokens, strict=True) for span in pair)
        after = torch.tensor([len(response) for response in tokens], dtype=torch.int64)
        positions = _ranges(torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int64), after)
        trained = after
        if gaps is not None and any(gaps):
            mask = torch.ones(len(positions), dtype=torch.bool)
            for begin, row in zip(_offsets(after).tolist(), gaps, strict=False):
                for first, count in row:
                    mask[begin + first : begin + first + count] = False
            positions = positions[mask]
            trained = after - torch.tensor([sum(count for _, count in row) for row in gaps])
        return TrainBatch(
            torch.from_numpy(np.fromiter(every, dtype=np.int32, count=sum(lengths))),
            _offsets(torch.tensor(lengths, dtype=torch.int64)),
            trained,
            positions,
            weights=torch.ones(len(positions)),
            teacher_tokens=torch.tensor([*chain.from_iterable(teacher)], dtype=torch.int32),
            teacher_offsets=_offsets(torch.tensor([*map(len, teacher)])) if teacher else NO_TOKENS,
        )

    @staticmethod
    def concat(batches: Sequence[TrainBatch]) -> TrainBatch:
        """Concatenate batches, which all have the same columns."""
        if len(batches) == 1:
            return batches[0]
        columns = {
            name: torch.cat([getattr(batch, name) for batch in batches])
            for name in ("tokens", "num_trained", "teacher_tokens", *TOKEN_COLUMNS)
        }
        counts = [batch.teacher_offsets.diff() for batch in batches if len(batch.teacher_offsets)]
        return TrainBatch(
            offsets=_offsets(torch.cat([batch.lengths for batch in batches])),
            teacher_offsets=_offsets(torch.cat(counts)) if counts else NO_TOKENS,
            **columns,
        )

    def __len__(self) -> int:
        return len(self.num_trained)

    @property
    def lengths(self) -> Tensor:
        """The tokens of each row, prompt included.

        Returns:
            [rows].
        """
        return self.offsets.diff()

    def select(self, rows: Sequence[int] | Tensor) -> TrainBatch:
        """Return a batch of some rows.

        Args:
            rows: Indices of rows, in the order that the result has.
        """
        indices = torch.as_tensor(rows, dtype=torch.int64)
        lengths, trained = self.lengths[indices], self.num_trained[indices]
        teacher, offsets = self.teacher_tokens, self.teacher_offsets
        if len(offsets):
            counts = offsets.diff()[indices]
            teacher, offsets = _gather(teacher, _slices(offsets[indices], counts)), _offsets(counts)
        return TrainBatch(
            _gather(self.tokens, _slices(self.offsets[indices], lengths)),
            _offsets(lengths),
            trained,
            teacher_tokens=teacher,
            teacher_offsets=offsets,
            **self._columns(_slices(_offsets(self.num_trained)[indices], trained)),
        )

    def teacher_rows(self) -> TrainBatch:
        """Return the rows as the teacher reads them: its prompts, then the same trained tokens, without other columns."""
        if not len(self.teacher_offsets):
            return self
        ends = torch.cat((self.positions, torch.zeros(1, dtype=torch.int32)))
        # A row without a trained token is run by nobody.
        prompts = torch.where(self.num_trained > 0, ends[_offsets(self.num_trained)[:-1]], 0)
        counts, rest = self.teacher_offsets.diff(), self.lengths - prompts
        heads = _slices(self.teacher_offsets[:-1], counts)
        tails = _slices(self.offsets[:-1] + prompts, rest)
        parts = [
            column[span]
            for pair in zip(heads, tails, strict=True)
            for column, span in zip((self.teacher_tokens, self.tokens), pair, strict=True)
        ]
        return TrainBatch(
            torch.cat(parts) if parts else self.tokens,
            _offsets(counts + rest),
            self.num_trained,
            self.positions + torch.repeat_interleave(counts - prompts, self.num_trained),
        )

    def crop(self, counts: Tensor) -> TrainBatch:
        """Return each row up to the end of some of its trained tokens.

        Args:
            counts: How many trained tokens stay of each row, [rows].
        """
        if torch.equal(counts, self.num_trained):
            return self
        firsts = _offsets(self.num_trained)[:-1]
        # Without a token it ends before its first.
        ends = torch.cat((self.positions, torch.zeros(1, dtype=torch.int32)))
        last = ends[firsts + (counts - 1).clamp(min=0)] + counts.clamp(max=1)
        lengths = torch.where(self.num_trained > 0, last, self.lengths)
        return TrainBatch(
            _gather(self.tokens, _slices(self.offsets[:-1], lengths)),
            _offsets(lengths),
            counts,
            teacher_tokens=self.teacher_tokens,
            teacher_offsets=self.teacher_offsets,
            **self._columns(_slices(firsts, counts)),
        )

    def last_advantages(self) -> Tensor:
        """Return how many trained tokens each row has up to its last token with an advantage.

        Returns:
            [rows].
        """
        ends = _offsets(self.num_trained)
        counts = self.num_trained.clone()
        at_end = torch.cat((self.advantages, torch.ones(1)))[ends[1:] - 1] != 0
        # In most rows it is the last token; only the others are looked through.
        for row in (~at_end & (counts > 0)).nonzero().flatten().tolist():
            moved = self.advantages[ends[row] : ends[row + 1]].nonzero()
            counts[row] = moved[-1, 0] + 1 if len(moved) else 0
        return counts

    def to(self, device: torch.device) -> TrainBatch:
        """Return the batch on a device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def _columns(self, spans: Slices) -> dict[str, Tensor]:
        """Return the columns of the trained tokens in these slices."""
        every = {name: getattr(self, name) for name in TOKEN_COLUMNS}
        return {name: _gather(column, spans) if len(column) else column for name, column in every.items()}


def broadcast_batch(ranks: Ranks, batch: TrainBatch | None) -> TrainBatch:
    """Return rank 0's batch on all processes; the other ranks give None."""
    columns = [] if batch is None else [getattr(batch, column.name) for column in fields(batch)]
    return TrainBatch(*ranks.broadcast_tensors(columns))


TOKEN_COLUMNS = tuple(each.name for each in fields(TrainBatch) if each.name not in ROW_COLUMNS)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of a batch that are run at once, as a model reads them."""

    columns: TrainBatch
    """The rows."""
    ids: Tensor
    """Token ids, [rows, width], padded on the right; or [1, tokens], packed, with `sequences` as the boundaries of rows."""
    positions: Tensor
    """The flat positions in `ids` whose outputs predict the trained tokens, [trained tokens]."""
    targets: Tensor
    """The trained tokens, [trained tokens]."""
    sequences: PackedSequences | None = None


def make_packed(batch: TrainBatch, device: torch.device) -> MicroBatch:
    """Return rows as a micro-batch without padding. Without rows the micro-batch is a single token with no gradient."""
    # The last token is never an input: nothing is predicted from it.
    lengths = batch.lengths - 1
    ids = (
        _gather(batch.tokens, _slices(batch.offsets[:-1], lengths)).long()
        if len(batch)
        else torch.zeros(1, dtype=torch.int64)
    )
    firsts = _offsets(lengths)
    flat = _predictors(firsts[:-1], batch)
    positions = _ranges(torch.zeros_like(lengths), lengths).long() if len(batch) else ids
    starts = (firsts if len(batch) else torch.tensor([0, 1])).to(torch.int32)
    sequences = PackedSequences(
        positions[None].to(device), starts.to(device), tuple(lengths.tolist()) if len(batch) else (1,)
    )
    return MicroBatch(
        batch.to(device), ids[None].to(device), flat.to(device), _targets(batch).to(device), sequences
    )


def make_padded(batch: TrainBatch, device: torch.device) -> MicroBatch:
    """Return rows as a micro-batch of one width. Without rows the micro-batch is a single token with no gradient."""
    # The last token is never an input: nothing is predicted from it.
    lengths = batch.lengths - 1
    width = max(int(lengths.max()), 1) if len(batch) else 1
    ids = torch.zeros((max(len(batch), 1), width), dtype=torch.int32)
    firsts = torch.arange(len(batch)) * width
    ids.view(-1)[_ranges(firsts, lengths)] = _gather(batch.tokens, _slices(batch.offsets[:-1], lengths))
    flat = _predictors(firsts, batch)
    return MicroBatch(batch.to(device), ids.long().to(device), flat.to(device), _targets(batch).to(device))


def _targets(batch: TrainBatch) -> Tensor:
    """Return the trained tokens, [trained tokens]."""
    starts = torch.repeat_interleave(batch.offsets[:-1], batch.num_trained)
    return batch.tokens[starts + batch.positions].long()


def _predictors(firsts: Tensor, batch: TrainBatch) -> Tensor:
    """Return the position of the token before each trained token, in rows that begin at `firsts`."""
    return torch.repeat_interleave(firsts, batch.num_trained) + batch.positions - 1


def unshuffle(column: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """Sort a column by row, if its rows follow each other as `rows` says.

    Args:
        column: Values of trained tokens, [tokens of `rows`].
        rows: The row of each run of the column, in the order of the column.
        counts: Trained tokens of every row, [rows of the batch]; rows that are not named have none in the column.

    Returns:
        The column in the order of rows, [tokens of `rows`].
    """
    order = rows.argsort()
    return _gather(column, _slices(_offsets(counts[rows])[:-1][order], counts[rows][order]))


def _offsets(counts: Tensor) -> Tensor:
    """Return the start of each run of these lengths, and the end of the last run."""
    return torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return the numbers `starts[i]` to `starts[i] + counts[i]`, one range after another."""
    every = torch.arange(max((starts + counts).tolist(), default=0), dtype=torch.int32)
    return _gather(every, _slices(starts, counts))


Slices = list[slice]


def _slices(starts: Tensor, counts: Tensor) -> Slices:
    """Return the slice from `starts[i]` to `starts[i] + counts[i]`, for each i."""
    return list(map(slice, starts.tolist(), (starts + counts).tolist()))


def _gather(column: Tensor, spans: Slices) -> Tensor:
    """Concatenate slices of a column. It is copied in runs: an index for each token costs more."""
    array = column.numpy()
    return torch.from_numpy(np.concatenate([array[span] for span in spans])) if spans else column[:0]


CPU_TOKENS, GPU_TOKENS = 2048, 49152
"""Tokens of one micro-batch, padding and all: few enough for a processor's caches; on an accelerator room to put short
sequences together until they cost as much as the longest one of 32K, which attends to so much more."""
MAX_TRIES, MIN_SAVING = 3, 0.01
"""Numbers of groups that are tried, and the share of the cost that a further group has to save."""


def token_bound(device: torch.device) -> int:
    """Return how many tokens a micro-batch may have on this device."""
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


def group_by_length(lengths: Sequence[int], bound: int) -> list[list[int]]:
    """Group rows of similar length, shortest first.

    Args:
        lengths: Tokens of each row.
        bound: The most tokens of a group, padding included; a group of one row may have more.

    Returns:
        Indices of rows, by group.
    """
    groups: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and (len(groups[-1]) + 1) * lengths[position] <= bound:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def assign_padded(lengths: Sequence[int], bound: int, world: int) -> list[list[list[int]]]:
    """Assign rows to processes, and group the rows of each process by length.

    Longest first, a row goes to the process with the fewest tokens so far. All processes have to go through the same
    passes, so a process with fewer groups than another gets empty groups at the end.

    Args:
        lengths: Tokens of each row.
        bound: The most tokens of a group, padding included, as for `group_by_length`.
        world: Number of processes.

    Returns:
        Indices of rows, by process and group.
    """
    rows_of: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        lightest = loads.index(min(loads))
        rows_of[lightest].append(position)
        loads[lightest] += lengths[position]
    assignment = []
    for rows in rows_of:
        rows.sort()
        groups = group_by_length([lengths[i] for i in rows], bound)
        assignment.append([[rows[i] for i in group] for group in groups])
    most = max(len(groups) for groups in assignment)
    return [groups + [[] for _ in range(most - len(groups))] for groups in assignment]


def assign_packed(
    lengths: Sequence[int], costs: Sequence[float], bound: int, world: int
) -> list[list[list[int]]]:
    """Assign rows to processes in packed groups of about equal cost, as many groups for each process.

    All processes run their n-th groups together, and the dearest of these groups keeps the other processes waiting. The
    fewest groups that the bound allows are taken, or a further group if processes then wait less.

    Args:
        lengths: Tokens of each row.
        costs: Cost of each row, in any unit.
        bound: The most tokens of a group; a group of one row may have more.
        world: Number of processes.

    Returns:
        Indices of rows, by process and group.
    """
    if not lengths:
        return [[] for _ in range(world)]
    least = max(1, -(-sum(lengths) // (bound * world)))
    best: list[list[list[int]]] = []
    wait, tried = math.inf, 0
    for count in range(least, max(least, len(lengths)) + 1):
        groups = _balance(lengths, costs, bound, count * world)
        if groups is None:
            continue
        rounds = [groups[first : first + world] for first in range(0, len(groups), world) if groups[first]]
        # What each process spends on working and waiting.
        cost = sum(sum(costs[i] for i in round_[0]) for round_ in rounds)
        if cost < wait * (1 - MIN_SAVING):
            best, wait = rounds, cost
        tried += 1
        if tried == MAX_TRIES:
            break
    return [[sorted(round_[rank]) for round_ in best] for rank in range(world)]


def _balance(
    lengths: Sequence[int], costs: Sequence[float], bound: int, count: int
) -> list[list[int]] | None:
    """Return rows in `count` groups within the bound, dearest group first; None if they do not fit.

    Dearest first, a row goes to the group that has cost least so far and has room for it.
    """
    groups: list[list[int]] = [[] for _ in range(count)]
    tokens = [0] * count
    heap = [(0.0, group) for group in range(count)]
    for position in sorted(range(len(lengths)), key=lambda i: (-costs[i], i)):
        full = []
        while heap:
            load, group = heapq.heappop(heap)
            if not groups[group] or tokens[group] + lengths[position] <= bound:
                groups[group].append(position)
                tokens[group] += lengths[position]
                heapq.heappush(heap, (load + costs[position], group))
                break
            full.append((load, group))
        else:
            return None
        for entry in full:
            heapq.heappush(heap, entry)
    order = sorted(range(count), key=lambda g: (-sum(costs[i] for i in groups[g]), g))
    return [groups[group] for group in order]
