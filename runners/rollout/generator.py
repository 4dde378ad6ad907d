"""A checkpoint made ready to answer questions: its engine, requests and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.graph.job import Resources
from reodsl.ir.data import Grading
from reodsl.ir.model import Forcing, Model
from reodsl.ir.training import Sampling as SamplingRule
from runners.answers import response_text, thinking_after, thinking_of
from runners.conversations import turn_text
from runners.engine.open import open_engine
from runners.engine.protocol import Engine, Request, Response, Sampling
from runners.models.folder import load_config, load_tokenizer
from runners.prompts import continuation_tokens, render_prompt, stop_tokens, tools_of
from runners.seeds import purpose
from runners.verify import read_answer


@dataclass(frozen=True, slots=True)
class Question:
    """A row of `questions.parquet`; `meta` is empty where a package's scorer does not need it."""

    benchmark: str
    id: str
    text: str
    gold: str
    meta: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """A checkpoint's engine and tokenizer, and how it is prompted."""

    engine: Engine
    tokenizer: Any
    model: Model
    stop: tuple[int, ...]
    folder: Path

    def requests(self, question: Question, samples: int, seed: int) -> list[Request]:
        """A request for each sample. Its stream depends on seed, benchmark, question and sample alone."""
        prompt = self._prompt(question)
        name = f"{question.benchmark}\0{question.id}"
        return [Request(prompt, purpose(seed, name, sample)) for sample in range(samples)]

    def sampling(self, rule: SamplingRule) -> Sampling:
        """The engine's form of a sampling rule, with this model's stop tokens."""
        return Sampling(rule.max_tokens, rule.temperature, rule.top_p, rule.top_k, self.stop, logprobs=False)

    def forced_sampling(self, forcing: Forcing) -> Sampling:
        """How the answer after a forcing text is drawn."""
        return Sampling(forcing.answer_tokens, forcing.temperature, forcing.top_p, stop_ids=self.stop)

    @property
    def context(self) -> int:
        """The most tokens of any sequence."""
        return int(load_config(self.folder).max_position_embeddings)

    def answer(self, question: Question, response: Response, grading: Grading) -> str:
        """The answer in a response's last turn, which is all of one that calls no tools; empty where there is none."""
        thinking = thinking_of(self.model, grading)
        if thinking is not None:
            before = response.inserted[-1].tokens if response.inserted else self._prompt(question)
            thinking = thinking_after(thinking, self.tokenizer, before)
        last = turn_text(response, self.tokenizer, self.stop)
        return read_answer(grading.answer, last, thinking=thinking)

    def text(self, tokens: Sequence[int]) -> str:
        """A response's text without its stop token."""
        return response_text(self.tokenizer, tokens, self.stop)

    def _prompt(self, question: Question) -> tuple[int, ...]:
        return render_prompt(self.model.prompt, question.text, self.tokenizer, question.meta)


def open_reader(
    folder: Path,
    model: Model,
    resources: Resources,
    questions: Sequence[Question] = (),
    room: tuple[int, str] | None = None,
    aside: Path | None = None,
) -> Reader:
    """Loads a checkpoint folder into the engine that the task uses. Raises what `open_engine` does.

    `room` is what comes after the prompt of any of `questions` at most, in tokens and a text between them, so that the
    engine knows its longest sequence; where tools speak in between, it is the model's context.
    """
    tokenizer = load_tokenizer(folder)
    longest = None
    if room is not None and resources.engine != "embedded" and not any(tools_of(q.meta) for q in questions):
        prompts = (
            len(render_prompt(model.prompt, question.text, tokenizer, question.meta))
            for question in questions
        )
        longest = max(prompts, default=1) + room[0] + len(continuation_tokens(tokenizer, room[1]))
    # All that can be refused comes first: nobody would close an engine that is not handed out.
    stop = stop_tokens(tokenizer, folder)
    return Reader(
        open_engine(folder, resources, longest, aside, None, model.precision), tokenizer, model, stop, folder
    )
