"""Hand weights from every process that trains to the server on its own devices, through shared memory.

CUDA shares memory between processes of one device, and NCCL joins no two processes on one: where trainer and servers take
turns on the same GPUs, each GPU's server gets its weights from the trainer's process there.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing as sharing
from torch.multiprocessing import reductions

from runners.engine.sglang.buckets import SIZE, Bucket, buckets
from runners.engine.sglang.control import Lines, Refused, choose_failure, update_session
from runners.engine.sglang.server import Address
from runners.engine.sglang.silence import Lost

_DEVICE = 6
"""Where `rebuild_cuda_tensor` takes the number of the device."""

Fault = Refused | Lost
"""A failure as it travels between processes."""


def hand(
    pieces: Iterator[tuple[str, torch.Tensor]],
    rank: int,
    gather: Callable[[Any], list[Any]],
    servers: Mapping[int, Address],
    wide: int,
    version: int,
    size: int = SIZE,
) -> None:
    """Hand all weights to the server that this process's device belongs to, bucket by bucket; see `Spread.each`.

    Server number i has `wide` processes, on the devices of ranks i × wide and on. The first of these ranks tells it, for
    all of them. A failure anywhere ends it everywhere, after the same bucket, and is raised by rank 0: `Hung`, `Lost` or
    `Refused`.
    """
    try:
        _hand(pieces, rank, gather, servers, wide, version, size)
    except (Refused, Lost):
        if rank == 0:
            raise


def _hand(
    pieces: Iterator[tuple[str, torch.Tensor]],
    rank: int,
    gather: Callable[[Any], list[Any]],
    servers: Mapping[int, Address],
    wide: int,
    version: int,
    size: int,
) -> None:
    number, place = divmod(rank, wide)
    address = servers.get(number)
    of_this_server = slice(number * wide, (number + 1) * wide)
    fault: Fault | None = None
    with ExitStack() as session:
        lines: Lines | None = None
        if address is not None and place == 0:
            lines = session.enter_context(Lines([address]))
            fault = _fault_of(partial(session.enter_context, update_session(lines)))
        sent_last: Bucket | None = None
        for bucket in buckets(pieces, size):
            packed, broken = _try_to_pack(bucket) if address is not None else ("", None)
            # Until all have come here, servers may still read what this process handed out before.
            answers = gather((packed, fault or broken))
            sent_last = bucket
            _require([each for _, each in answers])
            if lines is not None:
                payloads = [payload for payload, _ in answers[of_this_server]]
                message = {"serialized_named_tensors": payloads, "weight_version": str(version)}
                fault = _fault_of(partial(lines.ask, "/update_weights_from_tensor", message))
        _require(gather(fault))
        del sent_last
        fault = _fault_of(session.close)
    _require(gather(fault))


def packed_tensors(bucket: Bucket) -> str:
    """Return a bucket's tensors as a server reads them: names of shared memory, on a GPU handles of its memory."""
    with _shared_by_name():
        buffer = io.BytesIO()
        _Pickler(buffer).dump(list(bucket.tensors))
        return base64.b64encode(buffer.getvalue()).decode()


def _try_to_pack(bucket: Bucket) -> tuple[str, Fault | None]:
    try:
        return packed_tensors(bucket), None
    except (RuntimeError, OSError, ValueError, TypeError) as fault:
        return "", Refused(f"{type(fault).__name__}: {fault}")


def _fault_of(call: Callable[[], object]) -> Fault | None:
    try:
        call()
    except (Refused, Lost) as fault:
        return fault
    return None


def _require(faults: Sequence[Fault | None]) -> None:
    """Raise the worst failure of all processes, if there is any."""
    failed = [fault for fault in faults if fault is not None]
    if failed:
        raise choose_failure(failed)


class _Pickler(ForkingPickler):
    """Names a GPU by what it is, and not by its number: each process counts those that it is shown."""

    def reducer_override(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_cuda):
            return NotImplemented
        return by_identity(reductions.reduce_tensor(value))


def by_identity(reduced: tuple[Any, tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
    """Return a reduced CUDA tensor with its device's identity in place of its number, which SGLang reads as well."""
    function, arguments = reduced
    if function is not reductions.rebuild_cuda_tensor or not isinstance(arguments[_DEVICE], int):
        return reduced
    identity = str(torch.cuda.get_device_properties(arguments[_DEVICE]).uuid)
    return function, (*arguments[:_DEVICE], identity, *arguments[_DEVICE + 1 :])


@contextmanager
def _shared_by_name() -> Iterator[None]:
    """Let tensors travel as names of shared memory: a server that is no child of ours cannot take our file descriptors."""
    before = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy("file_system")
    try:
        yield
    finally:
        sharing.set_sharing_strategy(before)
