"""Word-level tokenizers from a word list, limits on foreign tokenizers, and checks that a tokenizer can write a text.

A word-level tokenizer splits at white space; `decode(encode(text))` gives a text whose words are separated by single
spaces unchanged.
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
"""The limit in processor seconds for reading and trying a tokenizer, and in seconds for encoding a text. Real tokenizers
need a few seconds at most."""
MEMORY_MIB = 1 << 12
"""The limit on a tokenizer's memory in mebibytes. Real tokenizers need a gibibyte at most."""
LIMIT_CHARS = 100_000
"""A batch of texts gets `TOKENIZER_SECONDS` once, and once more for each `LIMIT_CHARS` characters."""
BATCH_TEXTS = 256
"""The number of texts that are encoded in one call."""
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
THINK = ("<think>", "</think>")


@contextmanager
def report_unreadable(folder: Path | None = None) -> Iterator[None]:
    """Turn exceptions inside a `with` block into E0803 about a tokenizer; `folder` is named in the message.

    The tokenizers library raises plain `Exception`s, and its panics derive only from BaseException. Problems, and other
    exceptions that derive only from BaseException such as KeyboardInterrupt, pass through unchanged.
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
    """Check that a folder's tokenizer can be used within limits of time and memory, by trying it in another process.

    It is tried on texts on which its patterns may be slow.

    Raises:
        Problem: E0803, if the tokenizer cannot be read, exceeds the limits, or may make texts much longer.
    """
    with closing(LimitedProcess(TOKENIZER_SECONDS, MEMORY_MIB)) as process:
        try:
            reply = process.ask({"tokenizer": str(folder.absolute())})
        except LimitExceeded as limit:
            reply = {"raised": f"on a text of one line it {limit}"}
    if reply.get("growth", 0) >= MAX_GROWTH:
        reply = {
            "raised": f"its steps make a text up to {reply['growth']:.3g} times as long; the limit is {MAX_GROWTH:,}"
        }
    if "raised" in reply:
        message = f"the tokenizer cannot be used: {' '.join(reply['raised'].split())[:200]}"
        raise problem("E0803", message, where=str(folder), help=RELOAD_REMEDY)


class TimedTokenizer:
    """A wrapper of the tokenizers library's tokenizer that raises E0803 if a text takes too long.

    The patterns come with the downloaded model, and may be slow on some texts. A call that takes too long cannot be
    stopped: its thread runs on, and its result is ignored.
    """

    def __init__(self, inner: Any, folder: Path) -> None:
        """Wrap a tokenizer; `folder` is named in messages."""
        vars(self).update(_inner=inner, _folder=folder)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped tokenizer."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)

    def encode_batch(self, texts: Sequence[Any], **settings: Any) -> Any:
        """Return the encodings of texts; `settings` are keyword arguments of the library's method."""
        return self._watch(self._inner.encode_batch, texts, settings)

    def decode(self, ids: Sequence[int], **settings: Any) -> str:
        """Return the text of token ids.

        It calls `decode_batch`, because the library's `decode` blocks all other Python threads.
        """
        return str(self._watch(self._inner.decode_batch, [ids], settings)[0])

    def _watch(self, call: Callable[..., Any], texts: Sequence[Any], settings: dict[str, Any]) -> Any:
        """Call the tokenizer in a thread, wait for at most a time that grows with the texts, and return the result.

        The time is `TOKENIZER_SECONDS`, once more for each `LIMIT_CHARS` characters, and at most once for each text.

        Args:
            call: A method of the tokenizer.
            texts: Its first argument.
            settings: Its keyword arguments.

        Raises:
            Problem: E0803, if the call fails or takes too long.
        """
        result: Future[Any] = Future()

        def work() -> None:
            """Store the call's result or exception in `result`."""
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
                    f"a text of {longest:,} characters took more than {TOKENIZER_SECONDS:g} s"
                ) from None


