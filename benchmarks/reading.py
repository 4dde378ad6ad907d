"""What it costs to read a server's answers: processor seconds for a million tokens, with log-probabilities and without."""

from __future__ import annotations

import json
import random
import time

import orjson

from runners.engine.protocol import Request, Sampling
from runners.engine.sglang.messages import Draft

TOKENS, ANSWERS = 10_000, 40
VOCABULARY = 151_936


def answer(draw: random.Random, logprobs: bool) -> bytes:
    """An answer as our servers give it, of numbers with all their digits."""
    meta: dict[str, object] = {"weight_version": "1", "finish_reason": {"type": "length"}}
    if logprobs:
        meta["output_token_logprobs"] = [-draw.random() for _ in range(TOKENS)]
    return json.dumps(
        {"output_ids": [draw.randrange(VOCABULARY) for _ in range(TOKENS)], "meta_info": meta}
    ).encode()


def seconds(logprobs: bool) -> float:
    """The least of three rounds."""
    draw = random.Random(1)
    bodies = [answer(draw, logprobs) for _ in range(ANSWERS)]
    rounds = []
    for _ in range(3):
        began = time.process_time()
        for body in bodies:
            Draft(Request((1,), 1), Sampling(TOKENS, logprobs=logprobs)).take(orjson.loads(body))
        rounds.append(time.process_time() - began)
    return min(rounds) * 1e6 / (TOKENS * ANSWERS)


if __name__ == "__main__":
    print(json.dumps({"with_logprobs": round(seconds(True), 3), "without": round(seconds(False), 3)}))
