"""Sequences to learn from, as columns: one record from the rollout to the loss, and its micro-batches."""

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

    The model reads the prompt, and text that an environment inserts into a response, but is not trained on them.
    Columns after `num_trained` have one value for each trained token, row after row, or are empty if the method does
    not need them.

    If a teacher reads another wording of the prompts, its prompt of row i is
    `teacher_tokens[teacher_offsets[i]:teacher_offsets[i + 1]]`. Both columns are empty if the teacher reads the
    policy's prompts.
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
    """The log-probabilities of `topk_ids`, then of all other tokens together, [trained tokens, k + 1]."""
    teacher_tokens: Tensor = NO_TOKENS
    """Token ids of the teacher's prompts, one after another."""
    teacher_offsets: Tensor = NO_TOKENS
    """The start of each teacher's prompt, and the end of the last, [rows + 1]."""

    @staticmethod
    def of(
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[Sequence[int]],
        read_only: Sequence[Sequence[tuple[int, int]]] | None = None,
        teacher: Sequence[Sequence[int]] = (),
    ) -> TrainBatch:
        """Return a batch of prompts and responses, with weights of 1.

        Except `positions` and `weights`, the columns of trained tokens are empty.

        Args:
            prompts: Token ids of each row's prompt.
            tokens: Token ids of each row's response.
            read_only: For each response, the spans that the model reads but is not trained on, as (index of the first
                token in the response, number of tokens), in order; None if all tokens are trained.
            teacher: Token ids of the prompts for a teacher that reads another wording; empty if there is no such
                teacher.
        """
        lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, tokens, strict=True)]
        all_tokens = chain.from_iterable(span for pair in zip(prompts, tokens, strict=True) for span in pair)
        response_lengths = torch.tensor([len(response) for response in tokens], dtype=torch.int64)
        positions = _ranges(
            torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int64), response_lengths
        )
        num_trained = response_lengths
        if read_only is not None and any(read_only):
            mask = torch.ones(len(positions), dtype=torch.bool)
            for begin, row in zip(_offsets(response_lengths).tolist(), read_only, strict=False):
                for first, count in row:
                    mask[begin + first : begin + first + count] = False
            positions = positions[mask]
            num_trained = response_lengths - torch.tensor(
                [sum(count for _, count in row) for row in read_only]
            )
        return TrainBatch(
            torch.from_numpy(np.fromiter(all_tokens, dtype=np.int32, count=sum(lengths))),
            _offsets(torch.tensor(lengths, dtype=torch.int64)),
            num_trained,
            positions,
            weights=torch.ones(len(positions)),
            teacher_tokens=torch.tensor([*chain.from_iterable(teacher)], dtype=torch.int32),
            teacher_offsets=_offsets(torch.tensor([*map(len, teacher)])) if teacher else NO_TOKENS,
        )

    @staticmethod
    def concat(batches: Sequence[TrainBatch]) -> TrainBatch:
        """Return the rows of all batches as one batch; a single batch is returned unchanged.

        The batches must have the same non-empty columns.
        """
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
        """Return the number of tokens of each row, prompt included, [rows]."""
        return self.offsets.diff()

    def select(self, rows: Sequence[int] | Tensor) -> TrainBatch:
        """Return a batch of the given rows.

        Args:
            rows: Indices of rows, in the order of the result.
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
        """Return the rows with the teacher's prompts in place of the policy's, and the same responses.

        The result has no weights, advantages or log-probabilities. If the teacher reads the policy's prompts, the
        result is this batch, unchanged.
        """
        if not len(self.teacher_offsets):
            return self
        positions = torch.cat((self.positions, torch.zeros(1, dtype=torch.int32)))
        # A row without trained tokens is never run; its prompt counts as empty.
        prompt_lengths = torch.where(self.num_trained > 0, positions[_offsets(self.num_trained)[:-1]], 0)
        teacher_lengths, response_lengths = self.teacher_offsets.diff(), self.lengths - prompt_lengths
        prompt_slices = _slices(self.teacher_offsets[:-1], teacher_lengths)
        response_slices = _slices(self.offsets[:-1] + prompt_lengths, response_lengths)
        pieces = [
            column[span]
            for pair in zip(prompt_slices, response_slices, strict=True)
            for column, span in zip((self.teacher_tokens, self.tokens), pair, strict=True)
        ]
        return TrainBatch(
            torch.cat(pieces) if pieces else self.tokens,
            _offsets(teacher_lengths + response_lengths),
            self.num_trained,
            self.positions + torch.repeat_interleave(teacher_lengths - prompt_lengths, self.num_trained),
        )

    def crop(self, counts: Tensor) -> TrainBatch:
        """Return the batch with rows shortened after a number of trained tokens.

        A row with count 0 has trained tokens in this batch but keeps its prompt only. A row without trained tokens is
        unchanged.

        Args:
            counts: The number of trained tokens, from the first, that each row keeps, [rows]; at most `num_trained`.
        """
        if torch.equal(counts, self.num_trained):
            return self
        firsts = _offsets(self.num_trained)[:-1]
        # A row that keeps no trained token ends before its first trained token.
        positions = torch.cat((self.positions, torch.zeros(1, dtype=torch.int32)))
        end_positions = positions[firsts + (counts - 1).clamp(min=0)] + counts.clamp(max=1)
        lengths = torch.where(self.num_trained > 0, end_positions, self.lengths)
        return TrainBatch(
            _gather(self.tokens, _slices(self.offsets[:-1], lengths)),
            _offsets(lengths),
            counts,
            teacher_tokens=self.teacher_tokens,
            teacher_offsets=self.teacher_offsets,
            **self._columns(_slices(firsts, counts)),
        )

    def last_advantages(self) -> Tensor:
        """Return the number of trained tokens of each row up to and with the last nonzero advantage, [rows].

        The number is 0 for a row whose advantages are all 0.
        """
        ends = _offsets(self.num_trained)
        counts = self.num_trained.clone()
        ends_with_advantage = torch.cat((self.advantages, torch.ones(1)))[ends[1:] - 1] != 0
        # Most rows end with an advantage; only the other rows are searched.
        for row in (~ends_with_advantage & (counts > 0)).nonzero().flatten().tolist():
            nonzero = self.advantages[ends[row] : ends[row + 1]].nonzero()
            counts[row] = nonzero[-1, 0] + 1 if len(nonzero) else 0
        return counts

    def to(self, device: torch.device) -> TrainBatch:
        """Return the batch with all columns on a device."""
        return replace(self, **{f.name: _send(getattr(self, f.name), device) for f in fields(self)})

    def _columns(self, spans: Slices) -> dict[str, Tensor]:
        """Return the columns of `TOKEN_COLUMNS` by name, with only the trained tokens in the given slices.

        Empty columns stay empty.
        """
        columns = {name: getattr(self, name) for name in TOKEN_COLUMNS}
        return {name: _gather(column, spans) if len(column) else column for name, column in columns.items()}


def broadcast_batch(ranks: Ranks, batch: TrainBatch | None) -> TrainBatch:
    """Return rank 0's batch on all ranks; other ranks pass None."""
    columns = [] if batch is None else [getattr(batch, column.name) for column in fields(batch)]
    return TrainBatch(*ranks.broadcast_tensors(columns))


