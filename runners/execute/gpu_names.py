"""Tell whether two names of GPUs, from a spec, Ray or a driver, can mean the same kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reodsl.diagnostics import Diagnostic, warning
from reodsl.ir.cluster import Cluster
from runners.execute.placement import Node

_DRIVER = Path("/proc/driver/nvidia/gpus")
_SIZE = re.compile(r"\d+G(I?B)?|HBM\d\w*")
"""Words that tell of memory, as 80GB and HBM3."""


def model_words(name: str) -> frozenset[str]:
    """Return the words of a name that have a digit and are no memory size: H100 of `NVIDIA H100 80GB HBM3`."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return frozenset(word for word in words if re.search(r"\d", word) and not _SIZE.fullmatch(word))


def gpu_here(driver: Path = _DRIVER) -> str:
    """Return the driver's name of this machine's first GPU; nothing if it reports none."""
    for file in sorted(driver.glob("*/information")):
        match = re.search(r"^Model:\s*(\S.*)$", file.read_text("utf-8", "replace"), re.MULTILINE)
        if match:
            return match[1].strip()
    return ""


def other_gpus(cluster: Cluster, nodes: Sequence[Node], where: str | None) -> Diagnostic | None:
    """Return W0971 if nodes have GPUs of another kind than the cluster says, by which it is priced."""
    wanted = model_words(cluster.gpu)
    others = [
        node for node in nodes if node.gpus and model_words(node.gpu) and not model_words(node.gpu) & wanted
    ]
    if not wanted or not others:
        return None
    kinds = ", ".join(dict.fromkeys(node.gpu for node in others))
    return warning(
        "W0971",
        f"the spec runs on {cluster.gpu}, and the GPUs there are {kinds}",
        where=where,
        notes=[f"{node.name} has {node.gpus:g} {node.gpu}" for node in others[:8]],
        help="prices and what fits in memory are those of the spec: say in `cluster` what there is (`gpu`, `memory`,"
        " `hardware`)",
    )
