"""Read what supervised and preference training learn from: traces, and pairs of responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.model import Prompt
from runners.models.tokenizer import encode_all
from runners.prompts import continuation_tokens, prompt_tokens


@dataclass(frozen=True, slots=True)
class Trace:
    """A prompt and the tokens that are learnt after it, the end of sequence included."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


def traces_of(table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int) -> tuple[list[Trace], int]:
    """Return prompts with their traces, of at most `longest` tokens together, and how many were longer and are not taken.

    The end of sequence follows each trace. Raises E0928 where there are no traces, E0927 where none fits.
    """
    if "trace" not in table.columns or table["trace"].null_count() == table.height:
        raise problem(
            "E0928",
            "supervised training needs worked solutions, and the questions have none",
            where="questions.parquet",
            notes=[f"columns: {', '.join(table.columns)}"],
            help='name the column that holds them, as in `columns: columns(trace: "solution")`',
        )
    table = table.filter(pl.col("trace").is_not_null())
    traces = sequences_of(table, "trace", prompt, tokenizer)
    kept = [trace for trace in traces if len(trace.prompt) + len(trace.tokens) <= longest]
    if not kept:
        shortest = min(len(trace.prompt) + len(trace.tokens) for trace in traces)
        raise problem(
            "E0927",
            f"no prompt with its trace fits into `max_tokens`, {longest} tokens",
            where="questions.parquet",
            notes=[f"{len(traces)} traces, the shortest has {shortest} tokens with its prompt"],
            help=f"set `max_tokens` to at least {shortest} tokens",
        )
    return kept, len(traces) - len(kept)


def sequences_of(table: pl.DataFrame, column: str, prompt: Prompt, tokenizer: Any) -> list[Trace]:
    """Return prompts with the texts of a column, each after its prefix where the table has one.

    The end of sequence follows what came to its end, which is everything where the table does not say.
    """
    prompts = prompt_tokens(prompt, tokenizer, table["question"].to_list())
    end = tokenizer.eos_token_id
    begun = table[f"{column}_prefix"] if f"{column}_prefix" in table.columns else [""] * table.height
    ended = table[f"{column}_ended"] if f"{column}_ended" in table.columns else [True] * table.height
    sequences = []
    texts = encode_all(tokenizer, table[column].to_list())
    for tokens, text, prefix, whole in zip(prompts, texts, begun, ended, strict=True):
        lead = continuation_tokens(tokenizer, prefix) if prefix else ()
        body = (*lead, *text)
        sequences.append(Trace(tokens, body if body[-1:] == (end,) or not whole else (*body, end)))
    return sequences


def pairs_of(
    table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int
) -> tuple[list[tuple[Trace, Trace]], int]:
    """Return preferred and rejected sequences, neither past `longest` tokens, and how many pairs were and are not taken.

    Raises E0928 where there are no pairs, E0927 where none fits.
    """
    if "preferred" not in table.columns:
        raise problem(
            "E0928",
            "preference training needs pairs of responses, and the data has none",
            where="questions.parquet",
            notes=[f"columns: {', '.join(table.columns)}"],
            help="train on a selection that gives `preferred` and `rejected`",
        )
    sides = [sequences_of(table, role, prompt, tokenizer) for role in ("preferred", "rejected")]
    pairs = list(zip(*sides, strict=True))
    lengths = [max(len(one.prompt) + len(one.tokens) for one in pair) for pair in pairs]
    kept = [pair for pair, length in zip(pairs, lengths, strict=True) if length <= longest]
    if not kept:
        raise problem(
            "E0927",
            f"no pair fits into `max_tokens`, {longest} tokens",
            where="questions.parquet",
            notes=[f"{len(pairs)} pairs, the shortest has {min(lengths)} tokens with its prompt"],
            help=f"set `max_tokens` to at least {min(lengths)} tokens",
        )
    return kept, len(pairs) - len(kept)
