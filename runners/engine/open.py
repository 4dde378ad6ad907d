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

    Args:
        folder: The checkpoint.
        resources: The engine, its number, and its devices.
        longest: The most tokens of a sequence (prompt, response, forcing text and answer); None for the model's
            context.
        scratch_dir: A folder for what the engine writes, such as its servers' logs; None for a temporary folder, which
            is removed when the engine is closed.
        trainer_bytes: Bytes of each device that a trainer does not hold yet and will keep while the engine generates;
            None if no trainer shares the devices.
        precision: The model's; `bfloat16` rounds what the embedded engine multiplies. Servers have their own.
        caches: `fp8` for keys and values of one byte a number, on GPUs.

    Raises:
        Problem: E0801 or E0803 for the folder, E0807 for sequences longer than the model's context, E0314 for an
            unknown engine, E0820 and E0821 if a server does not start.
    """
    config = load_config(folder)
    # In a rehearsal on a cluster the task's own process generates: its GPUs may be declared alone.
    if resources.engine == "sglang" and resources.notes is None:
        return _sglang(folder, config, resources, longest, scratch_dir, trainer_bytes, caches)
    if resources.engine not in ("embedded", "sglang"):
        raise problem(
            "E0314",
            f"there is no rollout engine `{resources.engine}` here",
            help="there are `embedded`, which comes with reodsl, and `sglang`",
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
    """Open SGLang's engine, with servers on this machine or the cluster; see `open_engine`."""
    import tempfile
    from contextlib import suppress

    from runners.engine.sglang.engine import SGLangEngine
    from runners.engine.sglang.hosts import colocated_settings, hosts
    from runners.engine.sglang.settings import Settings, patience

    context = config.max_position_embeddings
    if longest is not None and longest > context:
        raise problem(
            "E0807",
            f"a sequence may have {longest} tokens (prompt, response, forcing text and answer), and the model's context "
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
            # It stays where it has the log that the problem names.
            with suppress(OSError):
                logs.rmdir()
        raise


def _token_bytes(config: Any, width: int) -> int:
    """Return the bytes of a token's keys and values."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * head_dim * width)
