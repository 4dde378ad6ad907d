"""Tools that responses call: whose they are, and what cannot be had with several turns."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error
from reodsl.language.checks.cases import StageCase, place
from reodsl.language.values import Record

ENVIRONMENT = ":verifiers"


def check_tools(data: Record) -> Iterator[Diagnostic]:
    """E0533 where the tools of data are those of no environment."""
    tools = data.sub("tools")
    code = tools.sub("code") if tools is not None else None
    if code is None or "function" not in code.fields or str(code.data("function")).endswith(ENVIRONMENT):
        return
    yield error(
        "E0533",
        "tools are those of an environment of `verifiers`",
        place(code.fields["function"], code.span),
        "no environment",
        help='name a package that has some: `tools(python("MODULE:verifiers"))`',
    )


def check_turns(stage: StageCase) -> Iterator[Diagnostic]:
    """E0533 where a stage would cut turns into segments, or learn from the text of several turns."""
    data, segment = stage.record.sub("data"), stage.record.fields.get("segment")
    pool = data.sub("pool") if data is not None and data.kind == "selected" else None
    source = pool.sub("data") if pool is not None else data
    tools = source.fields.get("tools") if source is not None else None
    if tools is None or source is None or source.sub("tools") is None:
        return
    labels = [Label(place(tools, source.span), "responses have several turns")]
    if segment is not None and stage.method == "ppo":
        yield error(
            "E0533",
            "a segment would end a response in the middle of its turns",
            place(segment, stage.record.span),
            "cuts turns",
            others=labels,
            help="take `segment` out: with `lag` alone responses are whole",
        )
    if pool is not None and stage.method != "ppo":
        yield error(
            "E0533",
            f"`{stage.method}` learns from every token of a pool's responses, and part of these is what tools said",
            pool.span,
            "has several turns",
            others=labels,
            help="train on what tools said by `ppo`, which leaves it out, or take a pool of data without `tools`",
        )
