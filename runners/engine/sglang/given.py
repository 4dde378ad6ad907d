"""Use servers that someone else started: ask each how it was started, give it our weights, and never end it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.store.consent import ADDRESS, list_addresses
from runners.engine.sglang import weights
from runners.engine.sglang.control import Lost, Refused
from runners.engine.sglang.server import Address, Host, add_settings, cuts_itself
from runners.engine.sglang.settings import KEY, LAUNCHER, MARGIN, Settings

_PATIENCE = 30.0
"""Seconds that a server has to report its settings: its scheduler answers between two steps."""
_FIXED = (
    (
        "enable_deterministic_inference",
        True,
        "responses are drawn by seed",
        "--enable-deterministic-inference",
    ),
    ("disable_radix_cache", False, "forced answers would read responses anew", "no --disable-radix-cache"),
    ("kv_cache_dtype", "auto", "evaluations read them as the model computes them", "no --kv-cache-dtype"),
    ("speculative_algorithm", None, "tokens would not be drawn by seed", "no --speculative-algorithm"),
    (
        "sampling_mask_max_tokens",
        1 << 30,
        "each token's probability is needed",
        f"--sampling-mask-max-tokens {1 << 30}",
    ),
    ("pp_size", 1, "weights are sent to 1", "--pp-size 1"),
    ("dp_size", 1, "weights are sent to 1", "--dp-size 1"),
)
"""Settings that every run needs: name, value, reason, and how to start a server with it."""
_SIZES = (
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)


@dataclass(frozen=True, slots=True)
class Needs:
    """A run's needs of a server.

    `context` is the longest sequence in tokens (at least), `ranks` the processes of each server that weights are sent
    to (None: any number), and `model` the folder of its model, once that exists.
    """

    context: int
    ranks: int | None = 1
    model: Path | None = None


def list_given() -> list[Address]:
    """Return the addresses of servers that someone else started, on devices that are not ours to take turns on."""
    return [Address(url, os.environ.get(KEY, "")) for url in list_addresses()]


def refusals(needs: Needs) -> Iterator[Diagnostic]:
    """Report each given server that a run could not use: E0828, E0830. Nothing is changed in them."""
    for address in list_given():
        try:
            settings_of(address, needs)
        except Problem as caught:
            yield from caught.diagnostics


def settings_of(address: Address, needs: Needs) -> Mapping[str, Any]:
    """Return the settings that a server was started with, which fit a run. Raises E0828, E0830."""
    try:
        reply = httpx.get(
            f"{address.url}/server_info", headers=address.headers, trust_env=False, timeout=_PATIENCE
        )
        settings = reply.json() if reply.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
        raise _unusable(address, str(fault) or type(fault).__name__) from fault
    if not isinstance(settings, dict):
        raise _unusable(address, f"it answers {reply.status_code}: {reply.text[:200]}")
    lacks = list(_lacks(settings, needs))
    if not cuts_itself(address):
        lacks.append(("it was not started by this project's launcher", f"`python -P {LAUNCHER}`"))
    if lacks:
        flags = ", ".join(flag for _, flag in lacks)
        raise Problem(
            error(
                "E0830",
                "the SGLang server at this address was not started as this run needs it",
                where=address.url,
                notes=[words for words, _ in lacks],
                help=f"start it again with {flags} (docs/CLUSTERS.md has the whole line), or unset {ADDRESS}",
            )
        )
    return settings


class GivenServer(Host):
    """A server that someone else started: it gets our weights, and is never ended from here."""

    def __init__(self, address: Address, settings: Settings) -> None:
        self.address, self.settings = address, settings

    def start(self) -> Address:
        """Ask it for its settings, and hand it the model. Raises E0828, E0830."""
        ours = self.settings
        settings = settings_of(self.address, Needs(ours.context, ours.tensor_parallel, ours.model))
        try:
            weights.from_disk(ours.model, [self.address], 0)
        except (Lost, Refused) as fault:
            raise _unusable(self.address, str(fault)) from fault
        return replace(add_settings(self.address, settings), cuts=True)

    @property
    def alive(self) -> bool:
        """Return whether it answers."""
        try:
            return httpx.get(f"{self.address.url}/health", trust_env=False, timeout=10.0).status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def near(self) -> bool:
        """Return whether its address is this machine's."""
        return httpx.URL(self.address.url).host in ("127.0.0.1", "localhost", "::1")


def _lacks(settings: Mapping[str, Any], needs: Needs) -> Iterator[tuple[str, str]]:
    """Yield what does not fit and how to start a server that does. What a server does not report is taken to fit."""
    tokens = needs.context + MARGIN
    for name, flag in (
        ("context_length", "--context-length"),
        ("max_total_num_tokens", "--max-total-tokens"),
    ):
        has = settings.get(name)
        if isinstance(has, int) and has < tokens:
            needed = (
                f"{tokens:,} are needed (prompt, response, forcing text, answer, and {MARGIN} of SGLang's)"
            )
            yield f"its `{name}` is {has:,}; {needed}", f"{flag} {tokens}"
    ranks = needs.ranks
    spread = (
        [] if ranks is None else [("tp_size", ranks, f"`tensor_parallel` is {ranks}", f"--tp-size {ranks}")]
    )
    for name, wanted, reason, flag in (*_FIXED, *spread):
        has = settings.get(name, wanted)
        if has != wanted:
            yield f"its `{name}` is {has!s:.80}; {reason}", flag
    if needs.model is not None:
        # Weights of other sizes end a server. Its folder may be one that is not seen here, and nothing is known then.
        ours, theirs = _config(needs.model), _config(Path(str(settings.get("model_path", ""))))
        for name in _SIZES:
            if name in ours and theirs.get(name, ours[name]) != ours[name]:
                words = f"its model has `{name}` {theirs[name]!s:.80}; the run's has {ours[name]}"
                yield words, f"--model-path {needs.model}"
                return


def _unusable(address: Address, words: str) -> Problem:
    return problem(
        "E0828",
        f"no SGLang server can be used at this address: {words}",
        where=address.url,
        help=f"start it with the same model, give its key in {KEY}, or unset {ADDRESS} to have one started",
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
