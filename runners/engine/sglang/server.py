"""An SGLang server as a child process that never outlives this process, and the interface of all handles of servers."""

from __future__ import annotations

import os
import random
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import httpx
from humanize import naturalsize

from reodsl.diagnostics import Problem, problem
from runners.engine.sglang.kernels import toolkit
from runners.engine.sglang.settings import CHANNELS, LAUNCHER, Settings
from runners.machine.process import Child, ProcessDied, last_lines, read_end
from runners.machine.rendezvous import GLOO, LOOPBACK, interface
from runners.machine.scratch import Scratch

IN_USE = ("address already in use", "Address already in use", "is already in use", "is not available")
_MEMORY = re.compile(
    r"OutOfMemory|Not enough memory|leave no GPU memory|cannot allocate memory|MemoryError", re.IGNORECASE
)
_KILLED = re.compile(r"exit code:? -9\b")
"""The mark of a server's process that the system ended because it took too much memory."""
_ENDED_ITSELF = "kill_process_tree called"
"""SGLang's words as it ends itself by the same signal, because a process of its failed and said why."""
_ARCHITECTURE = re.compile(
    r"[Mm]odel architectures? .*not supported|Cannot find model module|Unsupported architecture"
)


def diagnose(settings: Settings, log: Path, begin: int = 0, status: int | None = None) -> Problem:
    """Return the problem of a server that ended before it was healthy, from its log after byte `begin` and its exit status.

    E0801, E0821, E0937.
    """
    from runners.machine.memory import OOM_TEXTS

    lines, text = last_lines(log, begin), read_end(log, begin)
    if _MEMORY.search(text) or any(mark in text for mark in OOM_TEXTS):
        return out_of_memory(settings, log, lines, "ran out of memory")
    killed = status == -signal.SIGKILL and _ENDED_ITSELF not in text
    if killed or _KILLED.search(text):
        words = "was killed, as systems do when memory runs out"
        return ProcessDied(*out_of_memory(settings, log, lines, words).diagnostics)
    if _ARCHITECTURE.search(text):
        return problem(
            "E0801",
            "SGLang does not know the model's architecture",
            where=str(settings.model),
            notes=list(lines)[-3:],
            help="take a model that SGLang serves, such as Qwen3 or Llama, or `engine = embedded` for those two",
        )
    return problem(
        "E0821",
        "the SGLang server ended before it was ready",
        where=str(log),
        notes=list(lines),
        help="its log, above and in that file, ends in the reason",
    )


def out_of_memory(settings: Settings, log: Path, lines: Sequence[str], words: str) -> Problem:
    """Return E0937, with what happened, the sizes that can be changed, and the free memory."""
    import torch

    from runners.machine.memory import describe_memory

    sequence = settings.context * settings.token_bytes
    weights = sum(path.stat().st_size for path in settings.model.glob("*.safetensors"))
    share = f"of what is free as it starts it takes {settings.memory_fraction:.0%} at most"
    if settings.on_cpu:
        helps = (
            f"shorten the longest response, or free memory ({describe_memory(torch.device('cpu'))}; {share})"
        )
    else:
        helps = f"raise `tensor_parallel`, shorten the longest response, or free memory on its GPUs ({share})"
    return problem(
        "E0937",
        f"the SGLang server {words}: weights {naturalsize(weights, binary=True)} on disk, "
        f"{naturalsize(sequence, binary=True)} of keys and values for "
        f"one sequence of {settings.context} tokens",
        where=str(log),
        notes=list(lines)[-3:],
        help=helps,
    )


def port_taken(log: Path, begin: int = 0) -> bool:
    """Return whether a log says, after its byte `begin`, that something else listens on the server's port.

    SGLang says more after that, and ends only when its own first request to the port has failed.
    """
    return any(mark in read_end(log, begin) for mark in IN_USE)


_RDZV = "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"
_NCCL = "NCCL_SOCKET_IFNAME"
_PORTS = range(20_000, 32_000)
"""Below where systems take ports for outgoing connections, so that none comes between the choice and the server."""
_MAX_PORTS = 5
FORCED = "/reodsl/forced"
"""The path at which a server is asked for forced answers, and cuts a response itself."""
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address, its key, and its version of SGLang.

    `room` is how many tokens its caches hold, 0 if it does not say. `channels` are those that it holds NCCL to, 0 if
    NCCL chooses. `log` is its output.
    """

    url: str
    key: str
    version: str = ""
    room: int = 0
    channels: int = 0
    log: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that a request has to carry."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


class ServerHandle:
    """A handle of a server: a process of ours, or an actor on another node."""

    def begin(self) -> None:
        """Let the server start, without waiting for it, if that is possible; `start` waits."""

    def start(self) -> Address:
        """Start the server, again if need be, and wait until it is healthy, with the settings' model as version 0."""
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """Return whether the server runs."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the server at once, whatever state it is in."""

    def stop(self) -> None:
        """End the server, or give it back."""
        self.kill()


