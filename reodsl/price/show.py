"""Prices in words: hours, times and bytes, a training step term by term, totals, and errors if a plan costs too much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from humanize import naturalsize

from reodsl.diagnostics import Diagnostic, error, group, listed, plural
from reodsl.graph.task import Graph
from reodsl.ir import Origin, Spec
from reodsl.ir.base import values_of
from reodsl.ir.training import Experiment, Stage
from reodsl.price.history import COMPUTES
from reodsl.price.prices import ElapsedTime
from reodsl.price.value import TERMS, Price, Prices, add_prices

_STEPS = 3
_THOUSANDS = ((1e9, "G"), (1e6, "M"), (1e3, "K"))


def count(value: float) -> str:
    """Return a number in two or three digits, with `K`, `M` or `G` for thousands: `3.9K`, `40`, `0.21`.

    Args:
        value: the number, at least 0.
    """
    for size, letter in _THOUSANDS:
        if value >= size * 0.9995:
            return f"{value / size:.3g}{letter}" if value < size * 999.5 else f"{value / size:.0f}{letter}"
    return f"{value:.3g}" if value < 99.95 else f"{value:.0f}"


def duration(seconds: float) -> str:
    """Return a time in its two largest units: `2m 30s`, `3h 10m`, `4d 2h`.

    Args:
        seconds: the time.
    """
    rounded = round(seconds)
    if rounded < 1:
        return "under 1s"
    for size, name, small, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if rounded >= size:
            rest = (rounded % size) // small
            return f"{rounded // size}{name}" + (f" {rest}{smaller}" if rest else "")
    return f"{rounded}s"


def size(value: float) -> str:
    """Return bytes in decimal units, as for disks: `40.3 GB`.

    Args:
        value: bytes.
    """
    return naturalsize(value, format="%.3g")


def memory(value: float) -> str:
    """Return bytes in binary units, as for device memory: `71.5 GiB`.

    Args:
        value: bytes.
    """
    return f"{value / 2**30:.3g} GiB" if value >= 2**29 else f"{value / 2**20:.3g} MiB"


def format_paid(prices: Prices, hours: float) -> str:
    """Return device hours in the unit of the cost: `4.2K gpu_hours`, or the time on this machine.

    Args:
        prices: prices with their unit.
        hours: device hours.
    """
    return duration(hours * 3600) if prices.unit == "seconds" else f"{count(hours)} gpu_hours"


def more_seeds(graph: Graph, prices: Prices, count: int) -> str:
    """Return what further seeds of a study cost, by its seeds so far: `, 4.2K gpu_hours`; empty if a task has no price.

    Args:
        graph: tasks of the study.
        prices: prices of these tasks.
        count: number of further seeds.
    """
    seeds = {task.id: task.seed for task in graph.tasks if task.seed is not None and task.kind in COMPUTES}
    hours = count * prices.hours(seeds) / max(len({*seeds.values()}), 1)
    return f", {format_paid(prices, hours)}" if hours and not prices.unpriced(seeds) else ""


def short(prices: Prices, names: Sequence[str]) -> str:
    """Return the price of some tasks for a row of a plan: GPU hours on a cluster, the time on this machine.

    It is empty if the tasks cost no GPU hours, or take less than a second on this machine. If any task has no price, it
    is `no price`.

    Args:
        prices: prices of all tasks.
        names: ids of the tasks.
    """
    chosen = [prices.tasks[name] for name in names]
    if any(price.unpriced is not None for price in chosen):
        return "no price"
    if prices.unit == "gpu_hours":
        hours = sum(price.gpu_hours for price in chosen)
        return format_paid(prices, hours) if hours else ""
    seconds = sum(price.total_seconds for price in chosen)
    return duration(seconds) if seconds >= 1 else ""


def details(price: Price) -> list[str]:
    """Return lines on a task's work, its peak memory by role, and its disk; the reason if it has no price."""
    if price.unpriced is not None:
        return [price.unpriced]
    lines = _list_work(price)
    if price.checked_within:
        lines.append(
            f"checking a batch takes at most {duration(price.checked_within)}, if every answer uses up its limit"
        )
    peaks = [f"{role} {memory(peak)}" for role, peak in price.memory.items()]
    parts = [f"peak memory {', '.join(peaks)}"] if peaks else []
    if price.disk >= 1e5:
        parts.append(f"disk {size(price.disk)}")
    return lines + ([", ".join(parts)] if parts else [])


