"""Grade responses as they end, and keep a chunk as soon as all of its responses are graded."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import polars as pl

from runners.backlog import Backlog
from runners.evaluate.tables import SAMPLES, Sampled

KEYS = ("benchmark", "question", "sample")
"""What tells responses apart, in every table of a chunk."""

Key = tuple[str, str, int]
Tables = Mapping[str, pl.DataFrame]
_Placed = tuple[int, int, Sampled]
"""A response with its chunk and its place there."""


@dataclass(slots=True)
class _Chunk:
    """How many responses a chunk still misses, and the rows of those that are graded, by table."""

    missing: int
    kept: Future[float] = field(default_factory=Future)
    rows: defaultdict[str, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))


class Arrivals:
    """Responses on their way to their chunks.

    A thread grades all that have come since it looked last together, so that a verifier's workers share them. A chunk's rows
    are in the order in which it was announced.
    """

    def __init__(
        self, graded: Callable[[Sequence[Sampled]], Tables], keep: Callable[[int, Tables], None]
    ) -> None:
        """`graded` gives tables whose rows `KEYS` tell apart; `keep` is called with each chunk that is whole."""
        self._graded, self._keep = graded, keep
        self._backlog: Backlog[_Placed] = Backlog(self._grade, "grading", self._give_up)
        self._lock = threading.Lock()
        self._chunks: dict[int, _Chunk] = {}
        # Responses that have not come, each with its chunk and its place there.
        self._open: dict[Key, tuple[int, int]] = {}

    def expect(self, index: int, keys: Sequence[Key]) -> Future[float]:
        """Announce a chunk by its responses, in their order. The future says when it was kept, by the monotonic clock.

        It raises what grading or keeping raised.
        """
        with self._lock:
            self._chunks[index] = _Chunk(len(keys))
            self._open.update({key: (index, place) for place, key in enumerate(keys)})
            return self._chunks[index].kept

    def add(self, sampled: Sampled) -> None:
        """Take an announced response, from any thread. One that came before is left as it is.

        Raises what grading or keeping raised: nothing more is generated in vain then.
        """
        with self._lock:
            place = self._open.pop(_key(sampled), None)
        if place is not None:
            self._backlog.add((*place, sampled))

    def close(self) -> None:
        """Grade what is here, keep the chunks that are whole by that, and end the thread."""
        self._backlog.finish()

    def _grade(self, waiting: Sequence[_Placed]) -> None:
        self._place(waiting, self._graded([sampled for _, _, sampled in waiting]))

    def _give_up(self, fault: BaseException) -> None:
        with self._lock:
            open_chunks = list(self._chunks.values())
        for chunk in open_chunks:
            chunk.kept.set_exception(fault)

    def _place(self, graded: Sequence[_Placed], tables: Tables) -> None:
        """Put rows where they belong, and keep the chunks that they make whole."""
        places = pl.DataFrame(
            [(*_key(sampled), index, place) for index, place, sampled in graded],
            schema={**{name: SAMPLES[name] for name in KEYS}, "chunk": pl.Int64, "place": pl.Int64},
            orient="row",
        )
        for name, frame in tables.items():
            # The samples of one data set name no benchmark.
            keys = [name for name in KEYS if name in frame.columns]
            rows = frame.join(
                places.select(*keys, "chunk", "place"), on=keys, how="left", maintain_order="left"
            )
            for (index,), part in rows.partition_by("chunk", include_key=False, as_dict=True).items():
                self._chunks[index].rows[name].append(part)
        for index, _, _ in graded:
            self._chunks[index].missing -= 1
        for index in dict.fromkeys(index for index, _, _ in graded):
            if not self._chunks[index].missing:
                chunk = self._chunks[index]
                self._keep(index, {name: _whole(frame, chunk.rows[name]) for name, frame in tables.items()})
                chunk.kept.set_result(time.monotonic())
                # Not before it is kept: whoever waits for a chunk that could not be has to hear of it.
                del self._chunks[index]


def _key(sampled: Sampled) -> Key:
    return sampled.question.benchmark, sampled.question.id, sampled.number


def _whole(like: pl.DataFrame, rows: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """All rows of a chunk in the order of its responses, with the columns of `like`."""
    if not rows:
        return like.clear()
    return pl.concat(rows).sort("place", maintain_order=True).drop("place")
