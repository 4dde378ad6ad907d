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
from runners.engine.sglang.settings import CHANNELS, LAUNCHER, Settings, toolkit
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
    """Return the error of a server that ended before it was healthy, found by known phrases in the server's log.

    Args:
        settings: The settings of the server.
        log: The server's output.
        begin: The byte of the log at which this start of the server begins.
        status: The exit status of the process, negative for a signal; None if it is not known.

    Returns:
        E0937 if memory ran out, E0801 for an architecture that SGLang lacks, else E0821 with the end of the log. If the
        system killed the server, E0937 is a `ProcessDied`, after which a task may be tried again.
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
        help="read the last lines of its log, above or in that file",
    )


def out_of_memory(settings: Settings, log: Path, lines: Sequence[str], words: str) -> Problem:
    """Return E0937 for a server that ran out of memory, with the sizes of its weights and of a sequence.

    Args:
        settings: The settings of the server.
        log: The server's output.
        lines: The last lines of the log, of which three are shown.
        words: What happened to the server, such as "ran out of memory".
    """
    import torch

    from runners.machine.memory import describe_memory

    sequence = settings.context * settings.token_bytes
    weights = sum(path.stat().st_size for path in settings.model.glob("*.safetensors"))
    share = (
        f"the server takes at most {settings.memory_fraction:.0%} of the memory that is free when it starts"
    )
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
    """Return whether a server's log says that another program listens on the server's port.

    The log is searched from byte `begin` to its end. Other lines may follow the words, because SGLang goes on until its
    first request to the port fails.
    """
    return any(mark in read_end(log, begin) for mark in IN_USE)


_RDZV = "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"
_NCCL = "NCCL_SOCKET_IFNAME"
_PORTS = range(20_000, 32_000)
"""Ports of servers, below the ports that systems use for outgoing connections and could take before the server starts."""
_MAX_PORTS = 5
FORCED = "/reodsl/forced"
"""The path of requests for forced answers, for which the server cuts a response itself."""
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address, its key, and its version of SGLang.

    `cache_tokens` is how many tokens its caches hold, 0 if that is unknown. `channels` is the number of NCCL channels that
    it uses, 0 if NCCL chooses. `log` is its output.
    """

    url: str
    key: str
    version: str = ""
    cache_tokens: int = 0
    channels: int = 0
    log: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that a request to the server needs, for its key."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


class ServerHandle:
    """A handle of a server: a child process, or an actor on another node."""

    def begin(self) -> None:
        """Begin to start the server and return at once; `start` waits. A handle that cannot do this does nothing."""

    def start(self) -> Address:
        """Start the server unless `begin` has, wait until it is healthy, and return its address.

        The server then has the model of its settings, as version 0 of the weights.
        """
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """Return whether the server runs."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the server at once, in any state."""

    def stop(self) -> None:
        """End the server, or give a cached server back to its cache."""
        self.kill()


