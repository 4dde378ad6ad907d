"""Start an SGLang server that never outlives the process that asked for it.

Run by the Python that has SGLang, as a script: nothing of this project is imported. Its children import it again, so
what is set at module level holds in them too.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import importlib.util
import os
import runpy
import signal
import socket
import stat
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_SEEDED = os.environ.get("REODSL_SGLANG_DETERMINISM") == "seeded"


def tell_drawn_probability() -> None:
    """Let answers hold a token's log-probability under the truncated, tempered distribution without listing all of it.

    SGLang returns it beside the remaining tokens, which are the full vocabulary without truncation: here the list ends
    after one token, and a longer list is no error.
    """
    from sglang.srt.layers import sampler
    from sglang.srt.layers.logits_processor import SamplingMaskStatus

    original = sampler.Sampler._build_sampling_mask_output

    def build(self: Any, *args: Any, **named: Any) -> Any:
        self.sampling_mask_max_tokens = 1
        mask = original(self, *args, **named)
        short = mask.statuses == int(SamplingMaskStatus.OVERFLOW)
        mask.statuses = mask.statuses.masked_fill(short, int(SamplingMaskStatus.OK))
        return mask

    sampler.Sampler._build_sampling_mask_output = build


def draw_by_token() -> None:
    """Let truncated distributions be sampled by token id, and truncated in the order that this project defines.

    If no request of a batch is truncated, which is known without asking the device, nothing is sorted.

    SGLang gives its random numbers to tokens by id if nothing in a batch is truncated, and by rank if anything is (a
    greedy request does): the sample of a seed would depend on the batch. Here they always go by id, and each row is
    sampled by its own kind.
    """
    import torch
    from sglang.srt.layers import sampler
    from sglang.srt.sampling.sampling_batch_info import TOP_K_ALL, SamplingBatchInfo

    drawing = _load_file("drawing")
    original, sample = SamplingBatchInfo.from_schedule_batch.__func__, sampler.Sampler._sample_from_probs
    cut = True

    def noted(cls: Any, batch: Any, *args: Any, **named: Any) -> Any:
        """Let the word for top-p be said of top-k too, whose own is said of greedy requests as well."""
        info = original(cls, batch, *args, **named)
        info.need_top_p_sampling |= any(1 < r.sampling_params.top_k < TOP_K_ALL for r in batch.reqs)
        return info

    def sampled(self: Any, probs: Any, info: Any, *args: Any, **named: Any) -> Any:
        nonlocal cut
        cut = info.need_top_p_sampling or info.need_min_p_sampling
        return sample(self, probs, info, *args, **named)

    def draw(
        probs: Any,
        top_ks: Any,
        top_ps: Any,
        min_ps: Any,
        need_min_p_sampling: bool,
        sampling_seed: Any,
        positions: Any,
        *,
        return_filtered_probs: bool = False,
        max_top_k: int | None = None,
    ) -> Any:
        def pick(weights: Any, rows: Any) -> Any:
            if sampling_seed is None:
                return torch.multinomial(weights, num_samples=1)
            return sampler.multinomial_with_seed(weights.double().log(), sampling_seed[rows], positions[rows])

        if not (cut or return_filtered_probs):
            return drawing.draw_uncut(probs, top_ks, pick).view(-1).to(torch.int32)
        tokens, weights, ids, weight = drawing.draw_rows(
            probs, top_ks, top_ps, min_ps if need_min_p_sampling else None, pick
        )
        tokens = tokens.view(-1).to(torch.int32)
        return (tokens, weights, ids.to(torch.int32), weight) if return_filtered_probs else tokens

    sampler.top_k_top_p_min_p_sampling_from_probs_torch = draw
    sampler.Sampler._sample_from_probs = sampled
    SamplingBatchInfo.from_schedule_batch = classmethod(noted)


def seed_draws() -> None:
    """Let requests be sampled by their seeds without deterministic kernels too; SGLang then ignores seeds."""
    import torch
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    original = SamplingBatchInfo.from_schedule_batch.__func__

    def seeded(cls: Any, batch: Any, *args: Any, **named: Any) -> Any:
        info = original(cls, batch, *args, **named)
        if info.sampling_seed is None:
            seeds = [request.sampling_params.sampling_seed or 0 for request in batch.reqs]
            info.sampling_seed = torch.tensor(seeds, dtype=torch.int64, device=info.temperatures.device)
        return info

    SamplingBatchInfo.from_schedule_batch = classmethod(seeded)


def _load_file(name: str) -> Any:
    """Load a module by its file, relative to this folder: it is not on the path of SGLang's Python."""
    file = Path(__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"reodsl_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def meet_in_file() -> None:
    """Let groups for weights meet at a file, if the address is a path; a port would answer everybody."""
    from sglang.srt.model_executor.model_runner_components import weight_updater
    from torch._C._distributed_c10d import PrefixStore

    meeting, patience = _load_file("../../machine/rendezvous"), timedelta(seconds=60)
    original = weight_updater.init_custom_process_group
    # A group keeps only torch's half of a store, and there is one group at a time.
    stores: list[Any] = []

    def join(*, init_method: str, world_size: int, group_name: str, **given: Any) -> Any:
        file = init_method.removeprefix("tcp://").rpartition(":")[0]
        if file.startswith("/"):
            stores[:] = [meeting.SharedFile(Path(file), world_size, patience)]
            given["store"] = PrefixStore(group_name, stores[0])
        else:
            given["init_method"] = init_method
        return original(world_size=world_size, group_name=group_name, **given)

    weight_updater.init_custom_process_group = join


def tell_plain_logprobs() -> None:
    """Let answers list log-probabilities by themselves, without their tokens again and a place for text.

    A list for each token is most of the time that reading an answer takes.
    """
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    listed = TokenizerManager.detokenize_logprob_tokens

    def plain(self: Any, values: Any, tokens: Any, decode_to_text: bool) -> Any:
        return listed(self, values, tokens, True) if decode_to_text else list(values)

    TokenizerManager.detokenize_logprob_tokens = plain


def answer_at_cuts() -> None:
    """Add a route that takes a response once and cuts it in the server, so that prefixes are not sent for each budget."""
    from sglang.srt.entrypoints import http_server
    from sglang.srt.managers.io_struct import GenerateReqInput

    async def forced(request: Any) -> Any:
        message = await request.json()
        tokens, forcing, drawing = message["tokens"], message["forcing"], message["sampling_params"]
        generation = GenerateReqInput(
            input_ids=[tokens[:cut] + forcing for cut in message["cuts"]],
            sampling_params=[{**drawing, "sampling_seed": seed} for seed in message["seeds"]],
            priority=message["priority"],
        )
        return await http_server.serve_generate_request(generation, request)

    http_server.app.add_route("/reodsl/forced", forced, methods=["POST"])


def end_with_owner() -> None:
    """End this process, and all others of its server, when the process that started the server ends.

    Standard input is a pipe that the owner holds open; if it is no pipe, the server belongs to nobody and stays. Each
    process of the server watches the pipe from its start: the kernel's signal alone would miss a process that is only
    being started when its parent ends.
    """
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Its own, since processes that Python starts give up their standard input.
    pipe = os.dup(0)

    def watch() -> None:
        while os.read(pipe, 4096):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def try_port() -> None:
    """End this process if something else listens on the server's port: SGLang would notice only after loading."""
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=30_000)
    address, _ = options.parse_known_args()
    try:
        socket.create_server((address.host, address.port)).close()
    except OSError as fault:
        # What else may be wrong with a host is SGLang's to say.
        if fault.errno == errno.EADDRINUSE:
            raise SystemExit(f"{address.host}:{address.port}: address already in use") from None


def require_meeting() -> None:
    """End this process if SGLang would not meet in the owner's folder but at a port of every address."""
    from sglang.srt.environ import envs

    if not hasattr(envs, "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"):
        raise SystemExit(
            "this SGLang's processes meet at a port that everybody reaches: install the pinned one"
        )


# Log-probabilities are those of the model, not of the tempered distribution.
os.environ["SGLANG_RETURN_ORIGINAL_LOGPROB"] = "1"
# Before all that takes long.
end_with_owner()
if __name__ == "__main__":
    try_port()
tell_drawn_probability()
draw_by_token()
meet_in_file()
if _SEEDED:
    seed_draws()

if __name__ == "__main__":
    require_meeting()
    tell_plain_logprobs()
    answer_at_cuts()
    # The key comes in the environment, since command lines can be read by everyone on a machine. It may begin with a dash.
    sys.argv = ["sglang.launch_server", *sys.argv[1:], f"--api-key={os.environ.pop('REODSL_SGLANG_KEY')}"]
    runpy.run_module("sglang.launch_server", run_name="__main__")
