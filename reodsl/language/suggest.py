"""Find the name that was most likely meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from heapq import nsmallest

MOST_SHOWN = 12
MOST_COMPARED = 512
"""Names that one is compared with. Among more of them none is looked for."""
LONGEST = 64


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most alike of some names, if any is alike. Its time is bounded for many or long names."""
    if len(name) > LONGEST:
        return None
    among = set(names)
    if len(among) > MOST_COMPARED:
        return None
    pool = sorted(each for each in among if len(each) <= 2 * LONGEST)
    begun = [each for each in pool if each.startswith(name + "_")]
    if len(begun) == 1:
        return begun[0]
    folded = {each.lower().replace("-", "_"): each for each in pool}
    matches = get_close_matches(name.lower().replace("-", "_"), list(folded), n=1, cutoff=0.65)
    if matches:
        return folded[matches[0]]
    # A short name, or a stem of a longer one, is too far by ratio alone.
    stems = [
        each for each in pool if len(name) >= 2 and (each.startswith(name) or name.startswith(each + "_"))
    ]
    return stems[0] if len(stems) == 1 else None


def list_names(names: Iterable[str], what: str = "there is", near: str = "") -> str:
    """Return `there is a, b, c`, cut with a count; if it is cut, the names most like `near` come first."""
    pool = set(names)
    if not pool:
        return f"{what} none"
    more = f" and {len(pool) - MOST_SHOWN} more" if len(pool) > MOST_SHOWN else ""
    far = dict[str, float]()
    if near and MOST_SHOWN < len(pool) <= MOST_COMPARED and len(near) <= LONGEST:
        matcher = SequenceMatcher(b=near)
        for name in pool:
            matcher.set_seq1(name[: 2 * LONGEST])
            far[name] = -matcher.ratio()
    shown = nsmallest(MOST_SHOWN, pool, key=lambda name: (far.get(name, 0.0), name))
    return f"{what} " + ", ".join(f"`{name}`" for name in shown) + more


def suggest(name: str, names: Iterable[str], what: str = "there is") -> str:
    """Return the help for an unknown name: the one that was meant, else all that exist."""
    pool = list(names)
    near = nearest(name, pool)
    return f"did you mean `{near}`?" if near else list_names(pool, what, name)