def _list_work(price: Price) -> list[str]:
    """Return a line on amounts of work, such as tokens generated and answers checked; no line without work."""
    parts = [
        (price.requests, "requests to servers"),
        (price.sent, "tokens sent"),
        (price.generated, "tokens generated"),
        (price.forced, "forced"),
        (price.read_again, "prefix tokens read again"),
        (price.trained, "trained"),
        (price.verified, "answers checked"),
    ]
    amounts = [f"{count(number)} {words}" for number, words in parts if number >= 0.5]
    if price.draws > 1:
        amounts.append(f"{count(price.draws)} draws of questions a step")
    return [", ".join(amounts)] if amounts else []


def summary(prices: Prices, names: Sequence[str], everything: bool = False) -> list[str]:
    """Return lines on the totals of tasks.

    They describe a step of each kind of training, the tokens and calls, the highest peaks of memory, and all disk. They
    end with the reasons why tasks have no price, and with the basis of the times.

    Args:
        prices: prices of all tasks.
        names: ids of the tasks.
        everything: whether all kinds of training are listed; otherwise the `_STEPS` with the most expensive steps.
    """
    chosen = {name: prices.tasks[name] for name in names}
    # Tasks whose steps cost the same, such as seeds of an arm, are shown once.
    alike_steps = group(
        ("".join(line.partition(": ")[2] or line for line in lines), name)
        for name, price in chosen.items()
        if (lines := step(prices, name, price))
    )
    dearest = sorted(alike_steps.values(), key=lambda alike: -chosen[alike[0]].hours_a_step)
    lines = []
    for alike in dearest if everything else dearest[:_STEPS]:
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        lines += step(prices, alike[0] + more, chosen[alike[0]])
    if len(dearest) > _STEPS and not everything:
        lines.append(f"    {len(dearest) - _STEPS} trainings with cheaper steps (--all shows them)")
    total = add_prices(chosen.values())
    peaks = [f"{role} {memory(peak)}" for role, peak in total.memory.items()]
    lines += [f"Work: {line}" for line in _list_work(total)]
    if peaks:
        lines.append(f"Peak memory of a device: {', '.join(peaks)}. Disk: {size(total.disk)}.")
    unpriced = group((price.unpriced, name) for name, price in chosen.items() if price.unpriced is not None)
    lines += [f"No price for {listed(alike, 2)}: {reason}" for reason, alike in unpriced.items()]
    return [*lines, *_basis(prices)]


def _basis(prices: Prices) -> list[str]:
    """Return at most one line, on the basis of the times: past results, rehearsals, or estimates for a typical laptop.

    There is none for tasks on a cluster without past results or rehearsals.
    """
    counts = {"past": prices.count("result"), "rehearsed": prices.count("rehearsal")}
    if any(counts.values()):
        parts = [f"{count} by a {name} result" for name, count in counts.items() if count]
        return [f"Times of tasks: {', '.join(parts)}, all others estimated."]
    default = "Times are estimates for a typical laptop; the first run measures this machine."
    return [default] if prices.unit == "seconds" else []


def step(prices: Prices, name: str, price: Price) -> list[str]:
    """Return a line on the cost of a training step, term by term, and with a limit a line on how many steps it buys.

    Args:
        prices: prices of all tasks.
        name: name of the training in the line.
        price: price of the training.

    Returns:
        No lines for tasks without steps on GPUs.
    """
    hours, total = price.step_hours, price.hours_a_step
    if not hours or not total or prices.unit != "gpu_hours":
        return []
    terms = ", ".join(f"{term} {count(hours[term])}" for term in TERMS if hours.get(term))
    both = "; training overlaps with rollouts" if price.overlaps else ""
    both += "; `sharding = node`" if price.sharding == "node" else ""
    lines = [f"A step of {name}: {count(total)} gpu_hours on {price.devices} ({terms}{both})"]
    if prices.limit is not None:
        bought = int(prices.limit / total)
        lines.append(
            f"  {count(prices.limit)} gpu_hours buy {bought:,} of these steps; the spec has {price.steps:,}"
        )
    return lines


def until_the_end(prices: Prices, elapsed: ElapsedTime | None) -> list[str]:
    """Return a line on the least time from start to report; no line if it is unknown.

    Args:
        prices: prices of all tasks.
        elapsed: the least time, from `bound_elapsed`.
    """
    if elapsed is None:
        return []
    device = "core" if prices.unit == "seconds" else "GPU"
    many = plural(elapsed.devices, device)
    took, least = duration(elapsed.seconds), duration(elapsed.longest)
    more = (
        "more would not make it faster"
        if took == least
        else f"the longest chain of tasks alone takes {least}"
    )
    return [f"From start to report: at least {took} on {many}; {more}."]


