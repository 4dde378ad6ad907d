"""The store of results: content-addressed, written whole, and never computed twice."""

from reodsl.store.store import Manifest, Store

__all__ = ["Manifest", "Store"]