def word_tokenizer(words: Sequence[str]) -> Any:
    """Return a transformers tokenizer with a token for each word.

    The ids are `<pad>` 0, `<eos>` 1, `<unk>` 2, `<think>` 3, `</think>` 4, then the other words in their order.

    Raises:
        Problem: E0720, if a word is empty, has white space, or occurs twice.
    """
    special = (PAD, EOS, UNKNOWN, *THINK)
    vocabulary = {token: index for index, token in enumerate(special)}
    seen: set[str] = set()
    for word in words:
        if not word or len(word.split()) != 1 or word != word.strip():
            raise problem(
                "E0720",
                f"`{word}` is not a word: a word is not empty and has no white space",
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
    """Return the token ids of a text, without added special tokens.

    Raises:
        Problem: E0815, if the text has words outside the vocabulary.
    """
    return encode_all(tokenizer, [text])[0]


def encode_all(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the token ids of each text as `encode` does, but faster: one call encodes many texts.

    Raises:
        Problem: E0815, as `encode`.
    """
    ids: list[tuple[int, ...]] = []
    for start in range(0, len(texts), BATCH_TEXTS):
        batch = list(texts[start : start + BATCH_TEXTS])
        with report_unreadable():
            ids += map(tuple, tokenizer(batch, add_special_tokens=False)["input_ids"])
    for text, tokens in zip(texts, ids, strict=True):
        require_known(tokenizer, text, tokens)
    return ids


def require_known(tokenizer: Any, text: str, ids: Sequence[int]) -> None:
    """Check that the tokenizer knows all words of an encoded text, i.e. that no token is its unknown token.

    A text that itself contains the word `<unk>` passes.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        ids: The token ids of the text.

    Raises:
        Problem: E0815, with the first unknown word.
    """
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids and UNKNOWN not in text.split():
        vocabulary = tokenizer.get_vocab()
        unknown_word = next((word for word in text.split() if word not in vocabulary), text)
        raise problem(
            "E0815",
            f"the tokenizer does not know `{unknown_word[:80]}`",
            notes=[f"in: {text if len(text) <= 80 else text[:79] + '…'}"],
            help="add the word to the tokenizer's list, or correct the text",
        )


def make_word_tokenizer(words: WordTokenizer) -> Any:
    """Return the word-level tokenizer that a spec declares for a model with random weights."""
    tokenizer = word_tokenizer(tuple(dict.fromkeys((*words.words, words.eos, words.pad))))
    tokenizer.eos_token, tokenizer.pad_token = words.eos, words.pad
    return tokenizer


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of token ids, including special tokens."""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def require_written(tokenizer: Any, text: str, purpose: str) -> None:
    """Check that a tokenizer can encode a text, and decodes it to the same words.

    White space around the text and between words may change. Unknown tokens are allowed only if the text contains the
    unknown token itself.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        purpose: What the text is for, e.g. "the text that ends thinking".

    Raises:
        Problem: E0815, if the tokenizer cannot write the text.
    """
    with report_unreadable():
        ids = tokenizer.encode(text, add_special_tokens=False)
        decoded = decode(tokenizer, ids)
    has_unknown = tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids
    names_unknown = tokenizer.unk_token is not None and tokenizer.unk_token in text
    if decoded.split() == text.split() and (not has_unknown or names_unknown):
        return
    marks = [token for token in tokenizer.get_vocab() if token.startswith("<") and token.endswith(">")]
    raise problem(
        "E0815",
        f"the model's tokenizer cannot write `{_short(text)}`, which is {purpose}: it reads `{_short(decoded)}`",
        notes=[f"the tokenizer's marks: {', '.join(sorted(marks)[:12])}"] if marks else (),
        help="write the text with tokens that the tokenizer has, or add tokens to the model",
    )


def _short(text: str) -> str:
    """Return a text with at most 60 characters, shortened by an ellipsis."""
    return text if len(text) <= 60 else text[:59] + "…"