class Server(ServerHandle):
    """A server process on this machine.

    `start` may be called again after the process died, and `stop` at any time.
    """

    def __init__(
        self,
        settings: Settings,
        python: Path,
        log: Path,
        host: str = LOOPBACK,
        devices: str | None = None,
        reach: str | None = None,
    ) -> None:
        """Prepare a server without starting it.

        Args:
            settings: The settings of the server.
            python: The Python that has SGLang.
            log: The file for the server's output.
            host: The address at which the server listens.
            devices: The server's `CUDA_VISIBLE_DEVICES`; None to inherit this process's value.
            reach: The address of this machine at which processes on other machines join groups with the server's
                processes; None if there are no other machines.
        """
        self.settings, self.python, self.log, self.host, self.devices = settings, python, log, host, devices
        self.reach = reach
        self.process: Child | None = None
        self.address: Address | None = None
        self._launched: Address | None = None
        self._scratch: Scratch | None = None
        self._output: BinaryIO | None = None
        self._begin = 0

    def begin(self, port: int | None = None) -> None:
        """Start the process on `port`, or on a free port, without waiting until it is healthy."""
        chosen = port or free_port(self.host)
        address = Address(f"http://{self.host}:{chosen}", secrets.token_urlsafe(24))
        self._launch(address, chosen)
        self._launched = address

    def start(self) -> Address:
        """Start the server unless `begin` has, and wait until it is healthy.

        If another program has taken its port, the server starts again on another port, up to `_MAX_PORTS` times.

        Raises:
            Problem: E0801 for an architecture that SGLang lacks, E0937 if memory runs out, else E0821.
        """
        for _ in range(_MAX_PORTS):
            if self._launched is None:
                self.begin()
            address, self._launched = self._launched, None
            assert address is not None
            if self._wait_until_healthy(address):
                self.address = replace(read_settings(address), log=self._open_log())
                return self.address
            status = self.process.poll() if self.process else None
            self.kill()
            if not port_taken(self.log, self._begin):
                raise diagnose(self.settings, self.log, self._begin, status)
        raise problem(
            "E0821",
            f"no port is free for an SGLang server: {_MAX_PORTS} were taken",
            where=self.host,
            help="end the programs that listen on ports between 20000 and 32000",
        )

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def _open_log(self) -> Path:
        """Return a path of the server's log that still works after the log is removed.

        The path goes through this process's open file of the log. If no file is open, it is the ordinary path.
        """
        output = self._output
        return self.log if output is None else Path(f"/proc/{os.getpid()}/fd/{output.fileno()}")

    def kill(self) -> None:
        """End the server and every process that the server started, and remove its temporary folder."""
        if self.process is not None:
            self.process.end()
            self.process = None
        self.address = self._launched = None
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _launch(self, address: Address, port: int) -> None:
        """Start the process with a new environment, log and temporary folder, after ending an earlier process.

        Args:
            address: The URL and the key of the server.
            port: The port of the URL.
        """
        self.kill()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # Private, because SGLang writes its settings to the log, with the key.
        self.log.touch(mode=0o600)
        self._output = self.log.open("rb")
        self._begin = self.log.stat().st_size
        # The folder of SGLang's sockets, whose paths have to be short.
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

    def _wait_until_healthy(self, address: Address) -> bool:
        """Wait until the server answers requests, and return whether it is the server and accepts its key.

        The result is False if the server's process ends, or if another program answers on the port and refuses the key.

        Raises:
            Problem: E0821 if the server is not healthy after `settings.patience` seconds.
        """
        began = time.monotonic()
        with httpx.Client(
            base_url=address.url, headers=address.headers, trust_env=False, timeout=5.0
        ) as client:
            while self.alive:
                try:
                    if client.get("/health").status_code == 200:
                        # Another program on the port would refuse the key.
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
                        help="allow more time with REODSL_SGLANG_PATIENCE=SECONDS, or read the end of its log",
                    )
                time.sleep(_POLL_SECONDS)
        return False


def choose_rendezvous(folder: Path, port: int, reach: str | None) -> dict[str, str]:
    """Return the environment variables that make a server's processes rendezvous privately.

    By default SGLang would open a port on every network interface. The variables name a file for the rendezvous, and
    the network interface that gloo uses. NCCL is bound to the loopback interface if no other machine takes part.
    Variables that the user has set for gloo or NCCL are not changed.

    Args:
        folder: A private folder, for the file by which the processes find each other.
        port: The server's port, which is unique on this machine and names the server's shared memory.
        reach: The address of this machine at which processes on other machines join process groups with the server's
            processes; None to use only the loopback interface.
    """
    name = interface(reach)
    chosen = {GLOO: name} if name and GLOO not in os.environ else {}
    if reach is None and name and _NCCL not in os.environ:
        chosen[_NCCL] = f"={name}"
    return chosen | {_RDZV: f"file://{folder}/meeting", "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port)}


def read_settings(address: Address) -> Address:
    """Return the address with the version, cache size and NCCL channels that the running server reports.

    If the server gives no readable reply, the address is returned unchanged.
    """
    try:
        answer = httpx.get(
            f"{address.url}/server_info", headers=address.headers, trust_env=False, timeout=30.0
        ).json()
    except (httpx.HTTPError, ValueError):
        return address
    return add_settings(address, answer) if isinstance(answer, dict) else address


def add_settings(address: Address, settings: Mapping[str, Any]) -> Address:
    """Return the address with the version, cache size and NCCL channels from a server's settings.

    The number of channels is fixed (`CHANNELS`) if the server runs deterministically on several GPUs, else 0.

    Args:
        address: The server's address.
        settings: The JSON object of the server's `/server_info`.
    """
    tokens, gpus = settings.get("max_total_num_tokens"), settings.get("tp_size", 1)
    # A broadcast group hangs if its processes use different numbers of channels.
    fixes_channels = settings.get("enable_deterministic_inference") and isinstance(gpus, int) and gpus > 1
    return replace(
        address,
        version=str(settings.get("version", "")),
        cache_tokens=tokens if isinstance(tokens, int) else 0,
        channels=CHANNELS if fixes_channels else 0,
    )


def free_port(host: str) -> int:
    """Return a random port of `_PORTS` on which no program listens now.

    Raises:
        Problem: E0821 if a hundred random ports are taken.
    """
    generator = random.SystemRandom()
    for _ in range(100):
        port = generator.choice(_PORTS)
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
        help="end the programs that listen on ports between 20000 and 32000",
    )
