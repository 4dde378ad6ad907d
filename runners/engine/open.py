"""Open the rollout engine of a checkpoint on this machine's resources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.diagnostics import problem
from reodsl.graph.job import Resources
from reodsl.price.machine import USABLE
from runners.engine.protocol import Engine, Limits
from runners.models.folder import load_config

if TYPE_CHECKING:
    from runners.engine.sglang.engine import SGLangEngine


def open_engine(
    folder: Path,
    resources: Resources,
    longest: int | None = None,
    scratch_dir: Path | None = None,
    trainer_bytes: float | None = None,
    precision: str = "auto",
    caches: str = "auto",
) -> Engine:
    """Open the rollout engine that `resources` names, with a checkpoint's weights.

    A rehearsal on a cluster (`resources.notes` is set) opens the embedded engine even if `resources` names SGLang.

    Args:
        folder: The checkpoint.
        resources: The engine, its number, and its devices.
        longest: The most tokens of a sequence (prompt, response, forcing text and answer); None for the model's
            context.
        scratch_dir: A folder for files of the engine, such as its servers' logs; None for a temporary folder, which
            is removed when the engine is closed.
        trainer_bytes: Bytes that a trainer will keep on each device while the engine generates, and has not allocated
            yet; None if no trainer shares the devices.
        precision: The `precision` of the model: with `bfloat16` the embedded engine rounds the inputs of matrix
            products. SGLang's servers do not read it.
        caches: `fp8` stores keys and values in one byte per number, on GPUs with SGLang; `auto` does not.

    Raises:
        Problem: E0801 or E0803 for the folder, E0807 for sequences longer than the model's context, E0314 for an
            unknown engine, E0820 and E0821 if a server does not start.
    """
    config = load_config(folder)
    # A rehearsal on a cluster (`notes`) generates in the task's process, because its GPUs may exist by declaration only.
    if resources.engine == "sglang" and resources.notes is None:
        return _sglang(folder, config, resources, longest, scratch_dir, trainer_bytes, caches)
    if resources.engine not in ("embedded", "sglang"):
        raise problem(
            "E0314",
            f"there is no rollout engine `{resources.engine}`",
            help="write `embedded`, which comes with reodsl, or `sglang`",
        )
    from runners.engine.embedded import EmbeddedEngine, EmbeddedSettings

    return EmbeddedEngine(config, folder, settings=EmbeddedSettings.on(resources.device, precision))


def _sglang(
    folder: Path,
    config: Any,
    resources: Resources,
    longest: int | None,
    scratch_dir: Path | None,
    trainer_bytes: float | None,
    caches: str,
) -> SGLangEngine:
    """Open SGLang's engine, with servers on this machine or on a cluster.

    Args:
        folder: The checkpoint.
        config: The `transformers` config of the checkpoint.
        resources: The number of servers, their devices, and the parallelism.
        longest: The most tokens of a sequence; None for the model's context.
        scratch_dir: A folder for the servers' logs;
            None for a temporary folder, which is removed when the engine is closed.
        trainer_bytes: Bytes that a trainer will keep on each device and has not allocated yet;
            None if there is no trainer.
        caches: `fp8` stores keys and values in one byte per number; `auto` does not.

    Raises:
        Problem: E0807 if `longest` is more than the model's context, E0820 and E0821 if a server does not start.
    """
    import tempfile
    from contextlib import suppress

    from runners.engine.sglang.engine import SGLangEngine
    from runners.engine.sglang.hosts import colocated_settings, hosts
    from runners.engine.sglang.settings import Settings, patience

    context = config.max_position_embeddings
    if longest is not None and longest > context:
        raise problem(
            "E0807",
            f"a sequence may have {longest} tokens (prompt, response, forcing text and answer), but the model's context "
            f"is {context} tokens",
            where=str(folder),
            help=f"shorten the longest response by {longest - context} tokens, or take a model with a longer context",
        )
    settings = Settings(
        model=folder.resolve(),
        context=longest or context,
        token_bytes=_token_bytes(config, 4 if resources.device == "cpu" else 2),
        device=resources.device,
        tensor_parallel=resources.tensor_parallel,
        memory_fraction=USABLE,
        determinism=resources.determinism,
        patience=patience(),
        caches=caches,
    )
    if trainer_bytes is not None:
        settings = colocated_settings(settings, trainer_bytes)
    limits = Limits(settings.context, config.vocab_size)
    logs = scratch_dir or Path(tempfile.mkdtemp(prefix="reodsl-sglang-"))
    try:
        return SGLangEngine(hosts(settings, resources, logs), settings, limits, logs, scratch_dir is None)
    except BaseException:
        if scratch_dir is None:
            # `rmdir` keeps a folder that has files, such as the log that the problem names.
            with suppress(OSError):
                logs.rmdir()
        raise


def _token_bytes(config: Any, number_bytes: int) -> int:
    """Return the bytes of a token's keys and values in all layers, with `number_bytes` bytes for each number."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * head_dim * number_bytes)
