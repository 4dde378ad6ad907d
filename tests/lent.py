"""Workers that check answers, handed from one test to the next: each takes seconds of processor to load sympy."""

from __future__ import annotations

import atexit
from collections import defaultdict
from collections.abc import Callable

import pytest

from runners.grade.checks import Checks
from runners.sandbox.workers import Worker

Take = Callable[[Checks], Worker]
Close = Callable[[Checks], None]
_SPARE: defaultdict[tuple[str, ...], list[Worker]] = defaultdict(list)
_MOST = 2


@pytest.fixture(autouse=True)
def _lent_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pool that closes leave its idle workers to the next pool of the same kind and limits."""
    take: Take = Checks._take_worker
    close: Close = Checks.close

    def lend(pool: Checks) -> Worker:
        spare = _SPARE[pool._arguments]
        while spare and not pool._idle:
            worker = spare.pop()
            if worker.process.poll() is None and worker.is_idle():
                pool._workers.append(worker)
                pool._idle.append(worker)
        return take(pool)

    def keep(pool: Checks) -> None:
        pool.forget_foreign_workers()
        spare = _SPARE[pool._arguments]
        while pool._idle and len(spare) < _MOST:
            worker = pool._idle.pop()
            pool._workers.remove(worker)
            spare.append(worker)
        close(pool)

    monkeypatch.setattr(Checks, "_take_worker", lend)
    monkeypatch.setattr(Checks, "close", keep)


@atexit.register
def _end() -> None:
    for workers in _SPARE.values():
        for worker in workers:
            worker.kill()
