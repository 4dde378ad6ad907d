"""Split questions into training and held-out ones, by the bare form of the question."""

from __future__ import annotations

import hashlib
from typing import Literal

from reodsl.ir.data import normal_question

Split = Literal["train", "held_out"]

HELD_OUT_ONE_IN = 5
"""One question in so many is held out."""


def split_of(bare: str) -> Split:
    """Which side a question is on, by a hash of its bare form and nothing else; one in five is held out.

    The bare form is what is asked, without the words that it is asked in: every source of questions says what that
    is of its own, so that a question stays on its side under every wording, with a worked solution or without. The
    hash is over its `normal_question`: spaces, case and the form of characters change nothing.
    """
    digest = hashlib.sha256(b"split:" + normal_question(bare).encode()).digest()
    return "held_out" if int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0 else "train"
