"""Conversations: responses of several turns, between which an environment's tools speak."""

from runners.conversations.converse import (
    EarlierTurn,
    Talk,
    converse,
    force,
    open_talk,
    require_tools,
    turn_text,
    turns_before,
)
from runners.conversations.replies import calls_of

__all__ = [
    "EarlierTurn",
    "Talk",
    "calls_of",
    "converse",
    "force",
    "open_talk",
    "require_tools",
    "turn_text",
    "turns_before",
]
