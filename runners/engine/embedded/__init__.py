"""The embedded rollout engine: a decode loop in plain torch over Qwen3 and Llama weights, on CPU or CUDA."""

from runners.engine.embedded.engine import EmbeddedEngine
from runners.engine.embedded.model import EmbeddedSettings

__all__ = ["EmbeddedEngine", "EmbeddedSettings"]
