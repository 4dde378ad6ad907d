"""A process in a server's place: it takes a server's messages and answers them by the embedded engine.

Run as a module with the arguments and the key of a server.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from runners.engine.embedded import EmbeddedEngine, EmbeddedSettings
from runners.engine.protocol import Request, TokenSampling
from runners.engine.sglang.control import call_all
from runners.engine.sglang.server import FORCED
from runners.engine.sglang.settings import KEY
from runners.machine.rendezvous import SharedFile
from runners.models.folder import load_config

_PATIENCE = timedelta(seconds=60)
VERSION = "a stand-in"
"""The version that it tells, where a server tells SGLang's."""

Message = Mapping[str, Any]


def spell_out(message: Message) -> dict[str, Any]:
    """Write out every prefix of a forced message, as the launcher's route does."""
    tokens, forcing, drawn = message["tokens"], message["forcing"], message["sampling_params"]
    return {
        "input_ids": [tokens[:cut] + forcing for cut in message["cuts"]],
        "sampling_params": [{**drawn, "sampling_seed": seed} for seed in message["seeds"]],
    }


class ServedDouble:
    """A model that is served: what each path does to it."""

    def __init__(self, model: Path, ranks: int) -> None:
        """Load the model of a folder, for a server of `ranks` processes. Raises as `EmbeddedEngine` does."""
        self.version, self._ranks = 0, ranks
        self._engine = EmbeddedEngine(load_config(model), model, settings=EmbeddedSettings.on("cpu"))
        self._lock = threading.Lock()
        self._state: dict[str, torch.Tensor] = {}
        # A group keeps only torch's half of a store.
        self._groups: list[tuple[Any, Store]] = []
        self.paths: dict[str, Callable[[Message], object]] = {
            "/generate": self._generate,
            FORCED: lambda message: self._generate(spell_out(message)),
            "/update_weights_from_disk": self._read,
            "/update_weights_from_tensor": self._take_tensors,
            "/init_weights_update_group": self._join,
            "/update_weights_from_distributed": self._receive,
            "/destroy_weights_update_group": self._leave,
            "/end_weight_update": self._load,
        }

    def _generate(self, message: Message) -> object:
        prompts, drawings = message["input_ids"], message["sampling_params"]
        several = isinstance(drawings, list)
        if not several:
            prompts, drawings = [prompts], [drawings]
        first = drawings[0]
        sampling = TokenSampling(
            first["max_new_tokens"],
            first["temperature"],
            first["top_p"],
            first["top_k"],
            tuple(first["stop_token_ids"]),
        )
        requests = [
            Request(tuple(prompt), int(drawing["sampling_seed"]))
            for prompt, drawing in zip(prompts, drawings, strict=True)
        ]
        with self._lock:
            responses, version = self._engine.generate(requests, sampling), self.version
        answers = [
            {
                "output_ids": each.tokens,
                "meta_info": {
                    "output_token_logprobs": each.logprobs.tolist(),
                    "output_token_sampling_logprobs": each.sampling_logprobs.tolist(),
                    "weight_version": str(version),
                    "finish_reason": {"type": each.finish},
                    "prompt_tokens": len(request.prompt),
                    "cached_tokens": 0,
                },
            }
            for request, each in zip(requests, responses, strict=True)
        ]
        return answers if several else answers[0]

    def _read(self, message: Message) -> None:
        self._switch(Path(message["model_path"]), message)

    def _take_tensors(self, message: Message) -> None:
        # Whoever sends them knows the key, and has started this process.
        tensors = pickle.loads(base64.b64decode(message["serialized_named_tensors"][0]))
        self._keep(message, {name: tensor.clone() for name, tensor in tensors})

    def _join(self, message: Message) -> None:
        name, world = message["group_name"], message["world_size"]

        def join(rank: int) -> None:
            # As torch names the values of a group that begins with a store of its own.
            store = SharedFile(Path(message["master_address"]), world, _PATIENCE)
            named = PrefixStore("cpu/", PrefixStore(f"{name}/", PrefixStore(name, store)))
            self._groups.append((dist.ProcessGroupGloo(named, rank, world, _PATIENCE), store))

        call_all([partial(join, message["rank_offset"] + rank) for rank in range(self._ranks)])

    def _receive(self, message: Message) -> None:
        kinds = [getattr(torch, kind) for kind in message["dtypes"]]
        empty = [torch.empty(shape, dtype=kind) for shape, kind in zip(message["shapes"], kinds, strict=True)]
        sizes = [each.nbytes for each in empty]
        flats = [torch.empty(sum(sizes), dtype=torch.uint8) for _ in self._groups]

        def take_in(group: Any, flat: torch.Tensor) -> None:
            group.broadcast([flat], dist.BroadcastOptions()).wait()

        call_all(
            [partial(take_in, group, flat) for (group, _), flat in zip(self._groups, flats, strict=True)]
        )
        parts = flats[0].split(sizes)
        self._keep(
            message,
            {
                name: part.view(like.dtype).view(like.shape)
                for name, part, like in zip(message["names"], parts, empty, strict=True)
            },
        )

    def _leave(self, _: Message) -> None:
        self._groups = []

    def _keep(self, message: Message, tensors: dict[str, torch.Tensor]) -> None:
        self._state |= tensors
        self._message = message

    def _load(self, _: Message) -> None:
        if self._state:
            state, self._state = self._state, {}
            self._switch(state, self._message)

    def _switch(self, weights: Any, message: Message) -> None:
        with self._lock:
            self.version = int(message["weight_version"])
            self._engine.load_weights(weights, self.version)


class Connection(BaseHTTPRequestHandler):
    """The connection of one request."""

    served: ServedDouble
    key: str

    def do_GET(self) -> None:
        """Tell that it is well, and its version; a path that takes messages is refused."""
        self._reply(405 if self.path in self.served.paths else 200, {"version": VERSION})

    def do_POST(self) -> None:
        """Do what a message asks for; what is not known here is nothing that a process without a GPU has to do."""
        length = int(self.headers.get("content-length", 0))
        if not self._knows_the_key():
            # A stranger's message is not parsed, and a long one not read.
            self.rfile.read(min(length, 1 << 16))
            self.close_connection = True
            self._reply(401, {})
            return
        message = json.loads(self.rfile.read(length) or "{}")
        path = self.path.partition("?")[0]
        done = self.served.paths.get(path, lambda _: None)(message)
        self._reply(200, {"success": True} if done is None else done)

    def _knows_the_key(self) -> bool:
        return hmac.compare_digest(self.headers.get("Authorization", ""), f"Bearer {self.key}")

    def _reply(self, status: int, answer: object) -> None:
        self.send_response(status if self._knows_the_key() else 401)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Write nothing: the log is for what goes wrong."""


def end_with_owner() -> None:
    """End this process with its owner, who holds the other end of its standard input."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> None:
    """Serve until the owner ends."""
    threading.Thread(target=end_with_owner, daemon=True).start()
    option = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    torch.set_num_threads(1)
    Connection.key = os.environ[KEY]
    Connection.served = ServedDouble(Path(option["--model-path"]), int(option["--tp-size"]))
    ThreadingHTTPServer((option["--host"], int(option["--port"])), Connection).serve_forever()


if __name__ == "__main__":
    main()
