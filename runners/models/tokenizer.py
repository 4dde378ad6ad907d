"""Word-level tokenizers from a word list, split at white space.

A text whose words are separated by single spaces comes back from `decode(encode(text))` as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.ir.model import WordTokenizer
from runners.models.bounds import RELOAD_REMEDY
from runners.models.template import LimitedProcess, LimitExceeded
from runners.models.worker import MAX_GROWTH

TOKENIZER_SECONDS = 60
"""Processor seconds of reading and trying a tokenizer, and of using it on a text; the largest take a few seconds."""
MEMORY_MIB = 1 << 12
"""Mebibytes of memory for it; the largest take a gibibyte."""
LIMIT_CHARS = 100_000
"""Characters of several texts together for which `TOKENIZER_SECONDS` are given, so short texts get no more than a single
text.
"""
BATCH_TEXTS = 256
"""Texts that are encoded in a call."""
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
THINK = ("<think>", "</think>")


@contextmanager
def report_unreadable(folder: Path | None = None) -> Iterator[None]:
    """Refuse a tokenizer of `folder` that fails inside: E0803.

    The tokenizers library raises bare Exception, and where it panics what is no Exception at all.
    """
    try:
        yield
    except BaseException as fault:
        if isinstance(fault, Problem) or not (
            isinstance(fault, Exception) or type(fault).__module__ == "pyo3_runtime"
        ):
            raise
        message = f"the tokenizer cannot be read: {first_line(fault)}"
        raise problem("E0803", message, where=str(folder) if folder else None, help=RELOAD_REMEDY) from fault


def require_bounded_steps(folder: Path) -> None:
    """Refuse a folder's tokenizer that cannot be read within bounds, or lengthens texts beyond them: E0803.

    It is tried in a process of its own, on texts of what its patterns look for.
    """
    with closing(LimitedProcess(TOKENIZER_SECONDS, MEMORY_MIB)) as process:
        try:
            reply = process.ask({"tokenizer": str(folder.absolute())})
        except LimitExceeded as why:
            reply = {"raised": f"on a text of a line it {why}"}
    if reply.get("growth", 0) >= MAX_GROWTH:
        reply = {
            "raised": f"its steps make a text up to {reply['growth']:.3g} times as long, and {MAX_GROWTH:,} is the most"
        }
    if "raised" in reply:
        message = f"the tokenizer cannot be used: {' '.join(reply['raised'].split())[:200]}"
        raise problem("E0803", message, where=str(folder), help=RELOAD_REMEDY)


class TimedTokenizer:
    """The tokenizer inside a model's, whose patterns its maker chose: a text that takes too long is E0803.

    Foreign code cannot be stopped. A thread that does not end is left behind, and ends with the process.
    """

    def __init__(self, inner: Any, folder: Path) -> None:
        vars(self).update(_inner=inner, _folder=folder)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)

    def encode_batch(self, texts: Sequence[Any], **settings: Any) -> Any:
        """Return the tokenizer's encodings of texts."""
        return self._watch(self._inner.encode_batch, texts, settings)

    def decode(self, ids: Sequence[int], **settings: Any) -> str:
        """Return the text of ids. For a single text the library would let no other thread run meanwhile."""
        return str(self._watch(self._inner.decode_batch, [ids], settings)[0])

    def _watch(self, call: Callable[..., Any], texts: Sequence[Any], settings: dict[str, Any]) -> Any:
        """Call the tokenizer in a thread, and wait for a time that grows with the texts. Raises E0803."""
        result: Future[Any] = Future()

        def work() -> None:
            try:
                result.set_result(call(texts, **settings))
            except BaseException as fault:
                result.set_exception(fault)

        threading.Thread(target=work, daemon=True).start()
        with report_unreadable(self._folder):
            try:
                return result.result(
                    TOKENIZER_SECONDS * min(len(texts), 1 + sum(map(len, texts)) // LIMIT_CHARS)
                )
            except TimeoutError:
                longest = max(map(len, texts))
                raise ValueError(
                    f"it was at a text of {longest:,} for more than {TOKENIZER_SECONDS:g} s"
                ) from None


def word_tokenizer(words: Sequence[str]) -> Any:
    """Return a tokenizer with a token for each word.

    Ids: `<pad>` 0, `<eos>` 1, `<unk>` 2, `<think>` 3, `</think>` 4, then the words in their order; a word that is one
    of these five is not added again. Raises E0720 for a word that is empty, holds white space or comes twice.
    """
    special = (PAD, EOS, UNKNOWN, *THINK)
    vocabulary = {token: index for index, token in enumerate(special)}
    seen: set[str] = set()
    for word in words:
        if not word or len(word.split()) != 1 or word != word.strip():
            raise problem(
                "E0720",
                f"`{word}` is not a word: words are separated by white space and hold none",
                help="give each word once, without spaces",
            )
        if word in seen:
            raise problem(
                "E0720", f"the word `{word}` comes twice in the tokenizer's list", help="give each word once"
            )
        seen.add(word)
        vocabulary.setdefault(word, len(vocabulary))
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )


def encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Return the ids of a text, with nothing added. Raises E0815 for a text with words outside the vocabulary."""
    return encode_all(tokenizer, [text])[0]


def encode_all(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the ids of each text, as `encode` does, many times as fast: a call costs far more than a short text."""
    ids: list[tuple[int, ...]] = []
    for first in range(0, len(texts), BATCH_TEXTS):
        some = list(texts[first : first + BATCH_TEXTS])
        with report_unreadable():
            ids += map(tuple, tokenizer(some, add_special_tokens=False)["input_ids"])
    for text, tokens in zip(texts, ids, strict=True):
        require_known(tokenizer, text, tokens)
    return ids


def require_known(tokenizer: Any, text: str, ids: Sequence[int]) -> None:
    """Check that a tokenizer has tokens for all of a text. Raises E0815."""
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids and UNKNOWN not in text.split():
        vocabulary = tokenizer.get_vocab()
        foreign = next((word for word in text.split() if word not in vocabulary), text)
        raise problem(
            "E0815",
            f"the tokenizer does not know `{foreign[:80]}`",
            notes=[f"in: {text if len(text) <= 80 else text[:79] + '…'}"],
            help="add the word to the tokenizer's list, or correct the text",
        )


def make_word_tokenizer(words: WordTokenizer) -> Any:
    """Return the tokenizer that a model of a spec's own sizes has."""
    tokenizer = word_tokenizer(tuple(dict.fromkeys((*words.words, words.eos, words.pad))))
    tokenizer.eos_token, tokenizer.pad_token = words.eos, words.pad
    return tokenizer


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of ids, special tokens included."""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def require_written(tokenizer: Any, text: str, purpose: str) -> None:
    """Refuse a text that the tokenizer cannot encode, or that changes when it is decoded. Raises E0815.

    `purpose` says what the text is for. Space around the text, and the number of spaces between words, do not count.
    """
    with report_unreadable():
        ids = tokenizer.encode(text, add_special_tokens=False)
        back = decode(tokenizer, ids)
    unknown = tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids
    named = tokenizer.unk_token is not None and tokenizer.unk_token in text
    if back.split() == text.split() and (not unknown or named):
        return
    marks = [token for token in tokenizer.get_vocab() if token.startswith("<") and token.endswith(">")]
    raise problem(
        "E0815",
        f"the model's tokenizer cannot write `{_short(text)}`, which is {purpose}: it reads `{_short(back)}`",
        notes=[f"marks that it has: {', '.join(sorted(marks)[:12])}"] if marks else (),
        help="write it in words that the tokenizer has, or add its tokens to the model",
    )


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
