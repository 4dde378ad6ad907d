"""Say why a declared architecture cannot be built. Reads nothing, and imports no torch."""

from __future__ import annotations

from reodsl.diagnostics import Diagnostic, error
from reodsl.ir.model import Architecture


def check_architecture(source: Architecture, where: str) -> Diagnostic | None:
    """Return why no model has these sizes (E0808), whole numbers of at least 1; None if there is one."""
    if source.heads % source.kv_heads:
        return error(
            "E0808",
            f"{source.heads} heads cannot share {source.kv_heads} key-value heads evenly",
            where=where,
            help="make `heads` a multiple of `kv_heads`",
        )
    if source.head_dim % 2:
        return error(
            "E0808",
            f"`head_dim` is {source.head_dim}, and rotary positions need it to be even",
            where=where,
            help="write an even number",
        )
    return None
