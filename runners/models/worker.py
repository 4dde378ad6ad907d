"""A process that does what a stranger's checkpoint asks for, with bounds on memory and processor time.

Its arguments are the mebibytes and the seconds that it may take. Each line in is one of these, and has a line as its answer:

- `{"template", "turns", "tokens"}`: what a chat template makes of a conversation: `{"text"}`, or `{"raised"}`.
  Each may take a tenth of a second more than those before it left over.
- `{"tokenizer"}`, the path of a model folder: `{"growth"}`, by how much its tokenizer's steps may lengthen a text, or
  `{"raised"}` where one of its files cannot be read, or it fails on texts of what its patterns look for.

`{"beyond"}` says by what words of a bound the answer is not given. A process that takes too long is ended by its timer.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reodsl.diagnostics import misread
from runners.sandbox import limit_memory, write_all
from runners.sandbox.confine import lines

EXTRA_SECONDS = 0.1
MAX_CHARS = 1 << 20
"""Characters of a text that a template gives."""
MAX_REASON_CHARS = 300
MAX_GROWTH = 1 << 12
"""The factor by which a text may grow; real tokenizers stay far below it."""
MAX_ID = 1 << 24
"""The largest id of a token: tables have as many rows."""
MAX_LISTED = 1 << 14
"""Tokens that are listed beside a tokenizer; each is compared with all."""
MAX_FILE_BYTES = 1 << 24
"""Bytes of a file beside it."""
_SIDE_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_REPEATS = 256
_PROBES = (
    "What is 1 + 1?",
    "  Wait,\n\n\tlet me see: 3.14 × 2² = \\boxed{x_1}…",
    "naïve Ωmega 漢字 ١٢ 🙂 ﷺ",
    "a" * _REPEATS,
    " " * _REPEATS,
    "0" * _REPEATS,
)


def render(template: str, turns: list[dict[str, Any]], tokens: dict[str, str]) -> str:
    """Return what a chat template makes of a conversation, up to where the model's turn begins, by transformers itself."""
    # It takes a second to load, which a process that tries a tokenizer is spared.
    from transformers.utils.chat_template_utils import render_jinja_template

    (text,), _ = render_jinja_template([turns], chat_template=template, add_generation_prompt=True, **tokens)
    return str(text)


def try_tokenizer(folder: Path) -> float:
    """Read a tokenizer, and encode texts that may exceed its bounds.

    Returns:
        The factor by which its steps may lengthen a text.
    """
    from tokenizers import Tokenizer

    for name in _SIDE_FILES:
        if (folder / name).is_file():
            _require_few(folder / name)
    settings = _settings(folder / "tokenizer.json")
    _require_low(settings)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    growth = max(measure_growth(settings.get(key)) for key in ("normalizer", "pre_tokenizer", "decoder"))
    for text in (*_PROBES, *_pattern_texts(settings)) if growth < MAX_GROWTH else ():
        try:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
        except Exception:
            # A vocabulary need not have every word.
            continue
        tokenizer.decode(ids)
    return growth


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes().decode("utf-8"))
        if not isinstance(settings, dict):
            raise ValueError("it is no JSON object")
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{path.name}: {misread(fault)}") from None
    return settings


