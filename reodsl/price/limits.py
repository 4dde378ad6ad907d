"""Refuse tasks that cost more than the limit or do not fit a GPU's memory."""

from __future__ import annotations

from collections.abc import Iterable

from reodsl.diagnostics import Diagnostic, error
from reodsl.ir import Origin, Spec
from reodsl.price.show import memory, paid
from reodsl.price.value import Prices


def refusals(prices: Prices, tasks: Iterable[str], spec: Spec) -> tuple[Diagnostic, ...]:
    """E0610 where the tasks to be done cost more than the limit, E0611 where a role does not fit a GPU of its cluster."""
    study = spec.study
    names = tuple(tasks)
    errors = []
    most = prices.hours(names)
    if prices.limit is not None and most > prices.limit:
        dear = sorted(names, key=lambda name: -prices.tasks[name].gpu_hours)[:3]
        origin = spec.origins.get(f"{study.name}.limit")
        errors.append(
            error(
                "E0610",
                f"this costs {paid(prices, most)}, and the limit is {paid(prices, prices.limit)}",
                where=_place(spec, origin) or study.name,
                notes=[f"{name}: {paid(prices, prices.tasks[name].gpu_hours)}" for name in dear],
                help=_advice(prices, dear[0], most),
            )
        )
    for name in names:
        price = prices.tasks[name]
        for role, peak in price.memory.items():
            if price.capacity is not None and peak > price.capacity:
                errors.append(
                    error(
                        "E0611",
                        f"the {role} of {name} needs {memory(peak)} on each GPU, which has {memory(price.capacity)}",
                        where=price.devices,
                        help="spread it over more GPUs (`nodes`, `tensor_parallel`), or take a smaller model"
                        if role != "trainer"
                        else "spread it over more GPUs (`nodes`), train adapters (`lora { rank = 32 }`), take the step on"
                        " the host (`optim { on = host }`), or take a smaller model",
                    )
                )
    return tuple(errors)


def _place(spec: Spec, origin: Origin | None) -> str | None:
    """`specs/a.reo:31`, or the option of the command line that set the limit."""
    if origin is None:
        return None
    given = next((each for each in spec.changes if origin.path == f"{each.option} {each.target}"), None)
    if given is not None:
        return f"{origin.path}={given.value}"
    return f"{origin.path}:{origin.line}" if origin.line else None


def _advice(prices: Prices, dearest: str, most: float) -> str:
    """What would fit: fewer steps of the dearest task, as far as that is enough."""
    price = prices.tasks[dearest]
    assert prices.limit is not None
    step = price.hours_a_step
    if step:
        steps = int((prices.limit - (most - price.gpu_hours) - price.hours_of("start")) / step)
        if steps > 0:
            return f"{steps} steps of {dearest} would fit; or raise `limit` above {paid(prices, most)}"
    return f"raise `limit` above {paid(prices, most)}, or leave out arms"
