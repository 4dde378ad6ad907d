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

NONE, NO_TOKENS = torch.zeros(0), torch.zeros(0, dtype=torch.int32)
ROW_COLUMNS = ("tokens", "offsets", "trained", "asked", "asked_offsets")


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """Row i is `tokens[offsets[i]:offsets[i + 1]]`: a prompt, and `trained[i]` tokens after it, the last at its end.

    The prompt is only read, and so are an environment's tokens between trained ones.
    All other columns have one value for each trained token, row after row, or are empty where nobody needs them.

    - `at` is how many tokens of its row stand before it. It is never empty.
    - `weights` multiply a token's loss, and carry its mean over the batch.
    - `advantages` are PPO's.
    - `importance` is the trainer's probability over the engine's as the method bounds it; it multiplies the policy's term.
    - `drawn` is false for tokens that the engine was given as part of its prompt, and which are trained all the same.
    - `logprobs` and `behaviour` are the engine's, as `Generation` has them; 0 where it drew nothing.
    - `old` are the log-probabilities that ratios divide by, `reference` those of the frozen model.
    - `likeliest` and `likelihoods` are the ids [tokens, k] and log-probabilities [tokens, k + 1] of the frozen model's most
      likely tokens.

    A teacher with a wording of its own reads `asked[asked_offsets[i]:asked_offsets[i + 1]]` in the place of row i's prompt;
    both are empty where it reads the row as it is.
    """

    tokens: Tensor
    offsets: Tensor
    trained: Tensor
    at: Tensor = NONE
    weights: Tensor = NONE
    advantages: Tensor = NONE
    importance: Tensor = NONE
    drawn: Tensor = NONE
    logprobs: Tensor = NONE
    behaviour: Tensor = NONE
    old: Tensor = NONE
    reference: Tensor = NONE
    likeliest: Tensor = NONE
    likelihoods: Tensor = NONE
    asked: Tensor = NO_TOKENS
    asked_offsets: Tensor = NO_TOKENS

    @staticmethod
    def of(
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[Sequence[int]],
        gaps: Sequence[Sequence[tuple[int, int]]] | None = None,
        asked: Sequence[Sequence[int]] = (),
    ) -> TrainBatch:
        """Return rows of prompts and the tokens after them that are trained; every weight is 1.

        `gaps` are those that are only read, as (first, count) places among the tokens of a row, in order. `asked` are the
        prompts that a teacher reads in the place of these, if it has its own.
        """
        lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, tokens, strict=True)]
        every = chain.from_iterable(part for pair in zip(prompts, tokens, strict=True) for part in pair)
        after = torch.tensor([len(response) for response in tokens], dtype=torch.int64)
        at = _count(torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int64), after)
        trained = after
        if gaps is not None and any(gaps):
            kept = torch.ones(len(at), dtype=torch.bool)
            for begin, row in zip(_ends(after).tolist(), gaps, strict=False):
                for first, count in row:
                    kept[begin + first : begin + first + count] = False
            at = at[kept]
            trained = after - torch.tensor([sum(count for _, count in row) for row in gaps])
        return TrainBatch(
            torch.from_numpy(np.fromiter(every, dtype=np.int32, count=sum(lengths))),
            _ends(torch.tensor(lengths, dtype=torch.int64)),
            trained,
            at,
            weights=torch.ones(len(at)),
            asked=torch.tensor([*chain.from_iterable(asked)], dtype=torch.int32),
            asked_offsets=_ends(torch.tensor([*map(len, asked)])) if asked else NO_TOKENS,
        )

    @staticmethod
    def concat(batches: Sequence[TrainBatch]) -> TrainBatch:
        """Return batches one after another; all have the same columns."""
        if len(batches) == 1:
            return batches[0]
        columns = {
            name: torch.cat([getattr(batch, name) for batch in batches])
            for name in ("tokens", "trained", "asked", *TOKEN_COLUMNS)
        }
        asked = [batch.asked_offsets.diff() for batch in batches if len(batch.asked_offsets)]
        return TrainBatch(
            offsets=_ends(torch.cat([batch.lengths for batch in batches])),
            asked_offsets=_ends(torch.cat(asked)) if asked else NO_TOKENS,
            **columns,
        )

    def __len__(self) -> int:
        return len(self.trained)

    @property
    def lengths(self) -> Tensor:
        """The tokens of each row, prompt and all."""
        return self.offsets.diff()

    def select(self, rows: Sequence[int] | Tensor) -> TrainBatch:
        """Return these rows, in this order."""
        at = torch.as_tensor(rows, dtype=torch.int64)
        lengths, trained = self.lengths[at], self.trained[at]
        asked, asked_offsets = self.asked, self.asked_offsets
        if len(asked_offsets):
            counts = asked_offsets.diff()[at]
            asked, asked_offsets = _cut(asked, _spans(asked_offsets[at], counts)), _ends(counts)
        return TrainBatch(
            _cut(self.tokens, _spans(self.offsets[at], lengths)),
            _ends(lengths),
            trained,
            asked=asked,
            asked_offsets=asked_offsets,
            **self._columns(_spans(_ends(self.trained)[at], trained)),
        )

    def asked_rows(self) -> TrainBatch:
        """Return the rows as the teacher reads them, with the same trained tokens and nothing else of them."""
        if not len(self.asked_offsets):
            return self
        ends = torch.cat((self.at, torch.zeros(1, dtype=torch.int32)))
        # A row without a trained token is run by nobody.
        prompts = torch.where(self.trained > 0, ends[_ends(self.trained)[:-1]], 0)
        counts, rest = self.asked_offsets.diff(), self.lengths - prompts
        spans = zip(
            _spans(self.asked_offsets[:-1], counts), _spans(self.offsets[:-1] + prompts, rest), strict=True
        )
        parts = [
            column[span]
            for pair in spans
            for column, span in zip((self.asked, self.tokens), pair, strict=True)
        ]
        return TrainBatch(
            torch.cat(parts) if parts else self.tokens,
            _ends(counts + rest),
            self.trained,
            self.at + torch.repeat_interleave(counts - prompts, self.trained),
        )

    def crop(self, counts: Tensor) -> TrainBatch:
        """Return each row up to the first `counts[i]` of its trained tokens."""
        if torch.equal(counts, self.trained):
            return self
        firsts = _ends(self.trained)[:-1]
        # Without a token it ends before its first.
        ends = torch.cat((self.at, torch.zeros(1, dtype=torch.int32)))
        last = ends[firsts + (counts - 1).clamp(min=0)] + counts.clamp(max=1)
        lengths = torch.where(self.trained > 0, last, self.lengths)
        return TrainBatch(
            _cut(self.tokens, _spans(self.offsets[:-1], lengths)),
            _ends(lengths),
            counts,
            asked=self.asked,
            asked_offsets=self.asked_offsets,
            **self._columns(_spans(firsts, counts)),
        )

    def last_advantages(self) -> Tensor:
        """Return how many tokens of each row there are up to the last with an advantage."""
        ends = _ends(self.trained)
        counts = self.trained.clone()
        at_end = torch.cat((self.advantages, torch.ones(1)))[ends[1:] - 1] != 0
        # In most rows it is the last token; only the others are looked through.
        for row in (~at_end & (counts > 0)).nonzero().flatten().tolist():
            moved = self.advantages[ends[row] : ends[row + 1]].nonzero()
            counts[row] = moved[-1, 0] + 1 if len(moved) else 0
        return counts

    def to(self, device: torch.device) -> TrainBatch:
        """Return the batch on a device."""
        return replace(self, **{each.name: getattr(self, each.name).to(device) for each in fields(self)})

    def _columns(self, spans: Spans) -> dict[str, Tensor]:
        """Return the columns of trained tokens at these places."""
        every = {name: getattr(self, name) for name in TOKEN_COLUMNS}
        return {name: _cut(column, spans) if len(column) else column for name, column in every.items()}


