"""Grade rollouts as they end, and hand on a group of them as soon as all of it is graded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from runners.rollout.grader import GradedRollout, Rollout

Made = TypeVar("Made")


@dataclass(eq=False, slots=True)
class RolloutGroup(Generic[Made]):
    """Rollouts that are handed on together: `result` is what `finish` makes of all `count`, in the order of their places.

    Those at the places in `missing` have not come.
    """

    count: int
    finish: Callable[[list[GradedRollout]], Made]
    missing: set[int]
    graded: dict[int, GradedRollout] = field(default_factory=dict)
    result: Future[Made] = field(default_factory=Future)


class GradeAhead:
    """A thread that grades rollouts while others are generated.

    It grades all that have come since it looked last together, so that a verifier's workers share them. When rollouts come
    decides which are graded together, and nothing else may depend on that.
    """

    def __init__(self, grade: Callable[[Sequence[Rollout]], list[GradedRollout]]) -> None:
        self._grade = grade
        # One thread for as long as there is anything to do: some systems end a process with the thread that started it.
        self._thread = ThreadPoolExecutor(1, "grading")
        self._lock = threading.Lock()
        self._groups: set[RolloutGroup[Any]] = set()
        self._waiting: list[tuple[RolloutGroup[Any], int, Rollout]] = []
        self._fault: BaseException | None = None

    def expect(self, count: int, finish: Callable[[list[GradedRollout]], Made]) -> RolloutGroup[Made]:
        """Announce a group of so many rollouts. Its result raises what grading or `finish` raised."""
        group = RolloutGroup(count, finish, set(range(count)))
        with self._lock:
            self._groups.add(group)
        return group

    def add(self, arrived: Iterable[tuple[RolloutGroup[Any], int, Rollout]]) -> None:
        """Take rollouts with their groups and places, from any thread; one whose place has come before is dropped.

        Raises what grading or finishing a group raised: nothing more is generated in vain then.
        """
        with self._lock:
            if self._fault is not None:
                raise self._fault
            for group, place, rollout in arrived:
                if place in group.missing:
                    group.missing.remove(place)
                    self._waiting.append((group, place, rollout))
        self._thread.submit(self._work)

    def close(self, *, drop: bool = False) -> None:
        """End the thread once all that came is graded, or, where the rest is to be dropped, after what it is at."""
        if drop:
            with self._lock:
                self._waiting.clear()
        self._thread.shutdown()

    def _work(self) -> None:
        """Grade what waits, in the thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting or self._fault is not None:
            return
        try:
            graded = self._grade([rollout for _, _, rollout in waiting])
            for (group, place, _), one in zip(waiting, graded, strict=True):
                group.graded[place] = one
            for group in dict.fromkeys(group for group, _, _ in waiting):
                if len(group.graded) == group.count:
                    group.result.set_result(group.finish([group.graded[at] for at in range(group.count)]))
                    # Not before it is handed on: whoever waits for a group that could not be has to hear of it.
                    self._groups.discard(group)
        except BaseException as fault:
            with self._lock:
                self._fault, groups = fault, list(self._groups)
            for group in groups:
                group.result.set_exception(fault)
