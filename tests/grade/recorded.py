"""Verdicts of math-verify on tables of rows, kept in tests/goldens/grade: to ask for all of them takes a minute."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from runners.grade import Claim, PooledVerifier, Verdict, worker
from runners.grade.answer import CachedVerifier
from runners.sandbox import confine, expressions

KEPT = Path(__file__).resolve().parents[1] / "goldens" / "grade"
EACH = 10
"""One verdict in so many is asked for anew in a slow test; in others none is."""


def fingerprint() -> str:
    """What verdicts depend on: the packages, and the code of the process that asks them."""
    packages = [f"{name} {version(name)}" for name in ("math-verify", "latex2sympy2-extended", "sympy")]
    files = [Path(str(module.__file__)).read_text("utf-8") for module in (worker, expressions, confine)]
    return hashlib.sha256("\0".join([*packages, *files]).encode()).hexdigest()


def key_of(claim: Claim) -> str:
    return hashlib.sha256("\0".join((claim.gold, claim.text, claim.meta)).encode()).hexdigest()[:16]


@contextmanager
def recorded(verifier: PooledVerifier, name: str, update: bool, *, asks: bool = True) -> Iterator[None]:
    """Let a verifier take what is kept under a name; with `update`, and where the code is another, it asks for all.
    With `asks` it asks for some anew, and their verdicts have to be the same.
    """
    path = KEPT / f"{name}.json"
    held = json.loads(path.read_text("utf-8")) if path.exists() and not update else {"of": ""}
    known = held["verdicts"] if held["of"] == fingerprint() else {}
    kept: dict[str, bool] = {}

    def check(claims: Sequence[Claim]) -> list[Verdict]:
        keys = {claim: key_of(claim) for claim in claims}
        due = {claim for claim in claims if asks and int(keys[claim], 16) % EACH == 0}
        anew = [claim for claim in claims if keys[claim] not in known or claim in due]
        given = dict(zip(anew, verifier.checks.check(anew), strict=True))
        assert [
            claim for claim in anew if known.get(keys[claim], given[claim].correct) != given[claim].correct
        ] == []
        verdicts = [given.get(claim) or Verdict(known[keys[claim]], "checked") for claim in claims]
        kept.update({keys[claim]: verdict.correct for claim, verdict in zip(claims, verdicts, strict=True)})
        return verdicts

    before, verifier._checked = verifier._checked, CachedVerifier(check, verifier.close)
    yield
    verifier._checked = before
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"of": fingerprint(), "verdicts": dict(sorted(kept.items()))}, indent=0))
