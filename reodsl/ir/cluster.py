"""Clusters: how many GPUs of which kind work runs on, and what one of them can do. No result depends on it."""

from __future__ import annotations

from pydantic import model_serializer

from reodsl.ir.base import IR, without_unsaid
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
    `determinism`: whether SGLang's kernels give one seed the same tokens in every batch (`exact`), or are faster (`seeded`).
    """

    presentation = frozenset({"name"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    name: str
    memory_gib: float
    hardware: Hardware | None = None
