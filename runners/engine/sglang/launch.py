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
    """Patch SGLang to return the log-probability of a sampled token under the tempered, truncated distribution cheaply.

    SGLang returns this number with a list of all tokens that truncation left, which may be the full vocabulary. The
    patch cuts the list after one token, and removes the error status for a cut list.
    """
    from sglang.srt.layers import sampler
    from sglang.srt.layers.logits_processor import SamplingMaskStatus

    original = sampler.Sampler._build_sampling_mask_output

    def build(self: Any, *args: Any, **named: Any) -> Any:
        """Replace `_build_sampling_mask_output`: list one token, and report a cut list as complete."""
        self.sampling_mask_max_tokens = 1
        mask = original(self, *args, **named)
        is_cut = mask.statuses == int(SamplingMaskStatus.OVERFLOW)
        mask.statuses = mask.statuses.masked_fill(is_cut, int(SamplingMaskStatus.OK))
        return mask

    sampler.Sampler._build_sampling_mask_output = build


def draw_by_token() -> None:
    """Patch SGLang's sampling to make a request's sample independent of the other requests of its batch.

    Without the patch, SGLang gives each token id a random number if no request of the batch truncates the distribution.
    If any request truncates, SGLang gives the random numbers to ranks of tokens, for all requests. The patch always
    gives them to token ids. It samples each row by its own kind (greedy, full or truncated), and truncates by top-k,
    then top-p, then min-p (`drawing.py`). Only rows that are truncated are sorted.
    """
    import torch
    from sglang.srt.layers import sampler
    from sglang.srt.sampling.sampling_batch_info import TOP_K_ALL, SamplingBatchInfo

    drawing = _load_file("drawing")
    original, sample = SamplingBatchInfo.from_schedule_batch.__func__, sampler.Sampler._sample_from_probs
    truncates = True

    def mark_top_k(cls: Any, batch: Any, *args: Any, **named: Any) -> Any:
        """Replace `from_schedule_batch`: set the batch's flag of top-p also if a request has top-k.

        The flag then says that a row is truncated. SGLang's flag of top-k cannot say this: greedy requests set it too.
        """
        info = original(cls, batch, *args, **named)
        info.need_top_p_sampling |= any(1 < r.sampling_params.top_k < TOP_K_ALL for r in batch.reqs)
        return info

    def note_truncation(self: Any, probs: Any, info: Any, *args: Any, **named: Any) -> Any:
        """Replace `_sample_from_probs`: note whether any row of the batch is truncated, then sample as before."""
        nonlocal truncates
        truncates = info.need_top_p_sampling or info.need_min_p_sampling
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
        """Replace `top_k_top_p_min_p_sampling_from_probs_torch`, whose parameters SGLang defines.

        Returns:
            Tokens [rows]; with `return_filtered_probs` also the truncated weights, their token ids [rows, vocab], and the
            weight of each sampled token [rows].
        """

        def pick(weights: Any, rows: Any) -> Any:
            """Sample a token from the weights [n, vocab] of the batch's `rows`, by their seeds if requests have seeds."""
            if sampling_seed is None:
                return torch.multinomial(weights, num_samples=1)
            return sampler.multinomial_with_seed(weights.double().log(), sampling_seed[rows], positions[rows])

        if not (truncates or return_filtered_probs):
            return drawing.draw_uncut(probs, top_ks, pick).view(-1).to(torch.int32)
        tokens, weights, ids, weight = drawing.draw_rows(
            probs, top_ks, top_ps, min_ps if need_min_p_sampling else None, pick
        )
        tokens = tokens.view(-1).to(torch.int32)
        return (tokens, weights, ids.to(torch.int32), weight) if return_filtered_probs else tokens

    sampler.top_k_top_p_min_p_sampling_from_probs_torch = draw
    sampler.Sampler._sample_from_probs = note_truncation
    SamplingBatchInfo.from_schedule_batch = classmethod(mark_top_k)


def seed_draws() -> None:
    """Patch SGLang to sample by the seeds of requests, even without deterministic kernels.

    By default SGLang ignores the seeds of requests if deterministic inference is off.
    """
    import torch
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    original = SamplingBatchInfo.from_schedule_batch.__func__

    def add_seeds(cls: Any, batch: Any, *args: Any, **named: Any) -> Any:
        """Replace `from_schedule_batch`: add the seeds of the requests if the batch has none."""
        info = original(cls, batch, *args, **named)
        if info.sampling_seed is None:
            seeds = [request.sampling_params.sampling_seed or 0 for request in batch.reqs]
            info.sampling_seed = torch.tensor(seeds, dtype=torch.int64, device=info.temperatures.device)
        return info

    SamplingBatchInfo.from_schedule_batch = classmethod(add_seeds)


