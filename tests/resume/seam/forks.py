"""A process that has imported everything and is copied for every run: orders as JSON lines in, process ids out.

A run that starts by a fork is there at once, so that dozens of kills take as long as the work between them.
"""

from __future__ import annotations

import json
import os
import sys

import moments
import polars  # noqa: F401
import sharded
import torch
import transformers  # noqa: F401

import runners.data.load
import runners.data.select
import runners.evaluate.frontier
import runners.evaluate.run
import runners.execute.perform
import runners.models.prepare
import runners.train.run  # noqa: F401
from reodsl.cli import main, run  # noqa: F401
from tests.undrawn import undraw


def child(order: dict[str, object]) -> None:
    """Become the command; never returns."""
    os.setsid()
    os.chdir(str(order["folder"]))
    log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    environment = order["environment"]
    assert isinstance(environment, dict)
    os.environ.update(environment)
    if environment.get(moments.MOMENTS):
        moments.arm(environment[moments.MOMENTS])
    sys.argv = ["reodsl", *order["arguments"]]  # type: ignore[misc]
    code: object = 70
    try:
        main.entry()
    except SystemExit as caught:
        code = caught.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def serve() -> None:
    """Answer each line: a process id for an order, an exit code for `{"wait": pid}`, once it is there."""
    torch.set_num_threads(1)
    sharded.install()
    # Charts are of what the tables say, and tests/report draws them twice alike.
    undraw(setattr)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            child(order)
        print(pid, flush=True)


serve()