TOKEN_COLUMNS = tuple(field.name for field in fields(TrainBatch) if field.name not in ROW_COLUMNS)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of a batch that go through the model in one pass, in the layout of its input."""

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
    """Return rows as a micro-batch without padding, on a device.

    A batch without rows becomes a single input token and no trained token. A rank without work can then join a pass, as
    all ranks of a sharded model must.
    """
    # The last token is never an input: nothing is predicted from it.
    lengths = batch.lengths - 1
    ids = (
        _gather(batch.tokens, _slices(batch.offsets[:-1], lengths)).long()
        if len(batch)
        else torch.zeros(1, dtype=torch.int64)
    )
    row_starts = _offsets(lengths)
    positions = _ranges(torch.zeros_like(lengths), lengths).long() if len(batch) else ids
    starts = (row_starts if len(batch) else torch.tensor([0, 1])).to(torch.int32)
    counts = tuple(lengths.tolist()) if len(batch) else (1,)
    sequences = PackedSequences(_send(positions[None], device), _send(starts, device), counts)
    return _make_micro(batch, ids[None], row_starts[:-1], device, sequences)


def make_padded(batch: TrainBatch, device: torch.device) -> MicroBatch:
    """Return rows as a micro-batch padded to one width, on a device.

    A batch without rows becomes a single input token and no trained token. A rank without work can then join a pass, as
    all ranks of a sharded model must.
    """
    # The last token is never an input: nothing is predicted from it.
    lengths = batch.lengths - 1
    width = max(int(lengths.max()), 1) if len(batch) else 1
    ids = torch.zeros((max(len(batch), 1), width), dtype=torch.int32)
    row_starts = torch.arange(len(batch)) * width
    ids.view(-1)[_ranges(row_starts, lengths)] = _gather(batch.tokens, _slices(batch.offsets[:-1], lengths))
    return _make_micro(batch, ids.long(), row_starts, device)


def _make_micro(
    batch: TrainBatch,
    ids: Tensor,
    row_starts: Tensor,
    device: torch.device,
    sequences: PackedSequences | None = None,
) -> MicroBatch:
    """Return a micro-batch on a device, with the targets and the flat positions of the tokens before them.

    `row_starts` are the indices of the rows' first tokens in the flat input, [rows].
    """
    starts = torch.stack((batch.offsets[:-1], row_starts))
    in_tokens, in_ids = torch.repeat_interleave(starts, batch.num_trained, 1) + batch.positions
    targets = _send(batch.tokens[in_tokens].long(), device)
    return MicroBatch(batch.to(device), _send(ids, device), _send(in_ids - 1, device), targets, sequences)


def _send(column: Tensor, device: torch.device) -> Tensor:
    """Return a tensor from the CPU on a device, without waiting for the device's earlier work."""
    return column.to(device, non_blocking=True)


