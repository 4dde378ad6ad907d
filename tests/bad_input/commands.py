"""What the tests of bad input share: a small spec, a call of a command, and what a refusal has to look like."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from reodsl.store.store import Store
from tests.architecture import ARCHITECTURE
from tests.called import call

SPEC = '''"""Two steps of RL on a model of a few thousand parameters."""
from std.miniature import chain_words, chain_forcing, chain_easy
from std.recipes   import ppo
from std.rewards   import outcome

param length: steps = 2 steps in 1 steps..9 steps

data asked { source = generated(chain_easy, count: 4, seed: 1), verifier = exact }
data held { source = generated(chain_easy, count: 4, seed: 1, split: held_out), verifier = exact }
benchmark few { data = held }

suite quick {
  benchmarks = [few]
  max_tokens = 16 tokens
  samples    = 1
  grid       = [0 tokens, 8 tokens, 16 tokens]
  reg_to     = 16 tokens
  forcing    = chain_forcing
}

model mite {
  source = ARCHITECTURE
  context = 64 tokens
  think   { open = "<think>", close = "</think>" }
}

experiment tiny = ppo {
  base        = mite
  data        = asked
  reward      = outcome
  batch       { prompts = 2, rollouts = 2 }
  rollout     { max_tokens = 16 tokens }
  max_prompt  = 32 tokens
  minibatches = 1
  epochs      = 1
  steps       = length
  optim       { lr = 1e-3 }
  eval        = quick
}
'''.replace("ARCHITECTURE", ARCHITECTURE)
FROM_FOLDER = SPEC.replace(ARCHITECTURE, 'folder("weights")')
"""The same on a checkpoint."""


@dataclass(frozen=True)
class Told:
    """The exit code of a command and what it wrote."""

    code: int
    out: str
    err: str

    def findings(self) -> list[str]:
        """The codes of the diagnostics on stderr, in order."""
        return re.findall(r"^(?:error|warning)\[([EW]\d{4})\]", self.err, re.M)


@dataclass
class Place:
    """A folder with a spec in it, which is the present folder, and the commands that are called there."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def write(self, text: str | bytes, name: str = "tiny.reo") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def call(self, *arguments: str) -> Told:
        self.capsys.readouterr()
        code = call(*arguments)
        out, err = self.capsys.readouterr()
        return Told(code, out, err)

    def run(self, *more: str) -> Told:
        return self.call("run", "tiny.reo", "--local", "--quiet", *more)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


def refused(told: Told, code: str, place: str, *words: str) -> None:
    """One error with this code, its place, a remedy and these words; exit code 1; no traceback, and nothing else."""
    assert told.code == 1, told
    assert told.findings() == [code], told.err
    assert told.out == "", told.out
    assert re.search(rf"^ *--> .*{re.escape(place)}", told.err, re.M), told.err
    assert len(re.findall(r"^ +(?:\d+ \|)? *= help: .", told.err, re.M)) == 1, told.err
    assert "Traceback" not in told.err
    for word in words:
        assert word in told.err, (word, told.err)


def kinds_in(folder: Path) -> set[str]:
    """The kinds of the results in a store, each of them undamaged."""
    store = Store(folder)
    found = set()
    for key in store:
        assert store.damage(key) == ()
        material = store.material(key)
        assert material is not None
        found.add(str(material["kind"]))
    return found


def whole(folder: Path, kinds: set[str]) -> None:
    """The store holds undamaged results of exactly these kinds, and nothing half-written."""
    assert kinds_in(folder) == kinds
    for name in ("tmp", "live", "errors"):
        assert not any((folder / name).iterdir()), sorted((folder / name).iterdir())
    assert not [path for path in folder.rglob(".*") if path.is_file()]


_CAPABILITIES = (1 << 1) | (1 << 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, by which root passes over the permissions of files."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def permissions_count() -> Iterator[None]:
    """Inside, permissions of files hold for root too, in this thread."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(0x20080522, 0), (_Sets * 2)()
    if libc.capget(ctypes.byref(header), sets):
        pytest.skip("the kernel does not tell the capabilities of this process")
    before = sets[0].effective
    sets[0].effective = before & ~_CAPABILITIES
    if libc.capset(ctypes.byref(header), sets):
        pytest.skip("root cannot lay down its capabilities here")
    try:
        yield
    finally:
        sets[0].effective = before
        libc.capset(ctypes.byref(header), sets)