def spread_batch(ranks: Ranks, batch: TrainBatch | None) -> TrainBatch:
    """Return the first process's batch on all of them; the others give None."""
    columns = [] if batch is None else [getattr(batch, each.name) for each in fields(batch)]
    return TrainBatch(*ranks.spread(columns))


TOKEN_COLUMNS = tuple(each.name for each in fields(TrainBatch) if each.name not in ROW_COLUMNS)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A part of a batch that is run at once: some rows, as a model reads them.

    `ids` [rows, width] are padded on the right, or packed: [1, tokens], one row after another, where `sequences` says.
    `at` is the flat position in `ids` whose output predicts each trained token, and `targets` that token. `columns` are the
    rows themselves.
    """

    columns: TrainBatch
    ids: Tensor
    at: Tensor
    targets: Tensor
    sequences: PackedSequences | None = None


def packed(batch: TrainBatch, device: torch.device) -> MicroBatch:
    """Return rows as a micro-batch without padding. Without rows it is a single token from which nothing is learnt."""
    # The last token is never an input: nothing is predicted from it.
    lengths = batch.lengths - 1
    ids = (
        _cut(batch.tokens, _spans(batch.offsets[:-1], lengths)).long()
        if len(batch)
        else torch.zeros(1, dtype=torch.int64)
    )
    firsts = _ends(lengths)
    at = _predicting(firsts[:-1], batch)
    positions = _count(torch.zeros_like(lengths), lengths).long() if len(batch) else ids
    starts = (firsts if len(batch) else torch.tensor([0, 1])).to(torch.int32)
    sequences = PackedSequences(
        positions[None].to(device), starts.to(device), tuple(lengths.tolist()) if len(batch) else (1,)
    )
    return MicroBatch(
        batch.to(device), ids[None].to(device), at.to(device), _targets(batch).to(device), sequences
    )


def padded(batch: TrainBatch, device: torch.device) -> MicroBatch:
    """Return rows as a micro-batch of one width. Without rows it is a single token from which nothing is learnt."""
    # The last token is never an input: nothing is predicted from it.
    lengths = batch.lengths - 1
    width = max(int(lengths.max()), 1) if len(batch) else 1
    ids = torch.zeros((max(len(batch), 1), width), dtype=torch.int32)
    firsts = torch.arange(len(batch)) * width
    ids.view(-1)[_count(firsts, lengths)] = _cut(batch.tokens, _spans(batch.offsets[:-1], lengths))
    at = _predicting(firsts, batch)
    return MicroBatch(batch.to(device), ids.long().to(device), at.to(device), _targets(batch).to(device))


def _targets(batch: TrainBatch) -> Tensor:
    return batch.tokens[torch.repeat_interleave(batch.offsets[:-1], batch.trained) + batch.at].long()


def _predicting(firsts: Tensor, batch: TrainBatch) -> Tensor:
    """Return the place of the token before each trained one, in rows that begin at `firsts`."""
    return torch.repeat_interleave(firsts, batch.trained) + batch.at - 1


def put_in_order(column: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """Return a column of these rows, which follow each other as `rows` says, in the order of rows.

    Row i has `counts[i]` tokens there; rows that are not named have none.
    """
    order = rows.argsort()
    return _cut(column, _spans(_ends(counts[rows])[:-1][order], counts[rows][order]))


def _ends(counts: Tensor) -> Tensor:
    """Return where each of some counts begins, and at last where all end."""
    return torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))


def _count(starts: Tensor, counts: Tensor) -> Tensor:
    """Return `counts[i]` numbers from `starts[i]` on, for each i in turn."""
    every = torch.arange(max((starts + counts).tolist(), default=0), dtype=torch.int32)
    return _cut(every, _spans(starts, counts))


Spans = list[slice]


def _spans(starts: Tensor, counts: Tensor) -> Spans:
    """Return the places `starts[i]` up to `starts[i] + counts[i]`, for each i in turn."""
    return list(map(slice, starts.tolist(), (starts + counts).tolist()))


def _cut(column: Tensor, spans: Spans) -> Tensor:
    """Return what a column has at these places, one after another. It is copied in runs: an index a token costs more."""
    array = column.numpy()
    return torch.from_numpy(np.concatenate([array[span] for span in spans])) if spans else column[:0]


CPU_TOKENS, GPU_TOKENS = 2048, 49152
"""Tokens of one micro-batch, padding and all: few enough for a processor's caches; on an accelerator room to put short
sequences together until they cost as much as the longest one of 32K, which attends to so much more."""
TRIES, WORTH = 3, 0.01
"""Numbers of groups that are tried, and the share of the work that one more has to save."""


def token_bound(device: torch.device) -> int:
    """Return how many tokens a micro-batch may have on this device."""
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


def group_by_length(lengths: Sequence[int], bound: int) -> list[list[int]]:
    """Return positions grouped by length, rising, with rows times longest at most `bound` in each group (or one row)."""
    groups: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and (len(groups[-1]) + 1) * lengths[position] <= bound:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def deal_padded(lengths: Sequence[int], bound: int, world: int) -> list[list[list[int]]]:
    """Return for each of `world` processes the groups of positions (`group_by_length`) that it runs, as many for each.

    Longest first, a row goes to the process with the fewest tokens so far. Where one has fewer groups than another its
    last ones are empty, because all processes have to go through the same passes.
    """
    rows_of: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        lightest = loads.index(min(loads))
        rows_of[lightest].append(position)
        loads[lightest] += lengths[position]
    dealt = []
    for rows in rows_of:
        rows.sort()
        groups = group_by_length([lengths[i] for i in rows], bound)
        dealt.append([[rows[i] for i in group] for group in groups])
    most = max(len(groups) for groups in dealt)
    return [groups + [[] for _ in range(most - len(groups))] for groups in dealt]


def deal_packed(
    lengths: Sequence[int], costs: Sequence[float], bound: int, world: int
) -> list[list[list[int]]]:
    """Return for each of `world` processes the groups of positions that it works through packed, as many for each.

    A group has at most `bound` tokens, or one row. All processes work through their n-th groups together, and the one whose
    group costs most keeps the others waiting: groups that are run together cost about the same. `costs` are those of rows,
    in any unit. Of few numbers of groups the least is taken, or one more where fewer processes wait for it.
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
        rounds = [groups[at : at + world] for at in range(0, len(groups), world) if groups[at]]
        # What each process spends on working and waiting.
        spent = sum(sum(costs[i] for i in round_[0]) for round_ in rounds)
        if spent < wait * (1 - WORTH):
            best, wait = rounds, spent
        tried += 1
        if tried == TRIES:
            break
    return [[sorted(round_[rank]) for round_ in best] for rank in range(world)]


def _balance(
    lengths: Sequence[int], costs: Sequence[float], bound: int, count: int
) -> list[list[int]] | None:
    """Return positions in so many groups within the bound, dearest first; None where they do not fit.

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
        for each in full:
            heapq.heappush(heap, each)
    order = sorted(range(count), key=lambda g: (-sum(costs[i] for i in groups[g]), g))
    return [groups[group] for group in order]
