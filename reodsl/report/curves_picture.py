"""Draw curves of any models beside a frontier: a panel for each benchmark, which says what kind of curves these are."""

from __future__ import annotations

from collections.abc import Mapping

from reodsl.numbers.curves import KINDS, Curves, common_kind, named_curves
from reodsl.report import theme
from reodsl.report.drawing import Picture, pictures
from reodsl.report.vega import Json, channel

FRONTIER = "frontier"
_BESIDE = 3


def draw(models: Mapping[str, Curves], frontier: Curves | None, end: int) -> Picture:
    """Return the picture of curves up to `end` tokens. Raises E0435 for two kinds of models."""
    kind = common_kind(named_curves(models))
    lines = {**models, **({} if frontier is None else {FRONTIER: frontier})}
    rows = [
        {"model": model, "benchmark": benchmark, "budget": budget, "accuracy": accuracy}
        for model, curves in lines.items()
        for benchmark, curve in curves.items()
        for budget, accuracy in zip(curve.budgets, curve.accuracy, strict=True)
        if budget <= end
    ]
    tint = theme.colours(list(models)) | {FRONTIER: theme.FRONTIER_KEY}
    scale = {"domain": list(lines), "range": [tint[name] for name in lines]}
    dash = {"condition": {"test": f"datum.model === '{FRONTIER}'", "value": [5, 3]}, "value": [1, 0]}
    chart: Json = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": theme.config(),
        "data": {"values": rows},
        "title": {"text": f"accuracy by budget, of the kind {kind}", "subtitle": KINDS[kind]},
        "facet": channel("benchmark", "nominal", title=None),
        "columns": _BESIDE,
        "spec": {
            "width": 280,
            "height": 200,
            "mark": {"type": "line"},
            "encoding": {
                "x": channel("budget", title="budget (tokens of the response)", scale={"nice": False}),
                "y": channel("accuracy", title=f"accuracy ({kind})", axis={"format": "%"}),
                "color": channel("model", "nominal", title=None, scale=scale, legend={"orient": "bottom"}),
                "strokeDash": dash if frontier is not None else {"value": [1, 0]},
            },
        },
    }
    return next(iter(pictures([chart])))
