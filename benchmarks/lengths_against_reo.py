"""Write the tables of the preregistered study in docs/EVIDENCE.md from the tables of finished runs.

    python -m benchmarks.lengths_against_reo STEPS=RUN…  # add the seeds of runs to benchmarks/tables/, and write the tables
    python -m benchmarks.lengths_against_reo             # write the tables from the numbers that are kept

STEPS is 4, 8, 16 or 36. Each seed may be a run of its own (`8=RUN 8=RUN`). Seeds 1 to 5 choose the constants of the
rewards; the seeds after them test.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.miniature import (
    Difference,
    Numbers,
    compare,
    gaps_of,
    keep,
    numbers,
    p_value,
    signed,
    standard_error,
)
from benchmarks.tables import ROOT, markdown, rewrite
from reodsl.diagnostics import in_percent
from reodsl.numbers.reg import holm, t_quantile

PAGE = ROOT / "docs" / "EVIDENCE.md"
LOOKS = (8, 4, 16, 36)
CHOOSING = range(1, 6)
TESTING = range(6, 26)
POINT = 0.01
"""The accuracy that an arm may lose against vanilla RL, or against the arm that it is compared with."""
RIVALS = {
    "length reward normalised in the group": ("norm_05", "norm_10", "norm_20", "norm_40", "norm_80"),
    "length-harmonizing reward": ("harmony_1", "harmony_2", "harmony_5"),
    "token budget": ("budget_80", "budget_40"),
}
SAME = (("exp_5", "oracle"), ("exp_5", "exp_10"))
MARGINS = (1.5, 1.0)


def among(measure: Numbers, seeds: Sequence[int]) -> Numbers:
    """Return a measure over some of the seeds."""
    return {arm: {seed: values[seed] for seed in seeds if seed in values} for arm, values in measure.items()}


def choose(rivals: Sequence[str], reg: Numbers, accuracy: Numbers) -> str:
    """Return the rival with the lowest mean REG of those within a point of vanilla RL's accuracy; of all, if none is."""
    least = fmean(accuracy["vanilla"].values()) - POINT
    able = [arm for arm in rivals if fmean(accuracy[arm].values()) >= least] or list(rivals)
    return min(able, key=lambda arm: fmean(reg[arm].values()))


def same_within(one: Mapping[int, float], two: Mapping[int, float]) -> float:
    """Return the least margin within which two one-sided 5% tests find two arms the same: the 90% interval's far end."""
    gaps = gaps_of(one, two)
    return abs(fmean(gaps)) + t_quantile(0.95, len(gaps) - 1) * standard_error(gaps)


def primary(reg: Numbers, accuracy: Numbers) -> str:
    """Return the table of the primary comparisons, each with Holm's probability over all of them."""
    among_choosing = among(reg, CHOOSING), among(accuracy, CHOOSING)
    chosen = {what: choose(arms, *among_choosing) for what, arms in RIVALS.items()}
    test, right = among(reg, TESTING), among(accuracy, TESTING)
    adjusted = holm([p_value(test["exp_5"], test[arm]) for arm in chosen.values()])
    rows = []
    for (what, arm), p in zip(chosen.items(), adjusted, strict=True):
        gap, points = compare(test["exp_5"], test[arm]), compare(right["exp_5"], right[arm])
        called = verdict(gap, points, p)
        rows.append((what, arm, signed(gap, digits=2), f"{p:.3f}", signed(points, 100, 2), called))
    head = (
        "REO-RL (Exp, N = 5) against",
        "chosen on seeds 1 to 5",
        f">REG, tokens ({len(test['exp_5'])} seeds)",
    )
    return markdown((*head, ">p (Holm)", ">accuracy, points", "verdict"), rows)


def verdict(gap: Difference, points: Difference, p: float) -> str:
    """Return what the page said before the run that these numbers would mean."""
    if p > 0.05:
        return "not separated"
    if points.mean < -POINT:
        return "lower REG, at a price in accuracy" if gap.mean < 0 else "behind"
    return "ahead" if gap.mean < 0 else "behind"


def equivalence(reg: Numbers) -> str:
    """Return the table of the two equivalences."""
    test = among(reg, TESTING)
    rows = []
    for one, two in SAME:
        least = same_within(test[one], test[two])
        within = ("yes" if least < margin else "no" for margin in MARGINS)
        rows.append(
            (f"{one}, {two}", signed(compare(test[one], test[two]), digits=2), f"{least:.2f}", *within)
        )
    return markdown(("pair", ">REG, tokens", ">the same within", "within 1.5", "within 1"), rows)


def arms(look: int, reg: Numbers, accuracy: Numbers, length: Numbers) -> str:
    """Return a row for each arm over the testing seeds."""
    reg, accuracy, length = (among(each, TESTING) for each in (reg, accuracy, length))
    rows = [
        (
            *(arm, f"{in_percent(fmean(accuracy[arm].values()), 1)}%", f"{fmean(length[arm].values()):.1f}"),
            f"{fmean(of_arm.values()):.2f}",
            "" if arm == "vanilla" else signed(compare(of_arm, reg["vanilla"]), digits=2),
        )
        for arm, of_arm in reg.items()
    ]
    head = (
        f"{look} steps, {len(reg['vanilla'])} seeds",
        ">accuracy",
        ">length",
        ">REG",
        ">less vanilla RL's",
    )
    return markdown(head, rows)


def chosen(reg: Numbers, accuracy: Numbers) -> str:
    """Return the rivals that the choosing seeds chose, in words."""
    among_choosing = among(reg, CHOOSING), among(accuracy, CHOOSING)
    return ", ".join(f"`{choose(rivals, *among_choosing)}` ({kind})" for kind, rivals in RIVALS.items())


def texts() -> dict[str, str]:
    """Return the page's tables by the names of their markers; one that lacks seeds says how many are done."""
    made = {}
    for look in LOOKS:
        name = f"lengths_{look}"
        reg = numbers(name, "reg")
        done = len(reg.get("vanilla", {}))
        if done < CHOOSING.stop - 1 + 2:
            made[name] = f"{done} of {len(CHOOSING) + len(TESTING)} seeds are done."
            if look == LOOKS[0] and done == len(CHOOSING):
                made[name] += f" They chose {chosen(reg, numbers(name, 'accuracy'))}."
            continue
        accuracy, length = numbers(name, "accuracy"), numbers(name, "length")
        parts = [arms(look, reg, accuracy, length)]
        if look == LOOKS[0]:
            parts = [primary(reg, accuracy), equivalence(reg), *parts]
        made[name] = "\n\n".join(parts)
    return made


def main() -> None:
    """Keep the runs that are named, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="STEPS=RUN")
    for argument in parser.parse_args().runs:
        look, _, run = argument.partition("=")
        if look not in map(str, LOOKS):
            raise SystemExit(f"there is no look at `{look}` steps: write one of 4, 8, 16, 36, then `=RUN`")
        keep(f"lengths_{look}", Path(run))
    rewrite(PAGE, texts())


if __name__ == "__main__":
    main()
