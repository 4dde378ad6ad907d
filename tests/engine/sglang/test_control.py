"""Control of servers: what one refuses, and one that is gone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from runners.engine.sglang.control import ServerGroupClient, call_all, explain_loss
from runners.engine.sglang.server import Address
from runners.machine.process import ProcessDied
from tests.engine.sglang.many_servers import Servers, serving


def test_what_a_server_refuses_and_one_that_is_gone_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("loading\ntorch.OutOfMemoryError: CUDA out of memory.\n")
    with serving(Servers(1, refuses={"/any": 1})) as servers, ServerGroupClient(servers.addresses) as lines:
        with pytest.raises(Problem) as caught:
            lines.ask("/any", {})
        assert not isinstance(caught.value, ProcessDied)
        assert caught.value.diagnostics[0].code == "E0824"
        lines.ask("/any", {})
    gone = Address("http://127.0.0.1:9", "", log=tmp_path / "log")
    with ServerGroupClient([gone]) as lines, pytest.raises(ProcessDied) as died:
        lines.ask("/any", {})
    (told,) = died.value.diagnostics
    assert told.code == "E0938"
    assert told.message.startswith("the SGLang server at http://127.0.0.1:9 ended: ConnectError")
    assert told.notes == ("loading", "torch.OutOfMemoryError: CUDA out of memory.")


def test_of_calls_that_fail_together_the_end_of_a_process_is_told() -> None:
    done: list[int] = []

    def fails(fault: Exception) -> None:
        raise fault

    def of(*faults: Exception) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            call_all([*(partial(fails, fault) for fault in faults), partial(done.append, 1)])
        return caught.value

    end = explain_loss(Address("http://127.0.0.1:9", ""), "gone")
    assert of(RuntimeError("tensors were not taken"), end) is end
    assert str(of(RuntimeError("tensors were not taken"))) == "tensors were not taken"
    assert done == [1] * 2
