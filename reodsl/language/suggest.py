"""Near misses: from a name that does not exist to the one that was meant, and what there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST_SHOWN = 12


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most alike of some names, if any is alike at all."""
    pool = sorted(set(names))
    folded = {each.lower().replace("-", "_"): each for each in pool}
    found = get_close_matches(name.lower().replace("-", "_"), list(folded), n=1, cutoff=0.6)
    if found:
        return folded[found[0]]
    # A short name, or a stem of a longer one, is too far by ratio alone.
    stems = [
        each for each in pool if len(name) >= 2 and (each.startswith(name) or name.startswith(each + "_"))
    ]
    return stems[0] if len(stems) == 1 else None


def there_is(names: Iterable[str], what: str = "there is") -> str:
    """`there is a, b, c`, cut short with a count."""
    pool = sorted(set(names))
    if not pool:
        return f"{what} none"
    more = f" and {len(pool) - MOST_SHOWN} more" if len(pool) > MOST_SHOWN else ""
    return f"{what} " + ", ".join(f"`{name}`" for name in pool[:MOST_SHOWN]) + more


def advice(name: str, names: Iterable[str], what: str = "there is") -> str:
    """The help line for an unknown name: what was meant, else what there is."""
    pool = list(names)
    near = nearest(name, pool)
    return f"did you mean `{near}`?" if near else there_is(pool, what)