def unshuffle(column: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """Return a column of trained tokens with its rows sorted by their indices in the batch.

    Processes score rows in another order than the batch's; this restores the batch's order.

    Args:
        column: Values of trained tokens, row after row, [tokens of `rows`, …].
        rows: The index in the batch of each row of the column, in the column's order.
        counts: The number of trained tokens of every row of the batch, [rows of the batch].

    Returns:
        The values in increasing order of row indices, of the shape of `column`.
    """
    order = rows.argsort()
    return _gather(column, _slices(_offsets(counts[rows])[:-1][order], counts[rows][order]))


def _offsets(counts: Tensor) -> Tensor:
    """Return the start of each of several consecutive runs with these lengths, and the end of the last run."""
    return torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return `arange(starts[i], starts[i] + counts[i])` for each i, concatenated, as int32."""
    all_numbers = torch.arange(max((starts + counts).tolist(), default=0), dtype=torch.int32)
    return _gather(all_numbers, _slices(starts, counts))


Slices = list[slice]


def _slices(starts: Tensor, counts: Tensor) -> Slices:
    """Return the slice from `starts[i]` to `starts[i] + counts[i]`, for each i."""
    return list(map(slice, starts.tolist(), (starts + counts).tolist()))


def _gather(column: Tensor, spans: Slices) -> Tensor:
    """Return the concatenation of slices of a column. Copying slices is faster than an index per token."""
    array = column.numpy()
    return torch.from_numpy(np.concatenate([array[span] for span in spans])) if spans else column[:0]


CPU_TOKENS, GPU_TOKENS = 2048, 49152
"""The largest number of tokens of a micro-batch, padding included. On a CPU the activations then fit its caches; on a GPU
a group of short sequences may cost as much as one sequence of 32K tokens, whose attention costs more per token."""
MAX_TRIES, MIN_SAVING = 3, 0.01
"""The number of group counts that `assign_packed` tries, and the share of the time that more groups must save."""


def token_bound(device: torch.device) -> int:
    """Return the largest number of tokens of a micro-batch on this device, padding included."""
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


def group_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group rows of similar length, shortest first.

    Args:
        lengths: The number of tokens of each row.
        max_tokens: The largest number of tokens of a group, padding included; a group of one row may have more.

    Returns:
        For each group, the indices of its rows.
    """
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and (len(groups[-1]) + 1) * lengths[row] <= max_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def assign_padded(lengths: Sequence[int], max_tokens: int, world: int) -> list[list[list[int]]]:
    """Assign rows to processes, and group the rows of each process by length.

    Rows are assigned from the longest to the shortest, each to the process with the fewest tokens so far. A process with
    fewer groups gets empty groups at the end, because all processes must run equally many passes.

    Args:
        lengths: The number of tokens of each row.
        max_tokens: The largest number of tokens of a group, padding included; a group of one row may have more.
        world: Number of processes.

    Returns:
        For each process and group, the indices of the group's rows.
    """
    rows_of: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for row in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        lightest = loads.index(min(loads))
        rows_of[lightest].append(row)
        loads[lightest] += lengths[row]
    assignment = []
    for rows in rows_of:
        rows.sort()
        groups = group_by_length([lengths[i] for i in rows], max_tokens)
        assignment.append([[rows[i] for i in group] for group in groups])
    most_groups = max(len(groups) for groups in assignment)
    return [groups + [[] for _ in range(most_groups - len(groups))] for groups in assignment]


def assign_packed(
    lengths: Sequence[int], costs: Sequence[float], max_tokens: int, world: int
) -> list[list[list[int]]]:
    """Assign rows to processes in packed groups of about equal cost, equally many groups per process.

    All processes run their n-th groups at the same time, and wait for the costliest of these groups. Up to `MAX_TRIES`
    numbers of groups are tried, from the smallest that the rows fit into. A larger number is taken only if it lowers the
    total time by more than the share `MIN_SAVING`.

    Args:
        lengths: The number of tokens of each row.
        costs: The cost of each row, in any unit.
        max_tokens: The largest number of tokens of a group; a group of one row may have more.
        world: Number of processes.

    Returns:
        For each process and group, the indices of the group's rows.
    """
    if not lengths:
        return [[] for _ in range(world)]
    fewest_groups = max(1, -(-sum(lengths) // (max_tokens * world)))
    best: list[list[list[int]]] = []
    best_cost, tried = math.inf, 0
    for groups_per_process in range(fewest_groups, max(fewest_groups, len(lengths)) + 1):
        groups = _balance(lengths, costs, max_tokens, groups_per_process * world)
        if groups is None:
            continue
        rounds = [groups[first : first + world] for first in range(0, len(groups), world) if groups[first]]
        # The first group of a round is its costliest, and all processes wait for it.
        cost = sum(sum(costs[i] for i in round_[0]) for round_ in rounds)
        if cost < best_cost * (1 - MIN_SAVING):
            best, best_cost = rounds, cost
        tried += 1
        if tried == MAX_TRIES:
            break
    return [[sorted(round_[rank]) for round_ in best] for rank in range(world)]


def _balance(
    lengths: Sequence[int], costs: Sequence[float], max_tokens: int, num_groups: int
) -> list[list[int]] | None:
    """Divide rows into `num_groups` groups of about equal cost; return None if the rows do not fit.

    Rows are added from the costliest to the cheapest. Each row goes to the group with the lowest cost so far, among the
    groups that are empty or stay within `max_tokens` with this row.

    Args:
        lengths: The number of tokens of each row.
        costs: The cost of each row, in any unit.
        max_tokens: The largest number of tokens of a group; a group of one row may have more.
        num_groups: The number of groups.

    Returns:
        For each group, the indices of its rows, from the costliest group to the cheapest; None if a row fits into no
        group.
    """
    groups: list[list[int]] = [[] for _ in range(num_groups)]
    tokens = [0] * num_groups
    heap = [(0.0, group) for group in range(num_groups)]
    for row in sorted(range(len(lengths)), key=lambda i: (-costs[i], i)):
        full_groups = []
        while heap:
            load, group = heapq.heappop(heap)
            if not groups[group] or tokens[group] + lengths[row] <= max_tokens:
                groups[group].append(row)
                tokens[group] += lengths[row]
                heapq.heappush(heap, (load + costs[row], group))
                break
            full_groups.append((load, group))
        else:
            return None
        for entry in full_groups:
            heapq.heappush(heap, entry)
    order = sorted(range(num_groups), key=lambda g: (-sum(costs[i] for i in groups[g]), g))
    return [groups[group] for group in order]