def _load_file(name: str) -> Any:
    """Import the module `name`.py, relative to this folder, because this project is not on the path of SGLang's Python."""
    file = Path(__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"reodsl_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def meet_in_file() -> None:
    """Patch SGLang's process groups for weight updates to rendezvous through a file.

    The patch applies to a group whose address is an absolute path. Another group rendezvouses through a port, which
    everybody on the network can open.
    """
    from sglang.srt.model_executor.model_runner_components import weight_updater
    from torch._C._distributed_c10d import PrefixStore

    meeting, patience = _load_file("../../machine/rendezvous"), timedelta(seconds=60)
    original = weight_updater.init_custom_process_group
    # Holds a reference to the store of the current group, because the group itself keeps only torch's half.
    stores: list[Any] = []

    def join(*, init_method: str, world_size: int, group_name: str, **given: Any) -> Any:
        """Replace `init_custom_process_group`: join a group through a shared file if the address is a path."""
        file = init_method.removeprefix("tcp://").rpartition(":")[0]
        if file.startswith("/"):
            stores[:] = [meeting.SharedFile(Path(file), world_size, patience)]
            given["store"] = PrefixStore(group_name, stores[0])
        else:
            given["init_method"] = init_method
        return original(world_size=world_size, group_name=group_name, **given)

    weight_updater.init_custom_process_group = join


def tell_plain_logprobs() -> None:
    """Patch SGLang to return log-probabilities as a list of numbers.

    By default an answer has a list of log-probability, token id and text for each token. Reading these lists takes most
    of the time to read an answer.
    """
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    original = TokenizerManager.detokenize_logprob_tokens

    def plain(self: Any, values: Any, tokens: Any, decode_to_text: bool) -> Any:
        """Replace `detokenize_logprob_tokens`: return the numbers alone unless text is requested."""
        return original(self, values, tokens, True) if decode_to_text else list(values)

    TokenizerManager.detokenize_logprob_tokens = plain


def answer_at_cuts() -> None:
    """Add the route `/reodsl/forced` to the server.

    A request to this route sends a response once, and asks for forced answers at many cuts of the response.
    """
    from sglang.srt.entrypoints import http_server
    from sglang.srt.managers.io_struct import GenerateReqInput

    async def forced(request: Any) -> Any:
        """Return the answers to a message of `messages.forced_message`, as for a batch of prompts."""
        message = await request.json()
        tokens, forcing, parameters = message["tokens"], message["forcing"], message["sampling_params"]
        generation = GenerateReqInput(
            input_ids=[tokens[:cut] + forcing for cut in message["cuts"]],
            sampling_params=[{**parameters, "sampling_seed": seed} for seed in message["seeds"]],
            priority=message["priority"],
        )
        return await http_server.serve_generate_request(generation, request)

    http_server.app.add_route("/reodsl/forced", forced, methods=["POST"])


def end_with_owner() -> None:
    """Make this process end when the owner, the process that started the server, ends.

    Standard input is a pipe whose other end the owner has, so the pipe closes when the owner ends. If standard input is
    no pipe, the server has no owner, and nothing is done. Every process of the server calls this function and watches
    the pipe. The kernel's signal of a parent's death alone would miss a process that is just being started.
    """
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A copy, because processes that Python starts close their standard input.
    pipe = os.dup(0)

    def watch() -> None:
        """Read the pipe until it is closed, then kill the process group."""
        while os.read(pipe, 4096):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def try_port() -> None:
    """Exit if another program listens on the server's port.

    SGLang itself would notice this only after loading the model, which may take minutes.
    """
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=30_000)
    address, _ = options.parse_known_args()
    try:
        socket.create_server((address.host, address.port)).close()
    except OSError as fault:
        # SGLang itself reports other errors of the host.
        if fault.errno == errno.EADDRINUSE:
            raise SystemExit(f"{address.host}:{address.port}: address already in use") from None


def require_meeting() -> None:
    """Exit if this version of SGLang cannot rendezvous by a file, and would open a port to every address instead."""
    from sglang.srt.environ import envs

    if not hasattr(envs, "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"):
        raise SystemExit(
            "this version of SGLang opens a rendezvous port to the network: install the pinned version (`make sglang`)"
        )


# Log-probabilities are those of the model, not of the tempered distribution.
os.environ["SGLANG_RETURN_ORIGINAL_LOGPROB"] = "1"
# Before the slow imports of SGLang.
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
    # The key comes in the environment, because everyone on a machine can read command lines. It may begin with `-`.
    sys.argv = ["sglang.launch_server", *sys.argv[1:], f"--api-key={os.environ.pop('REODSL_SGLANG_KEY')}"]
    runpy.run_module("sglang.launch_server", run_name="__main__")
