"""Tell opposites in answers apart: north and south, increase and decrease, boys and girls, 2 solutions and no solutions.

`OPPOSITES` is the table: a line is a group, and of its members, between bars, each excludes the others.
This file imports nothing of the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

DIRECTIONS = (
    "north northward northwards | south southward southwards | east eastward eastwards | west westward westwards"
    " | northeast | northwest | southeast | southwest",
    "up upward upwards upstream uphill | down downward downwards downstream downhill",
    "left leftward leftwards | right rightward rightwards",
    "clockwise | counterclockwise anticlockwise",
    "forward forwards | backward backwards back",
    "inward inwards | outward outwards",
    "ahead | behind",
    "above | below beneath underneath",
    "increase increases increased increasing rise rises rose growth"
    " | decrease decreases decreased decreasing reduction drop drops fall falls decline",
    "profit gain gained | loss lost",
    "maximum greatest largest | minimum smallest least",
    "early | late",
    "older | younger",
    "ago earlier before previously | hence later after afterwards",
    "bygone | anno",
    "surplus | deficit shortage",
    "discount | markup surcharge",
    "deposit deposited | withdrawal withdrawn",
    "credit | debit",
)
"""Groups whose words may be missing on one side, and are put aside where both sides agree."""
OPPOSITES = (
    *DIRECTIONS,
    "more | less fewer",
    "faster quicker | slower",
    "taller longer higher | shorter lower",
    "heavier | lighter",
    "hotter warmer | colder cooler",
    "cheaper | expensive costlier dearer",
    "wider broader | narrower",
    "deeper | shallower",
    "closer nearer | farther further",
    "stronger | weaker",
    "thicker | thinner",
    "richer | poorer",
    "better | worse",
    "easier | harder",
    "added adds | removed removes",
    "bought buys | sold sells",
    "entered enters | left leaves",
    "borrowed | lent",
    "owes owed | owns",
    "correct | incorrect wrong",
    "present | absent",
    "passed | failed",
    "full | empty",
    "hot | cold",
    "summer | winter | spring | autumn",
    "wins win won | losses loses lost | draws ties",
    "boys boy | girls girl",
    "men man males male | women woman females female",
    "adults adult | children child kids kid",
    "sons son | daughters daughter",
    "brothers brother | sisters sister",
    "husband | wife",
    "mother mothers | father fathers",
    "heads | tails",
    "even | odd",
    "positive | negative | nonnegative | nonpositive",
    "real | complex imaginary nonreal",
    "rational | irrational",
    "prime primes | composite composites",
    "convex | concave",
    "acute | obtuse",
    "horizontal horizontally | vertical vertically",
    "parallel | perpendicular",
    "inside | outside",
    "upper | lower",
    "open | closed",
    "front | back rear",
    "red | blue | green | yellow | black | white | purple | pink | brown | gray grey",
    "cats cat | dogs dog | cows cow | chickens chicken | horses horse | sheep | pigs pig | goats goat | ducks duck"
    " | rabbits rabbit | birds bird",
    "apples apple | oranges | bananas banana | pears pear | peaches peach | grapes | lemons lemon | mangoes",
    "pens pen | pencils pencil",
    "pennies penny | nickels nickel | dimes dime | quarters",
    "aces ace | kings king | queens queen | jacks jack",
    "wolves wolf | sheep | foxes fox | bears bear | lions lion | tigers tiger",
    "large larger big bigger greater | small smaller lesser",
    "tall high | deep | long | wide",
    "toward towards | away",
    "top | bottom",
    "first | last",
    "students student | teachers teacher",
    "cars car | trucks truck | bicycles bikes bike | motorcycles",
    "rows row | columns column",
    "vertices vertex | edges edge | faces face",
    "diameter | radius | circumference",
    "area | perimeter | volume",
    "mean | median | mode",
    "hits | misses",
    "successes success | failures failure",
    "days | nights",
    "buy bought | sell sold",
    "won | lost",
    "diverges divergent diverge | converges convergent converge",
    "unbounded | bounded",
    "internal internally | external externally",
    "ascending | descending",
    "max maximum | min minimum",
    "sup supremum | inf infimum",
)
"""All groups. A word may be in several of them."""
_COMPASS = 0
"""The group in which every direction counts: 30 degrees north of east."""


def _table() -> dict[str, tuple[tuple[int, int], ...]]:
    sides: dict[str, tuple[tuple[int, int], ...]] = {}
    for group, line in enumerate(OPPOSITES):
        for side, words in enumerate(line.split("|")):
            for word in words.split():
                sides[word] = (*sides.get(word, ()), (group, side))
    return sides


_SIDES = _table()
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?![A-Za-z])|\\(?:max|min|sup|inf)(?![A-Za-z])")
_ANY_WORD = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{2}|[BAC]\.[CDE]\.|(?<=[ {])[NSEW](?![A-Za-z])|\\(?:max|min|sup|inf)(?![A-Za-z])"
)
_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\bfrom now\b", "hence"),
        (
            r"\bin(?: \} ?|\} ?| )(?=[0-9]+ ?(?:\}? ?\\text\{ ?)?(?:second|minute|hour|day|week|month|year))",
            "hence ",
        ),
        (r"\bat most\b|\bno (?:more|greater) than\b|\bor under\b", "fewer"),
        (r"\bat least\b|\bno (?:less|fewer) than\b|\bor over\b", "more"),
        (r"\b(north|south)[- ](east|west)", r"\1\2"),
        (r"\b(counter|anti)[- ]clockwise", r"\1clockwise"),
        (r"\bnon[- ](?=[a-z])", "non"),
        (r"(?<=[0-9])((?: |\\text\{)+)(?:BC|BCE|B\.C\.(?:E\.)?)(?![A-Za-z])", r"\1bygone"),
        (r"(?<=[0-9])((?: |\\text\{)+)(?:AD|CE|A\.D\.|C\.E\.)(?![A-Za-z])", r"\1anno"),
    )
)
_AFTER_DEGREES = "|".join(
    rf"(?<={mark}{text})"
    for mark in (r"\\circ", r"\\circ ", "' ", "'")
    for text in (r"\\text\{", r"\\text\{ ")
)
_LETTER_OF_COMPASS = re.compile(
    rf"(?:(?<=[a-z'] )|{_AFTER_DEGREES}|^)(NE|NW|SE|SW|(?<!^)[NSEW])(?= ?\}}?$)"
    r"|(?<![\\A-Za-z])([NSEW])(?= of )|(?<= of )([NSEW])(?= ?\}?$)"
)
_COMPASS_NAMES = {
    "N": "north", "S": "south", "E": "east", "W": "west",
    "NE": "northeast", "NW": "northwest", "SE": "southeast", "SW": "southwest",
}  # fmt: skip
_OF = re.compile(r"\b(north|south|east|west)[a-z]* of (?:due )?(north|south|east|west)")
_NEGATION = re.compile(r"(?<![\\A-Za-z])(?:no|not|never|none|without|neither)(?![A-Za-z])", re.IGNORECASE)
_DIRECTION_WORDS = sorted(
    {word for line in DIRECTIONS for word in re.findall("[a-z]+", line)}, key=len, reverse=True
)
_STRIPPED = re.compile(
    r"(?<![\\A-Za-z0-9])(?:(?:an?|due|to the|in the|of|by|from the) ){0,3}"
    rf"(?:{'|'.join(_DIRECTION_WORDS)})"
    r"(?: (?:of|by|is))?(?![A-Za-z])[:=]? ?",
    re.IGNORECASE,
)
_SEA_LEVEL = re.compile(r"(above|below) (zero|freezing|sea level|ground(?: level)?)", re.IGNORECASE)
_ARTICLE = re.compile(r"\A(?:\\text\{ ?an? ?\} ?|an? (?=[0-9\\$]))")
_EMPTY = re.compile(r"\\(?:text|mathrm)\{[ ,.]*\}")
_NEGATIVE = re.compile(
    r"(?<![\\A-Za-z])(?:decreas|reduction|loss|lost|drop|decline|deficit|below (?:sea|ground))", re.IGNORECASE
)
_BELOW_ZERO = re.compile(r"below (?:zero|freezing)", re.IGNORECASE)


def opposed(gold: str, answer: str) -> bool:
    """Return whether an answer says the opposite of a reference: another member of a group, or a denial."""
    if _ANY_WORD.search(gold) is None or _ANY_WORD.search(answer) is None:
        return False
    gold, answer = spell_sides(gold), spell_sides(answer)
    first, second = _sides(gold), _sides(answer)
    for group in first.keys() & second.keys():
        if first[group].isdisjoint(second[group]) or (group == _COMPASS and first[group] != second[group]):
            return True
    if _OF.findall(gold) != _OF.findall(answer) and 0 in first and 0 in second:
        return True
    return (
        _digits(answer)
        and _digits(gold)
        and not _NEGATION.search(gold)
        and _NEGATION.search(answer) is not None
    )


def spell_sides(text: str) -> str:
    r"""Return the text with one word for each direction: `51^\circ N` with north, `from now` as hence."""
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    if not _digits(text) and text not in _COMPASS_NAMES:
        return text
    return _LETTER_OF_COMPASS.sub(lambda letter: _COMPASS_NAMES[letter[1] or letter[2] or letter[3]], text)


def without_sides(text: str) -> Iterator[str]:
    """Yield the text without its direction, and where the direction may be a sign, its opposite: `3 below zero` is -3.

    A text without a number is only a direction, and is spelled as such.
    """
    if _ANY_WORD.search(text) is None:
        yield text
        return
    spelled = spell_sides(text)
    if not _digits(text):
        yield spelled
        return
    bare, count = _STRIPPED.subn(" ", _SEA_LEVEL.sub(" above ", spelled))
    bare = _ARTICLE.sub("", " ".join(_EMPTY.sub("", bare).split()).strip(" ,:="))
    if not count or not _digits(bare):
        yield text
        return
    if not _BELOW_ZERO.search(spelled):
        yield bare
    if _BELOW_ZERO.search(spelled) or _NEGATIVE.search(spelled):
        yield bare.removeprefix("-") if bare[0] == "-" else f"-{bare}"


def _digits(text: str) -> bool:
    return any(map(str.isdigit, text))


def _sides(text: str) -> dict[int, set[int]]:
    """Map the groups of a text's words to its members."""
    sides: dict[int, set[int]] = {}
    for word in _WORD.findall(text):
        name = word.lstrip("\\")
        for group, side in _SIDES.get(name, ()) or _SIDES.get(name.lower(), ()):
            sides.setdefault(group, set()).add(side)
    return sides
