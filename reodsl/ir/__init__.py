"""The intermediate representation: what a spec means, as frozen values with one canonical JSON form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reodsl.ir.base import IR, Origin, canonical, canonical_json, digest
    from reodsl.ir.study import Change, Spec

__all__ = ["IR", "Change", "Origin", "Spec", "canonical", "canonical_json", "digest"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a public name of the package, importing pydantic's models only at the first use of such a name."""
        # Checking a spec needs only `reodsl.ir.expression`, and should not wait for pydantic.
        if name not in __all__:
            raise AttributeError(f"module 'reodsl.ir' has no attribute {name!r}")
        from reodsl.ir import base, study

        return getattr(study if name in ("Change", "Spec") else base, name)
