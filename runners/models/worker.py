"""A process with limits on memory and processor time, for chat templates and tokenizers of downloaded checkpoints.

Its arguments are the limits in mebibytes and seconds. It reads requests and writes replies as lines of JSON:

- `{"template", "turns", "tokens"}` renders a conversation by a chat template. The reply is `{"text"}`, or `{"raised"}`
  with the template's error. Each request adds a tenth of a second to the limit of time.
- `{"tokenizer"}`, the path of a model folder, tries its tokenizer. The reply is `{"growth"}`, the factor by which its
  steps may lengthen a text, or `{"raised"}` if a file cannot be read or the tokenizer fails on a text.

The reply `{"beyond"}` says in words which limit was exceeded. A timer ends a process that takes too long.
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
"""The largest number of characters of a rendered template."""
MAX_REASON_CHARS = 300
MAX_GROWTH = 1 << 12
"""The largest factor by which a tokenizer's steps may lengthen a text; real tokenizers stay far below it."""
MAX_ID = 1 << 24
"""The largest token id, since tables have a row for each id."""
MAX_LISTED = 1 << 14
"""The largest number of special tokens in a side file; transformers compares each with all tokens."""
MAX_FILE_BYTES = 1 << 24
"""The largest size in bytes of a side file."""
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
    """Render a conversation by a chat template of transformers, up to the start of the model's turn.

    Args:
        template: The template, in Jinja.
        turns: The messages, each with `role` and `content`.
        tokens: The special tokens that the template may write, by name.
    """
    # Imported here, because the import takes a second that trying a tokenizer does not need.
    from transformers.utils.chat_template_utils import render_jinja_template

    (text,), _ = render_jinja_template([turns], chat_template=template, add_generation_prompt=True, **tokens)
    return str(text)


def try_tokenizer(folder: Path) -> float:
    """Read a tokenizer, check its limits, and encode texts on which its patterns may fail or take long.

    Args:
        folder: The model folder.

    Returns:
        The largest factor by which the tokenizer's steps may lengthen a text.

    Raises:
        ValueError: A file is unreadable or exceeds a limit.
    """
    from tokenizers import Tokenizer

    for name in _SIDE_FILES:
        if (folder / name).is_file():
            _require_small_file(folder / name)
    settings = _read_settings(folder / "tokenizer.json")
    _require_small_ids(settings)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    growth = max(measure_growth(settings.get(key)) for key in ("normalizer", "pre_tokenizer", "decoder"))
    for text in (*_PROBES, *_pattern_texts(settings)) if growth < MAX_GROWTH else ():
        try:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
        except Exception:
            # Vocabularies without unknown words reject some texts.
            continue
        tokenizer.decode(ids)
    return growth


def _read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raise ValueError with the file's name if the file is not a JSON object."""
    try:
        settings = json.loads(path.read_bytes().decode("utf-8"))
        if not isinstance(settings, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{path.name}: {misread(fault)}") from None
    return settings


def _require_small_file(path: Path) -> None:
    """Raise ValueError if a side file of a tokenizer is too large, or lists too many special tokens.

    Side files are the files next to tokenizer.json that transformers reads too; see `_SIDE_FILES`.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_FILE_BYTES:,} bytes")
    settings = _read_settings(path)
    for name in ("extra_special_tokens", "additional_special_tokens"):
        if isinstance(settings.get(name), (dict, list)) and len(settings[name]) > MAX_LISTED:
            raise ValueError(f"{path.name} lists more than {MAX_LISTED:,} `{name}`")


def _require_small_ids(settings: dict[str, Any]) -> None:
    """Raise ValueError if a token id in the settings of a tokenizer.json exceeds `MAX_ID`."""
    model, added = settings.get("model"), settings.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = [*vocabulary.values()] if isinstance(vocabulary, dict) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    too_large = next((token for token in ids if isinstance(token, int) and token > MAX_ID), None)
    if too_large is not None:
        raise ValueError(f"a token has the id {too_large:,}, and the largest allowed id is {MAX_ID:,}")


def measure_growth(component: Any) -> float:
    """Return an upper bound, at least 1, of the factor by which a tokenizer's component lengthens a text.

    Only replacing steps (`Replace` and `Precompiled`) lengthen a text. A step's factor is the length of the replacement
    divided by the length of the replaced text. The factors of two steps multiply if the later step may match text that
    the earlier step wrote: if the searched text shares a character with the written text, or either text is unknown.

    Args:
        component: The component's settings in a tokenizer.json, e.g. the normalizer.
    """
    growths: list[tuple[float, str | None]] = []
    for step in _steps(component):
        sought: str | None = None
        written: str | None = None
        if step.get("type") == "Precompiled":
            factor = _longest_replacement(str(step.get("precompiled_charsmap") or ""))
        elif step.get("type") == "Replace":
            sought, content = _pattern_text(step), str(step.get("content", ""))
            # A pattern without characters matches at each position, and keeps the character there.
            factor = len(content) / len(sought) if sought else 1.0 + len(content)
            written = content if sought else None
        else:
            continue
        earlier = (size for size, text in growths if not sought or text is None or set(sought) & set(text))
        growths.append((max(1.0, factor) * max(earlier, default=1.0), written))
    return max((size for size, _ in growths), default=1.0)


def _longest_replacement(charsmap: str) -> float:
    """Return the length in bytes of the longest text in a SentencePiece map of characters.

    Args:
        charsmap: The map in base64: the size of a trie in 4 bytes, the trie, and texts separated by null bytes.
    """
    data = base64.b64decode(charsmap)
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return float(max(map(len, texts.split(b"\0"))))


def _steps(component: Any) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects inside a component, itself included, in their order."""
    pending = [component]
    while pending:
        record = pending.pop()
        if isinstance(record, dict):
            yield record
        children = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
        pending += reversed([value for value in children if isinstance(value, (dict, list))])


def _pattern_text(step: dict[str, Any]) -> str | None:
    """Return the literal text that a `Replace` step searches for; None for a regular expression."""
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else None
    return text if isinstance(text, str) else None


def _pattern_texts(settings: dict[str, Any]) -> Iterator[str]:
    """Yield texts on which the patterns of a tokenizer may be slow, made of the characters in each pattern.

    For each pattern: each of its characters repeated, and then the pattern followed by its characters, four times.
    """
    for key in ("normalizer", "pre_tokenizer", "decoder"):
        for step in _steps(settings.get(key)):
            pattern = step.get("pattern")
            for text in map(str, pattern.values() if isinstance(pattern, dict) else ()):
                letters = dict.fromkeys(text[:_REPEATS])
                yield from (letter * _REPEATS for letter in letters)
                yield (text[:_REPEATS] + "".join(letters)) * 4


def answer(request: dict[str, Any], memory_mib: int) -> dict[str, Any]:
    """Return the reply to a request, as the module describes; errors become the reply `raised` or `beyond`.

    Args:
        request: The request.
        memory_mib: The limit on memory in mebibytes, for the message.
    """
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
        # Panics of the tokenizers library are no Exceptions.
        return {"raised": (str(fault).strip() or type(fault).__name__)[:MAX_REASON_CHARS]}


def main(memory_mib: int, seconds: float) -> None:
    """Reply to requests on standard input until the parent process closes the pipe.

    Args:
        memory_mib: The limit on memory in mebibytes.
        seconds: The limit on processor time in seconds, to which each request adds `EXTRA_SECONDS`.
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
