"""Check servers that someone else started: what does not fit the run, and how to start them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from reodsl.diagnostics import Diagnostic, Problem, error
from runners.engine.sglang.interpreter import ADDRESS
from runners.engine.sglang.server import Address
from runners.engine.sglang.settings import KEY, LAUNCHER, MARGIN

_PATIENCE = 30.0
"""Seconds that a server has to say what it is: its scheduler answers between two steps."""
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
_SHARP, _FLAT = 0.05, 20.0
"""Temperatures at which a distribution's highest probability differs, unless nothing was done with them."""
_STRANGE = "it answers something else than an SGLang server does"


class Unusable(Exception):
    """Nothing answers there, or no SGLang server that knows the key."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run needs of a server: its longest sequence in tokens (at least), the processes of each server that weights
    are sent to, and the folder of its model, where that is there already.
    """

    context: int
    ranks: int = 1
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """What a server says: `settings` as it was started, `model` as it is now, and two answers of one token to a probe."""

    settings: Mapping[str, Any]
    model: Mapping[str, Any]
    probe: Sequence[Mapping[str, Any]]

    @property
    def version(self) -> str:
        """The version of SGLang; nothing where it does not say."""
        return str(self.settings.get("version", ""))


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a server does not run with: what it has and what is needed, and how it has to be started."""

    words: str
    flag: str


def given() -> list[Address]:
    """Where servers run that someone else started; they use devices of their own, and are not ours to pause."""
    named = os.environ.get(ADDRESS, "").split(",")
    key = os.environ.get(KEY, "")
    return [Address(url.strip().rstrip("/"), key) for url in named if url.strip()]


def refusals(needs: Needs) -> Iterator[Diagnostic]:
    """E0828 and E0830 for the given servers that a run could not use. Nothing is changed in them."""
    for address in given():
        try:
            fitting(address, needs)
        except Problem as caught:
            yield from caught.diagnostics


def fitting(address: Address, needs: Needs) -> Account:
    """What a server says that a run can use. Raises E0828, E0830."""
    try:
        account = account_of(address)
    except Unusable as fault:
        raise Problem(unusable(address, str(fault))) from fault
    misfit = unfit(address, account, needs)
    if misfit is not None:
        raise Problem(misfit)
    return account


def account_of(address: Address) -> Account:
    """Asks a server how it was started, which model it has, and for two tokens. Raises `Unusable`."""
    try:
        with httpx.Client(
            base_url=address.url, headers=address.headers, trust_env=False, timeout=_PATIENCE
        ) as client:
            model = _told(client.get("/model_info"))
            settings = _told(client.get("/server_info"))
            answers = client.post("/generate", json=_probe())
            # One that refuses it does not know all that it asks for.
            probe = answers.json() if answers.status_code == 200 else []
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
        raise Unusable(str(fault) or type(fault).__name__) from fault
    return Account(settings, model, probe if isinstance(probe, list) else [])


def unfit(address: Address, account: Account, needs: Needs) -> Diagnostic | None:
    """E0830, with all that does not fit, or E0828 for answers of another form; None where everything fits."""
    try:
        misfits = list(lacks(account, needs))
    except (LookupError, TypeError, AttributeError):
        return unusable(address, _STRANGE)
    if not misfits:
        return None
    flags = ", ".join(dict.fromkeys(lack.flag for lack in misfits))
    return error(
        "E0830",
        "the SGLang server at this address was not started as this run needs it",
        where=address.url,
        notes=[lack.words for lack in misfits],
        help=f"start it again with {flags} (docs/CLUSTERS.md has the whole line), or unset {ADDRESS}",
    )


def unusable(address: Address, words: str) -> Diagnostic:
    """E0828: nothing there can be asked."""
    return error(
        "E0828",
        f"no SGLang server can be used at this address: {words}",
        where=address.url,
        help=f"start it with the same model, give its key in {KEY}, or unset {ADDRESS} to have one started",
    )


def lacks(account: Account, needs: Needs) -> Iterator[Lack]:
    """What does not fit. What a server says nothing of is taken to fit."""
    yield from _models(account, needs.model)
    yield from _rooms(account.settings, needs.context + MARGIN)
    yield from _numbers(account.settings, needs.ranks)
    yield from _answers(account.probe)


def _models(account: Account, folder: Path | None) -> Iterator[Lack]:
    if folder is None:
        return
    wanted = _config(folder)
    flag = f"--model-path {folder}"
    has, needed = account.model.get("architectures"), wanted.get("architectures")
    if has and needed and has != needed:
        yield Lack(f"it serves {_names(has)}; the run's model is {_names(needed)}", flag)
        return
    # Weights of other sizes end a server. Where it was started from a folder that is not seen here, it tells none.
    there = _config(Path(str(account.settings.get("model_path", ""))))
    for name in _SIZES:
        if name in there and name in wanted and there[name] != wanted[name]:
            yield Lack(f"its model has `{name}` {there[name]}; the run's has {wanted[name]}", flag)


def _rooms(settings: Mapping[str, Any], tokens: int) -> Iterator[Lack]:
    context, caches = settings.get("context_length"), settings.get("max_total_num_tokens")
    needed = f"{tokens:,} are needed (prompt, response, forcing text, answer, and {MARGIN} of SGLang's)"
    if isinstance(context, int) and context < tokens:
        yield Lack(f"its context is {context:,} tokens; {needed}", f"--context-length {tokens}")
    if isinstance(caches, int) and caches < tokens:
        yield Lack(
            f"its caches hold {caches:,} tokens; {needed}",
            f"--max-total-tokens {tokens}, or a larger --mem-fraction-static",
        )


def _numbers(settings: Mapping[str, Any], ranks: int) -> Iterator[Lack]:
    if settings.get("enable_deterministic_inference") is False:
        yield Lack(
            "its tokens do not depend on seeds alone; the run's responses are drawn by seed",
            "--enable-deterministic-inference",
        )
    if settings.get("disable_radix_cache") is True:
        yield Lack(
            "its prefix cache is off; every forced answer would read its response anew",
            "no --disable-radix-cache",
        )
    speculative = settings.get("speculative_algorithm")
    if speculative is not None:
        yield Lack(
            f"it decodes speculatively ({speculative}); tokens would not be drawn by seed",
            "no --speculative-algorithm",
        )
    for name, wanted, words in (
        ("tp_size", ranks, "the spec's `tensor_parallel` is"),
        ("pp_size", 1, "weights are sent to"),
        ("dp_size", 1, "weights are sent to"),
    ):
        has = settings.get(name, wanted)
        if has != wanted:
            flag = f"--{name.replace('_', '-')}"
            yield Lack(f"its `{flag}` is {has}; {words} {wanted}", f"{flag} {wanted}")


def _answers(probe: Sequence[Mapping[str, Any]]) -> Iterator[Lack]:
    """What shows in what it answers alone: the environment that it was started in, and by what."""
    facts = [answer.get("meta_info", {}) for answer in probe]
    highest = [meta["output_top_logprobs"][0][0][0] for meta in facts if meta.get("output_top_logprobs")]
    if len(highest) == 2 and abs(highest[0] - highest[1]) > 1e-3:
        yield Lack(
            "its log-probabilities are those of the tempered distribution; the model's own are needed",
            "SGLANG_RETURN_ORIGINAL_LOGPROB=1 in its environment",
        )
    masks = [
        meta["output_token_sampling_mask"][0] for meta in facts if meta.get("output_token_sampling_mask")
    ]
    if len(masks) < 2 or any(len(mask) > 1 for mask in masks):
        yield Lack(
            "it was not started by this project's launcher, which lets draws depend on seeds alone and answers tell the "
            "log-probability of each",
            f"`python -P {LAUNCHER}` and --sampling-mask-max-tokens {1 << 30}",
        )


def _probe() -> dict[str, Any]:
    """One token twice, at a low temperature and a high one, from a distribution that is cut."""
    drawing = {"max_new_tokens": 1, "top_p": 0.99, "sampling_seed": 1, "ignore_eos": True}
    return {
        # Several, since one alone may be what sequences are filled up with, and know nothing.
        "input_ids": [[1, 2, 3], [1, 2, 3]],
        "sampling_params": [drawing | {"temperature": warmth} for warmth in (_SHARP, _FLAT)],
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": 1,
        "return_sampling_mask": True,
    }


def _told(reply: httpx.Response) -> dict[str, Any]:
    if reply.status_code != 200:
        raise Unusable(f"it answers {reply.status_code}: {reply.text[:200]}")
    answer = reply.json()
    if not isinstance(answer, dict):
        raise Unusable(_STRANGE)
    return answer


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _names(architectures: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in architectures)
