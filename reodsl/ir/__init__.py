"""The intermediate representation: what a spec means, as frozen values with one canonical JSON form."""

from reodsl.ir.base import IR, canonical, canonical_json, digest
from reodsl.ir.spec import Change, Origin, Spec

__all__ = ["IR", "Change", "Origin", "Spec", "canonical", "canonical_json", "digest"]
