"""Name runs on a page of several: by their studies, and by what changed between runs of one study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from reodsl.diff.compare import DERIVED, compare
from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.ir.value_text import value_text

MOST_SETTINGS, MOST_LETTERS = 2, 24
_PARTS = str.maketrans(":@/", "___")
"""Characters that set a run's name and an arm's apart, and the parts of a role."""


def names(specs: Sequence[Spec], started: Sequence[str]) -> list[str]:
    """Return a name for each run: that of its study, or what changed where several runs have it (`steps=8`, `steps=36`).

    Runs in which nothing changed have the time when they were `started`, in ISO's form.
    """
    studies = [spec.study.name for spec in specs]
    counts = Counter(studies)
    chosen = list(studies)
    for study in (name for name, count in counts.items() if count > 1):
        places = [place for place, name in enumerate(studies) if name == study]
        settings = _changed([specs[place] for place in places])
        for index, place in enumerate(places):
            words = ", ".join(f"{name}={values[index]}" for name, values in settings.items())
            chosen[place] = " ".join(part for part in (study if len(counts) > 1 else "", words) if part)
    again = Counter(chosen)
    for place, name in enumerate(chosen):
        if again[name] > 1 or not name:
            when = started[place][:19].replace("T", " ").replace(":", ".")
            chosen[place] = f"{name or studies[place]} of {when}"
    twice = Counter(chosen)
    return [
        (f"{name} ({place + 1})" if twice[name] > 1 else name).translate(_PARTS)
        for place, name in enumerate(chosen)
    ]


def _changed(specs: Sequence[Spec]) -> dict[str, list[str]]:
    """Return the values in each run of the first settings that differ: params before others, and short ones alone."""
    differing = {
        name: [spec.params.get(name, "") for spec in specs]
        for name in dict.fromkeys(name for spec in specs for name in spec.params)
    }
    kept = _told_apart(differing)
    return kept or _told_apart(_settings(specs))


def _told_apart(settings: Mapping[str, list[str]]) -> dict[str, list[str]]:
    short = {
        name: values
        for name, values in settings.items()
        if len(set(values)) > 1 and all(len(name) + len(value) <= MOST_LETTERS for value in values)
    }
    return dict(list(short.items())[:MOST_SETTINGS])


def _settings(specs: Sequence[Spec]) -> dict[str, list[str]]:
    """Return the settings that differ from the first spec's, as people write them, by the last part of their names."""
    first, *others = specs
    graph = lower(first)
    values: dict[str, list[str]] = {}
    for place, other in enumerate(others, 1):
        difference = compare(first, other, graph, lower(other))
        for row in (row for each in (*difference.arms, difference.study) for row in each.rows):
            if row.setting == "name" or row.setting.startswith(DERIVED):
                continue
            name = row.setting.rpartition(".")[2]
            one, two = (
                value_text(row.setting, value).removesuffix(" steps").removesuffix(" tokens")
                for value in (row.a, row.b)
            )
            of_all = values.setdefault(name, [one] * len(specs))
            if of_all[place] == of_all[0]:
                of_all[place] = two
    return values
