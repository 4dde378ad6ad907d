"""Obey the help of findings as a person would: a wrong spec, what is written instead, and what it says then."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic
from reodsl.language import compile_file
from reodsl.language.chosen_reward import choose_reward, read_schedule

SMALL = """from std.miniature import chain_suite, chain_train, overthinker
from std.recipes import ppo
from std.rewards import outcome

recipe small = ppo {
  base       = checkpoint(overthinker)
  data       = chain_train
  batch      { prompts = 32, rollouts = 8 }
  rollout    { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  optim      { lr = 5e-4 }
  eval       = chain_suite
  reward     = outcome
  steps      = 40 steps
}

"""
PRELUDES = {"none": "", "small": SMALL}
TEXTS = Path(__file__).with_name("obeyed.txt")


@dataclass(frozen=True)
class Obeyed:
    """A wrong spec with the code of its finding, and the spec and the options after its help was obeyed.

    `how` is `code` where a code of the help is written or taken out, `example` where the help's code has other names or
    numbers than the spec, or is one of several ways, and `words` where the help has no code.
    """

    code: str
    how: str
    wrong: str
    right: str
    options: tuple[str, ...]
    better: tuple[str, ...]

    def check(self, path: Path, *, obeyed: bool) -> tuple[Diagnostic, ...]:
        """Return what the spec says, before or after."""
        options = [option.partition(" ")[::2] for option in (self.better if obeyed else self.options)]
        alone = dict(options)
        path = path.with_name(alone.get("--name", path.name))
        text = self.right if obeyed else self.wrong
        path.write_bytes(
            text.encode() if obeyed else bytes.fromhex(alone.get("--bytes", "")) or text.encode()
        )
        path = path.parent / alone.get("--path", path.name)
        if "--reward" in alone:
            return choose_reward(str(path), alone["--reward"] or None, {}, {}).diagnostics
        if "--budgets" in alone:
            return read_schedule(alone["--budgets"])[1]
        sets, amends = (
            dict(value.split("=", 1) for name, value in options if name == wanted)
            for wanted in ("--set", "--amend")
        )
        return compile_file(path, sets=sets, amends=amends, target=alone.get("--target")).diagnostics

    def expect_how(self, helps: Sequence[str]) -> str:
        """Return how these helps are obeyed here: a code of one is there more often afterwards, or less often."""
        before = "\n".join((self.wrong, *self.options))
        after = "\n".join((self.right, *self.better))
        codes = [_compile_code(code) for help_ in helps for code in re.findall("`([^`]+)`", help_)]
        if any(len(code.findall(before)) != len(code.findall(after)) for code in codes):
            return "code"
        return "example" if codes else "words"


def _compile_code(code: str) -> re.Pattern[str]:
    """Return a pattern for a code of a help, in which `…` and words in capitals stand for something of the reader's."""
    free = {"…": r"[\s\S]+?", "NAME": r"\w+", "TYPE": r"\w+", "VALUE": r"[^\n]+?"}
    parts = re.split(r"(…|\bNAME\b|\bVALUE\b|\bTYPE\b|\s+)", code)
    return re.compile(
        "".join(free.get(part) or (r"\s+" if part.isspace() else re.escape(part)) for part in parts)
    )


def read_obeyed() -> Iterator[Obeyed]:
    """Yield the cases of `obeyed.txt`."""
    for text in TEXTS.read_text().rstrip("\n").split("\n=====\n"):
        head, _, rest = text.partition("\n")
        code, prelude, how = (*head.split(), "code")[:3]
        before, _, after = rest.partition("\n-----\n")
        options = tuple(re.findall(r"^\$ (.*)$", before, re.M))
        wrong = right = PRELUDES[prelude] + re.sub(r"^\$ .*\n?", "", before + "\n", flags=re.M)
        better = tuple(re.findall(r"^\$ (.*)$", after, re.M)) or options
        after = re.sub(r"^\$ .*\n?", "", after, flags=re.M)
        for old, new in _split_edits(after):
            if not old:
                right = new
                continue
            assert right.count(old) == 1, (code, old, right.count(old))
            right = right.replace(old, new)
        yield Obeyed(code, how, wrong, right, options, better)


def _split_edits(text: str) -> Iterator[tuple[str, str]]:
    """Yield each `OLD => NEW`. A text with several has the old text of each on one line."""
    lines = text.rstrip("\n").split("\n")
    starts = [at for at, line in enumerate(lines) if " =>" in line]
    starts = [0] if len(starts) == 1 else starts
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        old, new = re.split(" => ?", "\n".join(lines[start:end]), maxsplit=1)
        yield old, new
