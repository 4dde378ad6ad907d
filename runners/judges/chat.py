"""Ask a model behind an address for one reply, over OpenAI's interface of chat completions."""

from __future__ import annotations

from dataclasses import dataclass

from runners.remote import LARGEST_REPLY, RefusedReply, Remote
from runners.untrusted import Undecodable, decoded

MOST_TOKENS = 10**9
"""Tokens that a reply may say it took."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A model's text, whether it came to its end by itself, and the tokens that it read and wrote."""

    text: str
    ended: bool
    tokens: int


class Chat(Remote):
    """A model at an address that answers messages."""

    def __init__(self, address: str, model: str, key: str, seconds: float, at_once: int) -> None:
        super().__init__(address, "/chat/completions", model, key, seconds, at_once)

    def ask(self, instructions: str, message: str, max_tokens: int, temperature: float = 0.0) -> ChatReply:
        """Return the model's reply to a message, under instructions. Raises Refused."""
        request = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": instructions},
                {"role": "user", "content": message},
            ],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        body = self.post(request)
        reply = _reply_of(body, len(instructions) + len(message))
        if reply is None:
            raise RefusedReply(
                f"what it sends is no chat completion: {self.shown(body)}",
                "give the address of OpenAI's interface, which ends in `/v1`",
                again=True,
            )
        return reply


def _reply_of(body: bytes, asked: int) -> ChatReply | None:
    """Return the first choice of a completion, or None; a token has four characters if the server counts none."""
    try:
        said = decoded(body, LARGEST_REPLY)
        choice = said["choices"][0]
        text = choice["message"].get("content") or ""
        ended = choice.get("finish_reason") in ("stop", None)
        used = (said.get("usage") or {}).get("total_tokens")
    except (Undecodable, LookupError, TypeError, AttributeError):
        return None
    if not isinstance(text, str):
        return None
    if type(used) is not int or not 0 <= used <= MOST_TOKENS:
        used = (asked + len(text)) // _CHARACTERS_PER_TOKEN
    return ChatReply(text, ended, used)
