"""Clusters: how many GPUs of which kind work runs on, and what one of them can do. No result depends on it."""

from __future__ import annotations

from typing import Literal

from reodsl.ir.base import IR


class Hardware(IR):
    """One GPU as pricing knows it: its data sheet, and the share of it that work reaches.

    `flops`: dense bf16, a second. `bandwidth`: of its memory, bytes a second. `interconnect`: to other GPUs of its node,
    both ways together, bytes a second. `mfu_train` and `mfu_prefill` are shares of `flops`, `mbu_decode` of `bandwidth`.
    `prefix_cache`: engines keep the keys and values of a response, so that forced answers read no prefix again.
    `verifications`: answers checked a second.
    """

    flops: float
    bandwidth: float
    interconnect: float
    mfu_train: float = 0.4
    mfu_prefill: float = 0.5
    mbu_decode: float = 0.6
    prefix_cache: bool = True
    verifications: float = 1400.0


class Cluster(IR):
    """Where training and rollouts run. `placement`: on the same devices in turn, or on devices of their own.

    With `apart`, `rollout_share` of the GPUs generate and the others train. `hardware` is for pricing alone.
    """

    presentation = frozenset({"name"})
    name: str
    nodes: int
    gpus_per_node: int
    gpu: str
    memory_gib: float
    placement: Literal["colocated", "apart"] = "colocated"
    tensor_parallel: int = 1
    rollout_share: float = 0.75
    hardware: Hardware | None = None
