"""Chat formats: remove the marks that a chat puts around a user's message."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reodsl.ir.data import normal_question


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A model family's format of a user's turn: patterns of the marks before the message and of the marks that end it.

    Marks that are `plain` words may occur in any text: such a format is found only if a text begins and ends with them.
    """

    name: str
    before: re.Pattern[str]
    after: re.Pattern[str]
    plain: bool = False


def _format(name: str, before: str, after: str, plain: bool = False) -> ChatFormat:
    """Return a chat format whose patterns are given as texts."""
    return ChatFormat(name, re.compile(before, re.DOTALL), re.compile(after, re.DOTALL), plain)


FORMATS = (
    _format("DeepSeek", r"<[｜|]User[｜|]>", r"<[｜|](?:Assistant|end▁of▁sentence)[｜|]>"),
    _format("ChatML, as of Qwen", r"<\|im_start\|>user\b(?:<\|im_sep\|>)?", r"<\|im_end\|>|<\|im_start\|>assistant\b"),
    _format(
        "Llama 3",
        r"<\|start_header_id\|>user<\|end_header_id\|>",
        r"<\|eot_id\|>|<\|start_header_id\|>assistant<\|end_header_id\|>",
    ),
    _format("Llama 4", r"<\|header_start\|>user<\|header_end\|>", r"<\|eot\|>|<\|header_start\|>assistant"),
    _format("Llama 2 and Mistral", r"\[INST\](?:\s*<<SYS>>.*?<</SYS>>)?", r"\[/INST\]"),
    _format("Gemma", r"<start_of_turn>user\b", r"<end_of_turn>|<start_of_turn>model\b"),
    _format("Harmony, as of gpt-oss", r"<\|start\|>user<\|message\|>", r"<\|end\|>|<\|start\|>assistant\b"),
    _format(
        "Granite",
        r"<\|start_of_role\|>user<\|end_of_role\|>",
        r"<\|end_of_text\|>|<\|start_of_role\|>assistant",
    ),
    _format("Command", r"<\|USER_TOKEN\|>", r"<\|END_OF_TURN_TOKEN\|>|<\|CHATBOT_TOKEN\|>"),
    _format("Phi and Zephyr", r"<\|user\|>", r"<\|end\|>|</s>\s*<\|assistant\|>|<\|assistant\|>"),
    _format("Vicuna", r"(?:\A|(?<=[\s.]))USER:", r"(?:</s>)?\s*ASSISTANT:\s*\Z", plain=True),
    _format("Alpaca", r"(?:\A|(?<=\n))### (?:Instruction|Human):", r"### (?:Response|Assistant):\s*\Z", plain=True),
    _format("Human and Assistant", r"\A\s*(?:Human|User):", r"\n\s*Assistant:\s*(?:<think>)?\s*\Z", plain=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's turn in a text: the format's name, and the text in three parts."""

    format: str
    before: str
    message: str
    after: str


def find_turn(text: str) -> Turn | None:
    """Return the first turn of a user in a text that has the marks of a known chat format.

    A format is found by the mark that begins a turn, or else by the mark that ends a turn, which several formats share.
    A format whose marks are ordinary words, such as `USER:`, needs the marks at the beginning and at the end.

    Args:
        text: The text, such as a question of a data set.

    Returns:
        The turn, or None if the text has no marks of a chat.
    """
    for chat in FORMATS:
        open_mark = chat.before.search(text)
        end_mark = chat.after.search(text, open_mark.end()) if open_mark is not None else None
        if open_mark is not None and (end_mark is not None or not chat.plain):
            end = end_mark.start() if end_mark is not None else len(text)
            return Turn(chat.name, text[: open_mark.end()], text[open_mark.end() : end], text[end:])
    for chat in FORMATS:
        end_mark = None if chat.plain else chat.after.search(text)
        if end_mark is not None:
            return Turn(chat.name, "", text[: end_mark.start()], text[end_mark.start() :])
    return None


def question_key(question: str) -> str:
    """Return the text that identifies a question: `normal_question` without the marks of any known chat format."""
    turn = find_turn(question)
    return normal_question(question if turn is None else turn.message)
