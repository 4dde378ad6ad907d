"""Turn questions into the token ids of prompts, and list the tokens that end a response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reodsl.diagnostics import problem
from reodsl.ir.model import Prompt
from runners.models.marks import encode_prompts, veil
from runners.models.template import TemplateError, render_template
from runners.models.tokenizer import encode


def render_prompt(prompt: Prompt, question: str, tokenizer: Any) -> tuple[int, ...]:
    """Return the token ids of the model's input for a question, with the prompt's prefix at its end.

    A `raw` prompt is the filled template. A `chat` prompt is rendered by the tokenizer's chat template, with the system
    message if it has one, up to the start of the model's turn. Control tokens come from templates only; text in the
    question that looks like a control token stays text.

    Args:
        prompt: The prompt's settings, with its template.
        question: The text of the question.
        tokenizer: The model's tokenizer.

    Raises:
        Problem: E0815, if words are outside the vocabulary; E0812, if a `chat` prompt has no chat template, or the
            template fails or exceeds its limits.
    """
    text = prompt.template.replace("{question}", veil(tokenizer, question))
    prefix = encode(tokenizer, prompt.prefix) if prompt.prefix else ()
    if prompt.kind == "raw":
        return (*encode_prompts(tokenizer, [text])[0], *prefix)
    if not getattr(tokenizer, "chat_template", None):
        raise problem(
            "E0812",
            "the prompt is of kind `chat`, and the model's tokenizer has no chat template",
            help="write `prompt { kind = raw }` with a template of your own, or take an instruction-tuned model",
        )
    turns = [{"role": "system", "content": prompt.system}] if prompt.system is not None else []
    turns.append({"role": "user", "content": text})
    try:
        filled = render_template(tokenizer, turns)
    except TemplateError as fault:
        raise problem(
            "E0812",
            f"the model's chat template cannot render this prompt: {fault}",
            help="give the model a template of your own: `prompt { template = … }`",
        ) from fault
    return (*encode_prompts(tokenizer, [filled])[0], *prefix)


def prompt_tokens(prompt: Prompt, tokenizer: Any, questions: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the token ids of the model's input for each question, as `render_prompt` does."""
    if prompt.kind == "raw":
        prefix = encode(tokenizer, prompt.prefix) if prompt.prefix else ()
        texts = [prompt.template.replace("{question}", veil(tokenizer, question)) for question in questions]
        return [(*ids, *prefix) for ids in encode_prompts(tokenizer, texts)]
    return [render_prompt(prompt, question, tokenizer) for question in questions]


def continuation_tokens(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Return the token ids of a text of the spec that follows a prompt or a response, without added special tokens.

    Raises:
        Problem: E0815, if words are outside the vocabulary.
    """
    return encode(tokenizer, text)


def stop_tokens(tokenizer: Any, folder: Path) -> tuple[int, ...]:
    """Return the token ids that end a response: the tokenizer's end of text, and those of generation_config.json.

    Either may be missing, and the result may be empty.

    Raises:
        Problem: E0803, if generation_config.json cannot be read.
    """
    tokens = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    path = folder / "generation_config.json"
    if path.is_file():
        try:
            end_ids = json.loads(path.read_text("utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError, RecursionError) as fault:
            raise problem(
                "E0803",
                f"generation_config.json cannot be read: {fault}",
                where=str(folder),
                help="correct generation_config.json, or remove it from the folder",
            ) from fault
        tokens += [n for n in (end_ids if isinstance(end_ids, list) else [end_ids]) if isinstance(n, int)]
    return tuple(dict.fromkeys(tokens))
