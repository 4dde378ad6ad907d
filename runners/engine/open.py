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
    aside: Path | None = None,
    beside: float | None = None,
    precision: str = "auto",
    caches: str = "auto",
) -> Engine:
    """Open the rollout engine that `resources` names, with a checkpoint's weights.

    `longest` is the most tokens of any sequence (prompt, response, forcing text and answer; the model's context where
    it is left out); `aside` is a folder for what the engine writes while it runs, such as its servers' logs; left out, a
    temporary one, which goes when the engine is closed. `beside` is given where the caller trains on the same devices in
    turn with the engine: the bytes of each that it does not hold yet and will keep while the engine generates.
    `precision` is the model's: `bfloat16` rounds what the embedded engine multiplies; servers have one of their own.
    `caches` is `fp8` for keys and values of one byte a number, on GPUs.

    Raises E0801 or E0803 for the folder, E0807 for sequences longer than the model's context, E0314 for an unknown
    engine, E0820 and E0821 if a server does not start.
    """
    config = load_config(folder)
    # In a rehearsal on a cluster the task's own process generates: its GPUs may be declared alone.
    if resources.engine == "sglang" and resources.notes is None:
        return _sglang(folder, config, resources, longest, aside, beside, caches)
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
    aside: Path | None,
    beside: float | None,
    caches: str,
) -> SGLangEngine:
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
    if beside is not None:
        settings = colocated_settings(settings, beside)
    limits = Limits(settings.context, config.vocab_size)
    place = aside or Path(tempfile.mkdtemp(prefix="reodsl-sglang-"))
    try:
        return SGLangEngine(hosts(settings, resources, place), settings, limits, place, aside is None)
    except BaseException:
        if aside is None:
            # It stays where it has the log that the problem names.
            with suppress(OSError):
                place.rmdir()
        raise


def _token_bytes(config: Any, width: int) -> int:
    """Return the bytes of one token's keys and values."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * head_dim * width)
