"""Clusters: how many GPUs of which kind work runs on, and what one of them can do. No result depends on it."""

from __future__ import annotations

from reodsl.ir.base import IR
from reodsl.ir.settings import studies as studies_settings


class Hardware(studies_settings.Hardware, IR):
    """One GPU as pricing knows it: its data sheet, and the share of it that work reaches.

    `flops`: dense bf16, a second. `bandwidth`: of its memory, bytes a second. `interconnect`: to other GPUs of its node,
    both ways together, bytes a second. `mfu_train` and `mfu_prefill` are shares of `flops`, `mbu_decode` of `bandwidth`.
    `prefix_cache`: engines keep the keys and values of a response, so that forced answers read no prefix again.
    `verifications`: answers checked a second.
    """


class Cluster(studies_settings.Cluster, IR):
    """Where training and rollouts run. `placement`: on the same devices in turn, or on devices of their own.

    With `apart`, `rollout_share` of the GPUs generate and the others train. `hardware` is for pricing alone.
    """

    presentation = frozenset({"name"})
    name: str
    memory_gib: float
    hardware: Hardware | None = None
