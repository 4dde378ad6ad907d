"""Conversations: responses of several turns, between which an environment's tools speak."""

from runners.conversations.calls import calls_of
from runners.conversations.converse import Talk, Turn, converse, turn_text, turns_before
from runners.conversations.forcing import force
from runners.conversations.opened import open_talk, require_tools

__all__ = [
    "Talk",
    "Turn",
    "calls_of",
    "converse",
    "force",
    "open_talk",
    "require_tools",
    "turn_text",
    "turns_before",
]