def total(prices: Prices, now: Iterable[str], later: Iterable[str]) -> str:
    """Return the cost of a plan: `4.2K gpu_hours now, at most 8.2K of 60K`.

    On this machine it is the time of all tasks in sequence; Ray runs as many at once as there are cores.

    Args:
        prices: prices of all tasks.
        now: ids of tasks that have to run.
        later: ids of tasks that may have to run, which is known only after other tasks have run.
    """
    now, later = tuple(now), tuple(later)
    first, second = prices.hours(now), prices.hours(later)
    text = f"{format_paid(prices, first)} now"
    limit = prices.limit
    if later or limit is not None:
        text += f", at most {format_paid(prices, first + second).removesuffix(' gpu_hours')}"
        if limit is not None:
            text += f" of {count(limit)}" + (" hours" if prices.unit == "seconds" else "")
    if prices.unit == "seconds":
        text += ", on one core"
    if any(prices.tasks[name].requests for name in (*now, *later)):
        text += ", besides the time and cost of servers, which are unknown"
    open_ = prices.unpriced((*now, *later))
    if open_:
        text += f", {len(open_)} without a price"
    return text


def refusals(prices: Prices, tasks: Iterable[str], spec: Spec) -> tuple[Diagnostic, ...]:
    """Return the errors of a plan that costs too much: E0610 for the limit, E0606 for memory; empty if it fits.

    There is an E0606 for each task's trainer or engine whose peak is above a GPU's memory.

    Args:
        prices: prices of all tasks.
        tasks: ids of the tasks.
        spec: the spec.
    """
    study = spec.study
    stages = {experiment.name: experiment.stages for experiment in values_of(study, Experiment)}
    names, errors = tuple(tasks), []
    most = prices.hours(names)
    if prices.limit is not None and most > prices.limit:
        dear = sorted(names, key=lambda name: -prices.tasks[name].gpu_hours)[:3]
        origin = study.given_at.get("limit")
        errors.append(
            error(
                "E0610",
                f"this costs {format_paid(prices, most)}, and the limit is {format_paid(prices, prices.limit)}",
                where=_locate(spec, origin) or study.name,
                notes=[f"{name}: {format_paid(prices, prices.tasks[name].gpu_hours)}" for name in dear],
                help=_advice(prices, dear[0], most),
            )
        )
    for name in names:
        price = prices.tasks[name]
        for role, peak in price.memory.items():
            if price.capacity is not None and peak > price.capacity:
                errors.append(
                    error(
                        "E0606",
                        f"the {role} of {name} needs {memory(peak)} on each GPU, which has {memory(price.capacity)}",
                        where=price.devices,
                        help="spread it over more GPUs (`nodes`, `tensor_parallel`), or take a smaller model"
                        if role != "trainer"
                        else _advise_trainer(price, stages.get(name.partition(".")[0], ())),
                    )
                )
    return tuple(errors)


def _advise_trainer(price: Price, stages: Sequence[Stage]) -> str:
    """Return advice on saving a trainer's memory, without settings that any of its stages uses already.

    Args:
        price: price of the training.
        stages: stages of the training.
    """
    more = "write `sharding = cluster`" if price.sharding == "node" else "spread it over more GPUs (`nodes`)"
    adapters = "train adapters (`lora { rank = 32 }`)"
    host = "take the step on the host (`optim { on = host }`)"
    ways = [more, adapters * all(stage.lora is None for stage in stages)]
    ways.append(host * all(stage.optim.on == "device" for stage in stages))
    return ", ".join(filter(None, ways)) + ", or take a smaller model"


def _locate(spec: Spec, origin: Origin | None) -> str | None:
    """Return the location of a setting, `specs/a.reo:31`, or the command-line option that set it; None if unknown.

    Args:
        spec: the spec.
        origin: where the setting's value comes from; None for a default.
    """
    if origin is None:
        return None
    change = next((c for c in spec.changes if origin.path == f"{c.option} {c.target}"), None)
    if change is not None:
        return f"{origin.path}={change.value}"
    return f"{origin.path}:{origin.line}" if origin.line else None


def _advice(prices: Prices, dearest: str, most: float) -> str:
    """Suggest fewer steps of the most expensive task if this is enough, else a higher limit.

    Args:
        prices: prices of all tasks.
        dearest: id of the most expensive task.
        most: device hours of all tasks.
    """
    price = prices.tasks[dearest]
    assert prices.limit is not None
    step = price.hours_a_step
    if step:
        steps = int((prices.limit - (most - price.gpu_hours) - price.hours_of("start")) / step)
        if steps > 0:
            return f"{steps} steps of {dearest} would fit; or raise `limit` above {format_paid(prices, most)}"
    return f"raise `limit` above {format_paid(prices, most)}, or leave out arms"
