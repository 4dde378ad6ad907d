"""List what changed in a study since a plan of it was saved, a line for every setting."""

from __future__ import annotations

from reodsl.diff.compare import compare
from reodsl.diff.values import value_text
from reodsl.graph.task import Graph
from reodsl.ir import Spec
from reodsl.ir.study import Study
from reodsl.plan.places import Places

_NO_WORK = Graph(())


def changes(before: Study, now: Spec) -> tuple[str, ...]:
    """`reo_exp: optim.lr 5e-6 -> 1e-6 (specs/a.reo:8)` for every setting that differs."""
    difference = compare(Spec(study=before), now, _NO_WORK, _NO_WORK)
    lines, places = [], Places(now)
    for each in (*difference.arms, difference.study):
        owner = "" if each is difference.study else f"{each.a}: "
        for row in each.rows:
            old, new = value_text(row.setting, row.a), value_text(row.setting, row.b)
            origin = places.setting(each.b, row.setting)
            place = f" ({origin.path}:{origin.line})" if origin is not None and origin.line else ""
            lines.append(f"{owner}{row.setting} {old} -> {new}{place}")
    lines += [f"{name} is no longer an arm" for name in difference.only_a]
    lines += [f"{name} is a new arm" for name in difference.only_b]
    return tuple(dict.fromkeys(lines))
