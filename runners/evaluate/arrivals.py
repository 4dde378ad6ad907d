"""Grade responses as they end, and keep a chunk as soon as all of its responses are graded."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl

from runners.evaluate.grade import SAMPLES, Sampled

KEYS = ("benchmark", "question", "sample")
"""What tells responses apart, in every table of a chunk."""

Key = tuple[str, str, int]
Tables = Mapping[str, pl.DataFrame]


@dataclass(slots=True)
class _Chunk:
    """How many responses a chunk still misses, and the rows of those that are graded, by table."""

    missing: int
    kept: Future[float] = field(default_factory=Future)
    rows: defaultdict[str, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))


class Arrivals:
    """Responses on their way to their chunks.

    A thread grades whatever waits, all of it together, so that a verifier's workers share it. The time when responses end
    decides which are graded together, and nothing else: a chunk's rows are in the order in which it was announced.
    """

    def __init__(
        self, graded: Callable[[Sequence[Sampled]], Tables], keep: Callable[[int, Tables], None]
    ) -> None:
        """`graded` gives tables whose rows `KEYS` tell apart; `keep` is called with each chunk that is whole."""
        self._graded, self._keep = graded, keep
        self._thread = ThreadPoolExecutor(1, "grading")
        self._lock = threading.Lock()
        self._chunks: dict[int, _Chunk] = {}
        # Responses that have not come, and those that wait to be graded, each with its chunk and its place there.
        self._open: dict[Key, tuple[int, int]] = {}
        self._waiting: dict[Key, tuple[int, int, Sampled]] = {}
        self._grading = False
        self._fault: BaseException | None = None

    def expect(self, index: int, keys: Sequence[Key]) -> Future[float]:
        """Announce a chunk by its responses, in their order. The future says when it was kept, by the monotonic clock.

        It raises what grading raised.
        """
        with self._lock:
            self._chunks[index] = _Chunk(len(keys))
            self._open.update({key: (index, place) for place, key in enumerate(keys)})
            return self._chunks[index].kept

    def add(self, sampled: Sampled) -> None:
        """Take an announced response, from any thread. One that came before is left as it is.

        Raises what grading raised: nothing more is generated in vain then.
        """
        with self._lock:
            if self._fault is not None:
                raise self._fault
            key = _key(sampled)
            if key not in self._open:
                return
            self._waiting[key] = (*self._open.pop(key), sampled)
            if self._grading:
                return
            self._grading = True
        self._thread.submit(self._grade)

    def close(self) -> None:
        """Grade what is here, keep the chunks that are whole by that, and end the thread."""
        self._thread.shutdown()

    def _grade(self) -> None:
        """In the thread: until nothing waits."""
        try:
            while waiting := self._taken():
                self._place(waiting, self._graded([sampled for _, _, sampled in waiting.values()]))
        except BaseException as fault:
            with self._lock:
                self._fault, open_chunks = fault, list(self._chunks.values())
            for chunk in open_chunks:
                chunk.kept.set_exception(fault)

    def _taken(self) -> dict[Key, tuple[int, int, Sampled]]:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._grading = bool(waiting)
            return waiting

    def _place(self, graded: Mapping[Key, tuple[int, int, Sampled]], tables: Tables) -> None:
        """Put rows where they belong, and keep the chunks that they make whole."""
        places = pl.DataFrame(
            [(*key, index, place) for key, (index, place, _) in graded.items()],
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
        for index, _, _ in graded.values():
            self._chunks[index].missing -= 1
        for index in dict.fromkeys(index for index, _, _ in graded.values()):
            if not self._chunks[index].missing:
                chunk = self._chunks.pop(index)
                self._keep(index, {name: _whole(frame, chunk.rows[name]) for name, frame in tables.items()})
                chunk.kept.set_result(time.monotonic())


def _key(sampled: Sampled) -> Key:
    return sampled.question.benchmark, sampled.question.id, sampled.number


def _whole(like: pl.DataFrame, rows: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """All rows of a chunk in the order of its responses, with the columns of `like`."""
    if not rows:
        return like.clear()
    return pl.concat(rows).sort("place", maintain_order=True).drop("place")
