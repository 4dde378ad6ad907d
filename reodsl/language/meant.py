"""A value of the wrong kind where a declaration is wanted: to what was most likely meant by it."""

from __future__ import annotations

import json
import re

from reodsl.ir.setting_types import DATA_SOURCES, MODEL_SOURCES
from reodsl.language.values import Items, Record, StageRef, Value

_TABLE = re.compile(r".*\.(jsonl?|parquet|csv)", re.IGNORECASE)


def meant(value: Value, kinds: tuple[str, ...]) -> str | None:
    """The help for a value where one of some kinds of record is wanted, if it is clear what it was to be."""
    data = value.data
    if not kinds:
        return None
    if "budgets" in kinds:
        return (
            f"write a schedule, such as {BUDGETS}, or a list of budgets that ends with the longest response"
        )
    if isinstance(data, str):
        return _of_text(data, kinds)
    if isinstance(data, Items):
        lone = data.values[0].data if len(data.values) == 1 else None
        named = isinstance(lone, Record) and lone.kind in kinds and lone.name
        return f"write `{named}`, without brackets" if named else None
    if not isinstance(data, Record):
        return None
    if data.kind == "selection" and "selected" in kinds:
        return f"give it a pool to pick from: `{data.name}({POOL})`"
    if isinstance(data, StageRef) and "checkpoint" in kinds:
        return f"take its checkpoint: `checkpoint({stage_written(data)})`"
    if data.kind in MODEL_SOURCES and "model" in kinds:
        return f"declare a model, and name it here: `{declared_model(data.kind)}`"
    if data.kind in DATA_SOURCES and "data" in kinds:
        return f"declare the data, and name it here: `data NAME {{ source = {data.kind}(…) }}`"
    if data.kind == "python" and "reward" in kinds:
        term = f"python({json.dumps(data.data('function'))}, y)"
        return f"call it in a reward, and name that here: `reward NAME {{ {term} }}`"
    if data.kind == "judge" and "reward" in kinds:
        return (
            "a judge says which answers are right: write it as the data's `verifier`, and `reward = outcome`"
        )
    if data.kind in ("arm", "experiment") and "frontier" in kinds and data.name:
        return f"a frontier is over arms: `frontier NAME = envelope(of: [{data.name}], to: …)`"
    if data.kind == "experiment" and kinds == ("arm",) and data.name:
        return f"make it an arm: `arm {data.name} = {data.name}`"
    return None


BUDGETS = "`exp(from: 1K tokens, to: 32K tokens, n: 5)`"
POOL = "pool(checkpoint(…), data: …, samples: 8, max_tokens: …)"


def declared_model(source: str) -> str:
    """How a model from a source is declared."""
    return f"model NAME {{ source = {source}(…), context = 32K tokens }}"


def stage_written(stage: StageRef) -> str:
    """A stage of an experiment as a spec names it."""
    experiment, name = stage.name.rsplit(".", 1)
    unit = " tokens" if name.isdigit() else ""
    return f"{experiment}.stages[{name}{unit}]"


def _of_text(text: str, kinds: tuple[str, ...]) -> str | None:
    if "file" in kinds and _TABLE.fullmatch(text):
        return f'write `file("{text}")`'
    if "hub" in kinds and re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return f'write `hub("{text}")`'
    if re.fullmatch(r"[A-Za-z_]\w*", text) and "hub" not in kinds:
        return f"a declaration is named without quotes: `{text}`"
    if "model" in kinds:
        source = "folder" if text.startswith((".", "/")) else "hub"
        model = declared_model(source).replace("…", f'"{text}"')
        return f"declare a model, and name it here: `{model}`"
    if "data" in kinds:
        source = "file" if _TABLE.fullmatch(text) else "hub"
        return f'declare the data, and name it here: `data NAME {{ source = {source}("{text}") }}`'
    return None
