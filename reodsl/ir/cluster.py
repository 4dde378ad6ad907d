"""Clusters: how many GPUs of which kind work runs on, and what one of them can do. No result depends on it."""

from __future__ import annotations

from typing import Literal

from reodsl.ir.base import IR
from reodsl.ir.setting import COUNT, POSITIVE, UTILISED, WORDS, Block, Flag, Num, Text, kind, setting


@kind("hardware", form="block")
class Hardware(IR):
    """A GPU's data sheet, and the shares of its speed that work reaches.

    With `prefix_cache` engines keep the keys and values of a response, so that forced answers read no prefix again.
    """

    flops: float = setting(POSITIVE, "dense bf16 FLOP a second", "flops = 989.4e12")
    bandwidth: float = setting(POSITIVE, "memory bandwidth, bytes a second", "bandwidth = 3.35e12")
    interconnect: float = setting(
        POSITIVE,
        "bandwidth to the other GPUs of the node, both ways together, bytes a second",
        "interconnect = 400e9",
    )
    network: float | None = setting(
        POSITIVE,
        "bandwidth from a node to the other nodes over all links, bytes a second; left out, the "
        "network costs no time",
        "network = 400e9",
        default=None,
        later=True,
    )
    mfu_train: float = setting(UTILISED, "share of `flops` that training reaches", default=0.3)
    mfu_attention: float | None = setting(
        UTILISED,
        "share of `flops` that attention reaches in training; left out: as `mfu_train`",
        "mfu_attention = 23%",
        default=None,
        later=True,
    )
    mfu_prefill: float = setting(UTILISED, "share of `flops` that reading prompts reaches", default=0.5)
    mbu_decode: float = setting(UTILISED, "share of `bandwidth` that generation reaches", default=0.6)
    prefix_cache: bool = setting(Flag(), "engines cache the prefixes of responses", default=True)
    verifications: float = setting(POSITIVE, "answers checked a second", default=1400.0)


@kind("cluster", parents=("cluster",))
class Cluster(IR):
    """The machines that train and make rollouts.

    With `apart`, `rollout_share` of the GPUs generate and the others train. `hardware` is for pricing alone.
    """

    presentation = frozenset({"name"})
    name: str
    nodes: int = setting(COUNT, "machines", "nodes = 16")
    gpus_per_node: int = setting(COUNT, "GPUs in each", "gpus_per_node = 8")
    gpu: str = setting(Text(), "its name", 'gpu = "H800"')
    memory_gib: float = setting(
        Num("GiB", low=0, above=True), "of one GPU", "memory = 80 GiB", spelled="memory"
    )
    placement: Literal["colocated", "apart"] = setting(
        WORDS,
        "whether engine and trainer share GPUs (`colocated`) or have GPUs of their own (`apart`)",
        default="colocated",
    )
    tensor_parallel: int = setting(COUNT, "GPUs that share one engine", default=1)
    rollout_share: float = setting(
        Num(low=0, high=1, above=True, below=True),
        "GPUs that generate, with `placement = apart`",
        default=0.75,
    )
    determinism: Literal["exact", "seeded"] = setting(
        WORDS,
        "how SGLang samples: `exact`, the same tokens for a seed whatever else is in the batch, or "
        "`seeded`, with faster kernels whose last bits depend on the batch",
        "determinism = seeded",
        default="exact",
        later=True,
    )
    sharding: Literal["auto", "cluster", "node"] = setting(
        WORDS,
        "over which GPUs weights, gradients and moments are sharded: all that train (`cluster`), or "
        "the GPUs of each node (`node`), so that nodes exchange gradients alone; `auto` takes the "
        "cheaper one that fits if `network` is known, otherwise `cluster`",
        "sharding = node",
        default="auto",
        later=True,
    )
    hardware: Hardware | None = setting(
        Block("hardware"), "what one GPU can do; pricing needs it", default=None
    )
