"""Find the name that was most likely meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from heapq import nsmallest

MOST_SHOWN = 12
MOST_COMPARED = 512
"""The most names that a name is compared with; among more names no similar name is searched."""
LONGEST = 64


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`; None if no name is similar.

    A single name that begins with `name_` wins. Else case, `-` and `_` do not matter, and at last `name` may be
    the beginning of a single known name, or a known name with a further `_WORD`.

    Args:
        name: The unknown name; None is returned for more than `LONGEST` characters.
        names: The known names; None is returned for more than `MOST_COMPARED` names.
    """
    if len(name) > LONGEST:
        return None
    words = set(names)
    if len(words) > MOST_COMPARED:
        return None
    options = sorted(word for word in words if len(word) <= 2 * LONGEST)
    longer = [word for word in options if word.startswith(name + "_")]
    if len(longer) == 1:
        return longer[0]
    folded = {word.lower().replace("-", "_"): word for word in options}
    matches = get_close_matches(name.lower().replace("-", "_"), list(folded), n=1, cutoff=0.65)
    if matches:
        return folded[matches[0]]
    # The ratio of matching characters is too low for a name that is only the stem of another.
    stems = [
        word for word in options if len(name) >= 2 and (word.startswith(name) or name.startswith(word + "_"))
    ]
    return stems[0] if len(stems) == 1 else None


def list_names(names: Iterable[str], intro: str = "there is", similar_to: str = "") -> str:
    """Return names in words, `there is a, b, c`: at most `MOST_SHOWN` names, and the number of further names.

    Args:
        names: The names; sorted in the text.
        intro: The words before the names.
        similar_to: A name; if there are more than `MOST_SHOWN` names, the names most similar to it are shown.
            Empty to show the first names of the alphabet.
    """
    pool = set(names)
    if not pool:
        return f"{intro} none"
    rest_text = f" and {len(pool) - MOST_SHOWN} more" if len(pool) > MOST_SHOWN else ""
    distance = dict[str, float]()
    if similar_to and MOST_SHOWN < len(pool) <= MOST_COMPARED and len(similar_to) <= LONGEST:
        matcher = SequenceMatcher(b=similar_to)
        for name in pool:
            matcher.set_seq1(name[: 2 * LONGEST])
            distance[name] = -matcher.ratio()
    names_shown = nsmallest(MOST_SHOWN, pool, key=lambda name: (distance.get(name, 0.0), name))
    return f"{intro} " + ", ".join(f"`{name}`" for name in names_shown) + rest_text


def suggest(name: str, names: Iterable[str], intro: str = "there is") -> str:
    """Return help for an unknown name: the most similar name, or else a list of the known names.

    Args:
        name: The unknown name.
        names: The known names.
        intro: The words before a list of names.
    """
    pool = list(names)
    nearest_name = nearest(name, pool)
    return f"did you mean `{nearest_name}`?" if nearest_name else list_names(pool, intro, name)
