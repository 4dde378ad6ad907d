"""A frozen model on servers of its own, which reads the policy's responses in the trainers' place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from runners.engine.open import open_reader
from runners.engine.protocol import Engine
from runners.models.bounds import require_same_tokens
from runners.models.folder import load_config
from runners.train.batch import TrainBatch

if TYPE_CHECKING:
    from runners.engine.sglang.engine import SGLangEngine

LEAST_REST = 2.0**-24
"""The probability that all other tokens have at least: what is left of 1 is rounded to that in float32."""


def frozen_folder(job: Job) -> Path:
    """Return where the model is that the trained one is compared with: the teacher, or the one that the stage began with."""
    return job.inputs.get("teacher", job.inputs["start"]) / "checkpoint"


@dataclass(frozen=True, slots=True)
class ServedTeacher:
    """Servers of a frozen model. Those that take turns with the policy's engine rest between two readings.

    `vocabulary` is how many tokens the policy knows.
    """

    engine: SGLangEngine
    folder: Path
    vocabulary: int
    in_turn: bool

    @staticmethod
    def open(
        job: Job, first: Engine, longest: int | None, vocabulary: int, beside: float | None
    ) -> ServedTeacher:
        """Start the servers on the devices of the `first` engine, which has to rest where both take turns.

        `longest` and `beside` are as in `open_engine`. Raises what that does, and E0514 for other tokens.
        """
        folder = frozen_folder(job)
        if "teacher" in job.inputs:
            require_same_tokens(job.inputs["start"] / "checkpoint", folder)
        context = load_config(folder).max_position_embeddings
        engine = open_reader(
            folder, job.resources, min(longest or context, context), job.work / "teacher", beside, first
        )
        teacher = ServedTeacher(engine, folder, vocabulary, beside is not None)
        if teacher.in_turn:
            engine.release()
        return teacher

    def read(self, batch: TrainBatch) -> Tensor:
        """Return the log-probabilities of a batch's trained tokens, [tokens], as the teacher is asked: at temperature 1."""
        return self._read(batch, 0).reference

    def compare(self, batch: TrainBatch, count: int | None) -> TrainBatch:
        """Return a batch with `reference`, or with a `count` with the `likeliest` tokens and their `likelihoods`."""
        found = self._read(batch, count or 0)
        if count is None:
            return replace(batch, reference=found.reference)
        return replace(batch, likeliest=found.likeliest, likelihoods=found.likelihoods)

    def _read(self, batch: TrainBatch, count: int) -> TrainBatch:
        """Return the rows that were read, with `reference` and, for a `count` above 0, the likeliest tokens and theirs."""
        asked = batch.asked_rows()
        tokens, at = asked.tokens.tolist(), asked.at.numpy()
        ends, offsets = [0, *asked.trained.cumsum(0).tolist()], asked.offsets.tolist()
        read = [number for number in range(len(asked)) if ends[number] < ends[number + 1]]
        rows = [tuple(tokens[offsets[number] : offsets[number + 1]]) for number in read]
        firsts = [int(at[ends[number]]) for number in read]
        # A server that is asked for all tokens that there are ends.
        most = min(count, load_config(self.folder).vocab_size - 1)
        if self.in_turn:
            self.engine.load_weights(self.folder, 0)
        readings = self.engine.read_rows(rows, firsts, most)
        if self.in_turn:
            self.engine.release()
        places = [
            at[ends[number] : ends[number + 1]] - first for number, first in zip(read, firsts, strict=True)
        ]
        chosen = list(zip(readings, places, strict=True))
        values = [np.array(each.logprobs, np.float32)[place] for each, place in chosen]
        found = replace(asked, reference=torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *values])))
        if not count:
            return found
        ids = np.concatenate(
            [np.zeros((0, most), np.int32), *(each.likeliest[place] for each, place in chosen)]
        )
        known = [np.zeros((0, most), np.float32), *(each.likelihoods[place] for each, place in chosen)]
        self._require_known(ids)
        likelihoods = np.concatenate(known).astype(np.float64)
        rest = np.log(np.maximum(1.0 - np.exp(likelihoods).sum(1), LEAST_REST))
        every = np.concatenate((likelihoods, rest[:, None]), 1).astype(np.float32)
        return replace(found, likeliest=torch.from_numpy(ids), likelihoods=torch.from_numpy(every))

    def _require_known(self, ids: np.ndarray) -> None:
        most = int(ids.max(initial=0))
        if most >= self.vocabulary:
            raise problem(
                "E0514",
                f"the teacher expects token {most}, and the model that it teaches has {self.vocabulary} tokens",
                where=str(self.folder),
                help="name a teacher with the same tokenizer, or write `teacher_on = trainers`",
            )