class Server(ServerHandle):
    """A server process on this machine. `start` may be called again after it died; `stop` at any time."""

    def __init__(
        self,
        settings: Settings,
        python: Path,
        log: Path,
        host: str = LOOPBACK,
        devices: str | None = None,
        reach: str | None = None,
    ) -> None:
        """Prepare a server whose output goes to `log`; `devices` are its GPUs, of those that this process sees.

        `reach` is the address of this machine at which other machines join groups with the server's processes.
        """
        self.settings, self.python, self.log, self.host, self.devices = settings, python, log, host, devices
        self.reach = reach
        self.process: Child | None = None
        self.address: Address | None = None
        self._begun: Address | None = None
        self._scratch: Scratch | None = None
        self._output: BinaryIO | None = None
        self._begin = 0

    def begin(self, port: int | None = None) -> None:
        """Start the process on a port, by default a free port, without waiting for it: `start` waits."""
        chosen = port or free_port(self.host)
        address = Address(f"http://{self.host}:{chosen}", secrets.token_urlsafe(24))
        self._launch(address, chosen)
        self._begun = address

    def start(self) -> Address:
        """Start the server, if that has not begun, and wait until it is healthy.

        If its port turns out to be taken, it gets another. Raises E0801, E0821 to E0937.
        """
        for _ in range(_MAX_PORTS):
            if self._begun is None:
                self.begin()
            address, self._begun = self._begun, None
            assert address is not None
            if self._healthy(address):
                self.address = replace(read_settings(address), log=self._own_output())
                return self.address
            status = self.process.poll() if self.process else None
            self.kill()
            if not port_taken(self.log, self._begin):
                raise diagnose(self.settings, self.log, self._begin, status)
        raise problem(
            "E0821",
            f"no port is free for an SGLang server: {_MAX_PORTS} were taken",
            where=self.host,
            help="end what listens on so many ports between 20000 and 32000",
        )

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def _own_output(self) -> Path:
        """Return the server's log by its open file, because the path may have been removed."""
        output = self._output
        return self.log if output is None else Path(f"/proc/{os.getpid()}/fd/{output.fileno()}")

    def kill(self) -> None:
        """End the server and every process that it started, at once."""
        if self.process is not None:
            self.process.end()
            self.process = None
        self.address = self._begun = None
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _launch(self, address: Address, port: int) -> None:
        """Start the process with its environment, log and scratch folder."""
        self.kill()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # SGLang writes its settings there, its key among them.
        self.log.touch(mode=0o600)
        self._output = self.log.open("rb")
        self._begin = self.log.stat().st_size
        # Its sockets are files: short names, gone with it.
        self._scratch = Scratch()
        environment = self.settings.environment(os.environ, address.key)
        environment["TMPDIR"] = str(self._scratch.folder)
        environment |= choose_rendezvous(self._scratch.folder, port, self.reach)
        if not self.settings.on_cpu:
            environment |= toolkit(self.python)
        if self.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.devices
        command = [str(self.python), "-P", str(LAUNCHER), *self.settings.arguments(self.host, port)]
        with self.log.open("ab") as log:
            self.process = Child(command, environment, stdout=log, stderr=subprocess.STDOUT)

    def _healthy(self, address: Address) -> bool:
        """Wait until the server answers to its key; false if its process ended. Raises E0821 if it takes too long."""
        began = time.monotonic()
        with httpx.Client(
            base_url=address.url, headers=address.headers, trust_env=False, timeout=5.0
        ) as client:
            while self.alive:
                try:
                    if client.get("/health").status_code == 200:
                        # Whoever had the port before us would not know the key.
                        return self.alive and client.get("/model_info").status_code == 200
                except httpx.TransportError:
                    pass
                if time.monotonic() - began > self.settings.patience:
                    lines = last_lines(self.log, self._begin)
                    self.kill()
                    raise problem(
                        "E0821",
                        f"the SGLang server was not healthy after {self.settings.patience:g} seconds",
                        where=str(self.log),
                        notes=lines,
                        help="give it longer with REODSL_SGLANG_PATIENCE=SECONDS, or see what its log ends in",
                    )
                time.sleep(_POLL_SECONDS)
        return False


def choose_rendezvous(folder: Path, port: int, reach: str | None) -> dict[str, str]:
    """Return the variables by which a server's processes meet in a private folder; SGLang would listen everywhere.

    Their groups listen on the loopback, or at the address `reach`, at which processes on other machines join them. The
    server's port, which no other server has, names what they share in memory.
    """
    name = interface(reach)
    chosen = {GLOO: name} if name and GLOO not in os.environ else {}
    if reach is None and name and _NCCL not in os.environ:
        chosen[_NCCL] = f"={name}"
    return chosen | {_RDZV: f"file://{folder}/meeting", "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port)}


def read_settings(address: Address) -> Address:
    """Return the address with what the server reports of itself; as it is if the server reports nothing."""
    try:
        answer = httpx.get(
            f"{address.url}/server_info", headers=address.headers, trust_env=False, timeout=30.0
        ).json()
    except (httpx.HTTPError, ValueError):
        return address
    return add_settings(address, answer) if isinstance(answer, dict) else address


def add_settings(address: Address, settings: Mapping[str, Any]) -> Address:
    """Return the address with the version, caches and channels of a server's own settings."""
    room, wide = settings.get("max_total_num_tokens"), settings.get("tp_size", 1)
    # A group whose processes take unlike numbers of channels never ends its first broadcast.
    fixes_channels = settings.get("enable_deterministic_inference") and isinstance(wide, int) and wide > 1
    return replace(
        address,
        version=str(settings.get("version", "")),
        room=room if isinstance(room, int) else 0,
        channels=CHANNELS if fixes_channels else 0,
    )


def free_port(host: str) -> int:
    """Return a port that nothing listens on now. Raises E0821 if a hundred random ports are taken."""
    choose = random.SystemRandom()
    for _ in range(100):
        port = choose.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise problem(
        "E0821",
        "no port is free for an SGLang server",
        where=host,
        help="end what listens on ports between 20000 and 32000",
    )
