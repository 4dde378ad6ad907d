"""Know what is installed besides the core: from a missing module to the extra of the package that brings it."""

from __future__ import annotations

from reodsl.diagnostics import Problem, problem

EXTRAS = {
    "run": (
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "gguf",
        "math_verify",
        "ray",
        "httpx",
        "orjson",
        "psutil",
        "tensorboard",
        "zstandard",
    ),
    "report": ("numpy", "polars", "altair", "vl_convert", "rich", "latex2mathml"),
    "hub": ("huggingface_hub", "datasets"),
    "gym": ("reasoning_gym",),
}
"""The modules of each extra, by the names that they are imported by."""


def missing_extra(error: ModuleNotFoundError) -> Problem | None:
    """E0121 for a module that comes with an extra; None for one that no extra brings, which is a defect."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        return None
    return problem(
        "E0121",
        f"this needs the package `{module.replace('_', '-')}`, which is not installed",
        notes=["checking, formatting, planning and the language server work without it"],
        help=f"install it with: pip install 'reodsl[{extra}]'",
    )
