"""Read choices, words and names, recognise words with opposite meanings, and remove words of direction from a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from runners.grade.compare.notation import TEXT, closing, in_line, plain
from runners.grade.compare.quantity import quantity


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a multiple-choice question."""

    letter: str
    bracketed: bool
    """True if the letter is in brackets, as in `(B)`."""
    text: str = ""
    """The text of the choice after its letter, as in `(B) seven`; may be empty."""


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in words."""

    text: str | None
    """The words; None if the text is not only words."""
    agrees: bool | None
    """True if the text begins with yes or true, False for no or false, else None."""
    alone: bool
    """True if the text is only yes, no, true or false."""


_CHOICE = re.compile(r"\(?([A-Za-z])\)?[.:]?")
_CHOICE_WITH_TEXT = re.compile(
    r"(?:\\(?:text|mathrm)\{ ?)?"
    r"(?:\(([A-Z])\)[.:]?|([A-J])(?:[.):]|\}(?=\\text)| (?=\([a-z]{3}))|([A-J])(?=\})) ?\}?[ :]*(.*?)\}?",
    re.DOTALL,
)
_OTHER_CHOICE = re.compile(r"\([A-Z]\)|\b(?:and|or|not)\b|^ ?[A-H]$")
_CHOICE_LIST = re.compile(r"(?:[A-H]|\([A-H]\))(?:(?: ?[,;&]| ?,? and)? ?(?:[A-H]|\([A-H]\)))+")
_OPINION = re.compile(r"(?:(yes|true)|no|false)(?:$|[,.;:] )", re.IGNORECASE)
_ALL_TEXT = re.compile(r"(?:\\(?:text|mathrm)\{[^{}]*+\} ?)++")
_BARE_WORDS = re.compile(r"[A-Za-z]{4,}+(?:[ ,'-]+[A-Za-z0-9]+)*+[.!]?|[A-Za-z]{2,}+(?: [A-Za-z]+)++[.!]?")
_ANY_WORDS = re.compile(r"[A-Za-z][A-Za-z ,.'-]*+|[^\W\d_]+(?:[ .,'\u2019&-]+[^\W\d_]+)*[.!]?")
_LONG_WORD = re.compile(r"[A-Za-z]{4}|[^\x00-\x7f]")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_ORDINAL = re.compile(r"(?<=[0-9])(?:st|nd|rd|th)\b")
_VERBS = frozenset({"is", "was", "has", "had"})
_CLASSES = frozenset({"triangle", "function", "number", "angle", "sequence", "series", "curve", "solutions"})
_NEGATIONS = frozenset({"not", "no", "never", "and", "or", "neither", "either", "unless"})


def read_choices(text: str) -> list[str] | None:
    """Return the sorted letters of several choices, such as `A, C and D` or `ACD`; None for another text.

    Letters without separators are choices only in alphabetical order, so `CAB` is not.
    """
    flat = in_line(text)
    letters = re.findall("[A-H]", flat) if _CHOICE_LIST.fullmatch(flat) else []
    alphabetical = sorted(set(letters))
    return sorted(letters) if letters and (not flat.isalpha() or letters == alphabetical) else None


def read_choice(text: str) -> Choice | None:
    """Return the choice that a text is, with or without the choice's own text; None for another text."""
    words = words_in(text)
    letter = _CHOICE.fullmatch(text if words is None else plain(words))
    if letter is not None:
        return Choice(letter[1], letter[0][0] == "(")
    with_text = _CHOICE_WITH_TEXT.fullmatch(text)
    if with_text is None or not with_text[4].strip() or _OTHER_CHOICE.search(with_text[4]):
        return None
    return Choice(with_text[1] or with_text[2] or with_text[3], True, with_text[4])


def read_words(text: str) -> Words | None:
    """Return the words of a text, and whether it begins with yes or no (true or false).

    The result is None for a text that is not only words and does not begin with one of these four.
    """
    words, opinion = words_in(text), _OPINION.match(TEXT.sub(r"\1", text))
    if words is None and opinion is None:
        return None
    if opinion is None:
        return Words(words, None, False)
    return Words(words, opinion[1] is not None, not opinion[0].endswith(" "))


@lru_cache(maxsize=1024)
def words_in(text: str) -> str | None:
    r"""Return the words of a text that is only words, without `\text{}`.

    The result is None for a text with mathematics, and for a number with a unit.
    """
    if _ALL_TEXT.fullmatch(text):
        words = TEXT.sub(r"\1", text).strip()
        return None if words[:1].isdigit() and quantity(words) is not None else words
    return text if _BARE_WORDS.fullmatch(text) else None


def is_spoken(text: str) -> bool:
    """Return whether a text has a real word: one of two letters or more, other than "and" and "or"."""
    words = [word for word in _PLAIN_WORD.findall(text) if not word.isdigit()]
    return any(len(word) > 1 and word.lower() not in ("and", "or") for word in words)


