"""The store of results: content-addressed, written whole, and never computed twice."""

from reodsl.store.manifest import Manifest
from reodsl.store.store import Store

__all__ = ["Manifest", "Store"]