def _require_few(path: Path) -> None:
    """Refuse a file beside a tokenizer.json that is large, or lists many tokens."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_FILE_BYTES:,} bytes")
    settings = _settings(path)
    for name in ("extra_special_tokens", "additional_special_tokens"):
        if isinstance(settings.get(name), (dict, list)) and len(settings[name]) > MAX_LISTED:
            raise ValueError(f"{path.name} lists more than {MAX_LISTED:,} `{name}`")


def _require_low(settings: dict[str, Any]) -> None:
    """Refuse a tokenizer.json with token ids beyond the bound."""
    model, more = settings.get("model"), settings.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = [*vocabulary.values()] if isinstance(vocabulary, dict) else []
    ids += [token.get("id") for token in more if isinstance(token, dict)] if isinstance(more, list) else []
    excess = next((token for token in ids if isinstance(token, int) and token > MAX_ID), None)
    if excess is not None:
        raise ValueError(f"a token is number {excess:,}, and {MAX_ID:,} is the largest")


def measure_growth(component: Any) -> float:
    """Return the factor by which the steps of a tokenizer's component can lengthen a text, at most.

    A step lengthens what an earlier step wrote only if it looks for a character of that.

    Returns:
        A factor of at least 1.
    """
    grown: list[tuple[float, str | None]] = []
    for step in _steps(component):
        sought: str | None = None
        output: str | None = None
        if step.get("type") == "Precompiled":
            factor = _longest_replacement(str(step.get("precompiled_charsmap") or ""))
        elif step.get("type") == "Replace":
            sought, content = _pattern_text(step), str(step.get("content", ""))
            # A pattern may find nothing at each place, and what was there stays.
            factor = len(content) / len(sought) if sought else 1.0 + len(content)
            output = content if sought else None
        else:
            continue
        before = (size for size, text in grown if not sought or text is None or set(sought) & set(text))
        grown.append((max(1.0, factor) * max(before, default=1.0), output))
    return max((size for size, _ in grown), default=1.0)


def _longest_replacement(charsmap: str) -> float:
    """Return the length of the longest text in a map of SentencePiece's: the size of a trie, the trie, and the texts."""
    data = base64.b64decode(charsmap)
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return float(max(map(len, texts.split(b"\0"))))


def _steps(component: Any) -> Iterator[dict[str, Any]]:
    """Yield all records inside a part, in their order."""
    waiting = [component]
    while waiting:
        record = waiting.pop()
        if isinstance(record, dict):
            yield record
        inside = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
        waiting += reversed([value for value in inside if isinstance(value, (dict, list))])


def _pattern_text(step: dict[str, Any]) -> str | None:
    """Return the text that a step looks for; None if a pattern decides it."""
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else None
    return text if isinstance(text, str) else None


def _pattern_texts(settings: dict[str, Any]) -> Iterator[str]:
    """Yield texts of the characters in each pattern: each character repeated, and all of them in turn."""
    for key in ("normalizer", "pre_tokenizer", "decoder"):
        for step in _steps(settings.get(key)):
            pattern = step.get("pattern")
            for text in map(str, pattern.values() if isinstance(pattern, dict) else ()):
                letters = dict.fromkeys(text[:_REPEATS])
                yield from (letter * _REPEATS for letter in letters)
                yield (text[:_REPEATS] + "".join(letters)) * 4


def answer(request: dict[str, Any], memory_mib: int) -> dict[str, Any]:
    """Do what a line asks for."""
    try:
        if "template" in request:
            text = render(request["template"], request["turns"], request["tokens"])
            return (
                {"text": text}
                if len(text) <= MAX_CHARS
                else {"beyond": f"gives more than {MAX_CHARS:,} characters"}
            )
        return {"growth": try_tokenizer(Path(request["tokenizer"]))}
    except MemoryError:
        return {"beyond": f"needs more than {memory_mib:,} MiB of memory"}
    except BaseException as fault:
        # The tokenizers library panics with what is no Exception.
        return {"raised": (str(fault).strip() or type(fault).__name__)[:MAX_REASON_CHARS]}


def main(memory_mib: int, seconds: float) -> None:
    """Answer lines until the parent closes the pipe.

    Args:
        memory_mib: The bound on memory in mebibytes.
        seconds: The bound on processor time in seconds.
    """
    limit_memory(memory_mib)
    for line in lines(os.getppid()):
        seconds += EXTRA_SECONDS
        signal.setitimer(signal.ITIMER_PROF, max(seconds - time.process_time(), 1e-3))
        reply = json.dumps(answer(json.loads(line), memory_mib))
        write_all(1, reply.encode("ascii") + b"\n")
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