def is_words(text: str) -> bool:
    """Return whether a reference is a choice or words in any script, which are compared without computer algebra."""
    words = words_in(text)
    if (words is not None and is_spoken(words)) or read_choice(text) is not None:
        return True
    return words is None and _ANY_WORDS.fullmatch(text) is not None and _LONG_WORD.search(text) is not None


def fold(words: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation and without articles and prepositions at its start."""
    folded = [word.casefold() for word in _PLAIN_WORD.findall(_ORDINAL.sub("", words))]
    while len(folded) > 1 and folded[0] in ("a", "an", "the", "on", "in", "at", "to"):
        folded = folded[1:]
    return folded


def same_phrase(gold: str, answer: str) -> bool:
    """Return whether an answer consists of the words of a reference, apart from case and punctuation.

    The answer may continue with a verb of `_VERBS` and other words (`Bob has the most`), if none of them is in
    `_NEGATIONS`. It may also continue with a single noun of `_CLASSES`, such as "triangle". The result for an empty
    reference is False.
    """
    expected, actual = fold(gold), fold(answer)
    rest = actual[len(expected) :]
    if rest and (
        (rest[0] in _VERBS and not _NEGATIONS.intersection(rest)) or (len(rest) == 1 and rest[0] in _CLASSES)
    ):
        actual = actual[: len(expected)]
    return expected == actual and bool(expected)


def words_of(text: str) -> str:
    """Return an answer that consists of letters in any script and punctuation, or "" for another text."""
    return text if _ANY_WORDS.fullmatch(text) else ""


_COUNT_AND_NOUN = re.compile(r"([0-9][0-9.,]*+) ?([A-Za-z]++(?: [A-Za-z]++)*+)")


def read_wrapped(text: str) -> str | None:
    r"""Return the content of brackets around a single item, or of `\text{…}` with digits; None for another text.

    A number with a noun keeps the noun as a text: `\text{5 apples}` gives `5 \text{ apples}`.
    """
    wrapped = TEXT.fullmatch(text)
    if text[0] == "(" and text[-1] == ")" and closing(text, 0) == len(text) - 1 and "," not in text:
        inside = text[1:-1].strip(" ")
    elif wrapped is not None and re.search("[0-9]", wrapped[1]):
        inside = plain(wrapped[1])
        count = _COUNT_AND_NOUN.fullmatch(inside)
        if count is not None:
            return rf"{count[1]} \text{{ {count[2]}}}"
        if is_spoken(inside) and quantity(inside) is None:
            return None
    else:
        return None
    return inside if inside not in ("", text) else None


_FIGURE = re.compile(r"(?:\\(angle|triangle|overline|overrightarrow|vec|bar) ?)?\{? ?([A-Z]{2,6}) ?\}?")
_FORMULA = re.compile(r"(?=.*[0-9])(?:\(?[A-Z][a-z]?[0-9]*\)?[0-9]*){2,40}(?:\^?[0-9]?[+-])?")
_OF_FORMULA = re.compile(r"[_{} ]|\\(?:text|mathrm|ce)(?![a-z])")
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")


def read_figure(text: str) -> tuple[str, str] | None:
    r"""Return the kind and the corners of a geometric figure such as `\angle ABC`; None for another text.

    The order of the corners is the same for all names of a figure: `\angle CBA` gives `ABC`, `\triangle BCA` too.
    """
    figure = _FIGURE.fullmatch(text)
    if figure is None:
        return None
    sign, corners = figure[1] or "overline", figure[2]
    if sign == "triangle":
        return sign, "".join(sorted(corners))
    return sign, corners if sign in ("overrightarrow", "vec") else min(corners, corners[::-1])


def read_formula(text: str) -> str:
    """Return a chemical formula such as `H2SO4` without its LaTeX commands, or "" for another text."""
    formula = _OF_FORMULA.sub("", text)
    return formula if r"\ce{" in text or _FORMULA.fullmatch(formula) else ""


def same_text(gold: str, answer: str) -> bool:
    r"""Return whether two texts or chemical formulas are equal apart from spaces and `\text{}`."""
    return (
        gold == answer or tighten(gold) == tighten(answer) or "" != read_formula(gold) == read_formula(answer)
    )


def tighten(text: str) -> str:
    r"""Return a text without `\text{}`, and without spaces except between letters or digits."""
    return _LOOSE_SPACE.sub("", in_line(text))


_OUT_OF = re.compile(r"([0-9]{1,12}) ?(?:\\text\{ ?)?(?:out of|in) ?\}? ?([0-9]{1,12})")
_DOZEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?:\\text\{ ?)?dozen(?:s(?: of)?)?(?![a-z]) ?\}?")


@lru_cache(maxsize=1024)
def spellings(text: str) -> tuple[str, ...]:
    r"""Return the texts that may be compared instead of a text with words.

    `3 out of 4` gives `\frac{3}{4}`, `2 dozen` gives itself and `24`, and a text with a direction is returned without it
    (see `without_sides`). Any other text is its only spelling.
    """
    share = _OUT_OF.fullmatch(text)
    if share is not None:
        return (rf"\frac{{{share[1]}}}{{{share[2]}}}",)
    dozens = _DOZEN.match(text)
    if dozens is None:
        return tuple(without_sides(text))
    number = 12 * Fraction(dozens[1])
    count = number.numerator if number.denominator == 1 else float(number)
    return (*without_sides(text), f"{count}{text[dozens.end() :]}")


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
"""Groups of opposite words, separated by `|`. Only the reference or only the answer may have a word of these groups."""
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
    "lor | land",
)
"""All groups of opposite words. A word may be in several groups."""
_COMPASS = 0
"""The index of the group in which all of a text's words count, as in 30 degrees north of east."""


def _sides_by_word() -> dict[str, tuple[tuple[int, int], ...]]:
    """Return for each word its (group, side) pairs: indices into `OPPOSITES` and among the sides of the group."""
    sides: dict[str, tuple[tuple[int, int], ...]] = {}
    for group, line in enumerate(OPPOSITES):
        for side, words in enumerate(line.split("|")):
            for word in words.split():
                sides[word] = (*sides.get(word, ()), (group, side))
    return sides


_SIDES = _sides_by_word()
_OF_LATEX = r"\\(?:max|min|sup|inf|lor|land)(?![A-Za-z])"
_WORD = re.compile(rf"(?<![\\A-Za-z])[A-Za-z]{{2,}}(?![A-Za-z])|{_OF_LATEX}")
_ANY_WORD = re.compile(
    rf"(?<![\\A-Za-z])[A-Za-z]{{2}}|[BAC]\.[CDE]\.|(?<=[ {{])[NSEW](?![A-Za-z])|{_OF_LATEX}"
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
_DIRECTION_PHRASE = re.compile(
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
    """Return whether an answer contradicts a reference by its words.

    A group of `OPPOSITES` has two or more sides, such as `older` and `younger`. The texts contradict each other if both
    have words of the same group, but no side in common. Words of the compass, in the first group, must be on all the
    same sides, and in the same order in `30 degrees north of east`. If both texts have digits, they also contradict
    each other if only the answer has a negation.
    """
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
        _has_digits(answer)
        and _has_digits(gold)
        and not _NEGATION.search(gold)
        and _NEGATION.search(answer) is not None
    )


def spell_sides(text: str) -> str:
    r"""Return a text in which letters and phrases for a direction are replaced by a word of `OPPOSITES`.

    `51^\circ N` gets "north", `from now` becomes "hence", and `at most` becomes "fewer".
    """
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    if not _has_digits(text) and text not in _COMPASS_NAMES:
        return text
    return _LETTER_OF_COMPASS.sub(lambda letter: _COMPASS_NAMES[letter[1] or letter[2] or letter[3]], text)


def without_sides(text: str) -> Iterator[str]:
    """Yield the texts, one or two, that are compared instead of a text with a direction ("side").

    A number is yielded without its direction. If the direction can mean a sign, the negative number is yielded too:
    `a loss of 3` gives 3 and -3. If the direction always means a sign, only the negative number is: `3 below zero`
    gives -3. A text without digits keeps its direction, in the spelling of `spell_sides`.
    """
    if _ANY_WORD.search(text) is None:
        yield text
        return
    spelled = spell_sides(text)
    if not _has_digits(text):
        yield spelled
        return
    number, count = _DIRECTION_PHRASE.subn(" ", _SEA_LEVEL.sub(" above ", spelled))
    number = _ARTICLE.sub("", " ".join(_EMPTY.sub("", number).split()).strip(" ,:="))
    if not count or not _has_digits(number):
        yield text
        return
    if not _BELOW_ZERO.search(spelled):
        yield number
    if _BELOW_ZERO.search(spelled) or _NEGATIVE.search(spelled):
        yield number.removeprefix("-") if number[0] == "-" else f"-{number}"


def _has_digits(text: str) -> bool:
    return any(map(str.isdigit, text))


def _sides(text: str) -> dict[int, set[int]]:
    """Return the sides of a text's words in groups of opposites.

    Returns:
        For each group that has a word of the text, the index of the group in `OPPOSITES`, and the indices of the sides.
    """
    sides: dict[int, set[int]] = {}
    for word in _WORD.findall(text):
        name = word.lstrip("\\")
        for group, side in _SIDES.get(name, ()) or _SIDES.get(name.lower(), ()):
            sides.setdefault(group, set()).add(side)
    return sides
