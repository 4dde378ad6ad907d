"""Read dates, times, versions, addresses, sequences and words as values of their kind, before they are taken for arithmetic.

`READERS` lists a pattern and a function for each way to write a value. The first reader that reads a reference decides its
kind, and the answer is then read as this kind. A reader's function gets the kind and the match of its pattern, and returns
the reading, or None if the text is not of this kind after all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from runners.grade.compare.notation import in_line

LONGEST_READ = 200
"""The most characters of a text that is read as a value of a kind; a longer text is a sentence or a formula."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text read as a value of a kind."""

    kind: str
    values: frozenset[Hashable]
    """The values that the text may mean: two times without a.m. or p.m., no value for a date with month 13."""
    detail: str = ""
    """A weekday or a unit, which must agree if both texts have one."""
    closed: bool = True
    """True if only an answer of the same kind agrees. Else other rules may apply too: `4:15` may also be a ratio."""


@dataclass(frozen=True, slots=True)
class KindReader:
    """A pattern of a kind, and the function that reads its matches."""

    kind: str
    pattern: re.Pattern[str]
    read: Callable[[str, re.Match[str]], Reading | None]
    answers: bool = False
    """True if only answers are read by this pattern, because it matches too many references."""


def same_kind(gold: str, answer: str) -> bool | None:
    """Compare an answer with a reference that is a date, a time, a version or another kind of `READERS`.

    The answer is read as a value of the reference's kind. The two agree if they have a value in common, and no
    different details, such as a weekday. A numeric date disagrees with a reference of no kind.

    Returns:
        True if they agree, False if they differ, None to leave the decision to other rules.
    """
    is_number = gold.isdigit() and (gold[0] != "0" or len(gold) == 3)
    reading = None if is_number else read_kind(gold)
    if reading is None:
        return False if _NUMERIC_DATE.fullmatch(answer) else None
    flat = _flatten(answer) if len(answer) <= LONGEST_READ else ""
    candidates = (_read(reader, flat) for reader in READERS if reader.kind == reading.kind)
    answer_reading = next((candidate for candidate in candidates if candidate is not None), None)
    if answer_reading is None:
        return False if reading.closed else None
    if reading.detail and answer_reading.detail and reading.detail != answer_reading.detail:
        return False
    return not reading.values.isdisjoint(answer_reading.values)


@lru_cache(maxsize=1024)
def read_kind(text: str) -> Reading | None:
    """Return the reading of a reference, in the spelling of `plain`, by the first reader that reads it.

    The result is None if no reader does, as for a formula or a sentence. Readers that are for answers only are not
    tried.
    """
    flat = _flatten(text) if len(text) <= LONGEST_READ else "\\"
    if "\\" in flat:
        return None
    readings = (_read(reader, flat) for reader in READERS if not reader.answers)
    return next((reading for reading in readings if reading is not None), None)


_SIGNS = {
    "times": "\u00d7", "to": "\u2192", "rightarrow": "\u2192", "longrightarrow": "\u2192", "ge": "\u2265", "le": "\u2264",
}  # fmt: skip
_SIGN = re.compile(rf"\\(?:([$%#])|({'|'.join(_SIGNS)})(?![A-Za-z]))")
_NUMERIC_DATE = re.compile(r"[0-9]{4}([-/.])[0-9]{1,2}\1[0-9]{1,2}|[0-9]{1,2}([-/.])[0-9]{1,2}\2[0-9]{4}")


def _flatten(text: str) -> str:
    r"""Return a text without `\text{}` and LaTeX signs, with single spaces and without a period at its end."""
    flat = in_line(text)
    if "\\" in flat:
        flat = _SIGN.sub(lambda command: command[1] or _SIGNS[command[2]], flat)
    return flat.rstrip(".")


def _read(reader: KindReader, flat: str) -> Reading | None:
    """Return the reading of a flat text by a reader, or None if the reader does not match."""
    match = reader.pattern.fullmatch(flat)
    return reader.read(reader.kind, match) if match is not None else None


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?P<weekday>mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\.?"
_DAY = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,? (?:of )?(?P<year>[0-9]{4}))"


def _date(year: int | None, month: int, day: int) -> frozenset[Hashable]:
    """Return the set with the value (year, month, day) of a date; empty if the month is above 12 or the day above 31."""
    return frozenset({(year, month, day)} if 1 <= month <= 12 and 1 <= day <= 31 else ())


def _read_year_first(kind: str, match: re.Match[str]) -> Reading:
    """Read `2020-12-25`."""
    return Reading(kind, _date(int(match[1]), int(match[3]), int(match[4])))


def _read_month(kind: str, match: re.Match[str]) -> Reading:
    """Read `2020-12` as the month of a year."""
    return Reading(kind, frozenset({(int(match[1]), int(match[3]), 0)}))


def _read_year_last(kind: str, match: re.Match[str]) -> Reading | None:
    """Read `12/25/2020`, with the month first unless the text says otherwise.

    The day comes first if the first number is above 12, or if periods separate the numbers and the second can be a
    month. A year of two digits is from 1970 to 2069; None if such a text is no date.
    """
    first, second = int(match[1]), int(match[3])
    if first > 12 or (match[2] == "." and second <= 12):
        first, second = second, first
    year = int(match[4])
    values = _date(year if len(match[4]) == 4 else year + (2000 if year < 70 else 1900), first, second)
    return Reading(kind, values) if values or len(match[4]) == 4 else None


def _read_named_date(kind: str, match: re.Match[str]) -> Reading:
    """Read `Friday, December 25, 2020` and shorter forms with the name of a month.

    `20 June` without a year does not equal `June 20`.
    """
    fields = match.groupdict()
    year = int(fields["year"]) if fields["year"] else None
    month = _MONTHS.index(fields["month"][:3].lower()) + 1
    is_bare = year is None and fields.get("bare") is not None
    value = (year, month, int(fields.get("day") or 0), *(["bare"] if is_bare else []))
    return Reading(kind, frozenset({value}), (fields.get("weekday") or "")[:3].lower())


def _read_name(kind: str, match: re.Match[str]) -> Reading | None:
    """Read the name of a weekday or a month; three letters are a name only with a capital, as in `Mar`."""
    if len(match[0]) == 3 and not match[0].istitle():
        return None
    return Reading(kind, frozenset({match[1][:3].lower()}), closed=False)


_HALVES = {"a": 0, "p": 12, "morning": 0, "afternoon": 12, "evening": 12, "night": 12}
_CLOCK = re.compile(
    r"(?:at )?(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-5][0-9]))?(?::(?P<second>[0-5][0-9]))?"
    r"(?P<sharp> ?o'? ?clock)?(?: ?(?P<half>[apAP])\.? ?[mM]\.?| (?:in the|at) (?P<phase>morning|afternoon|evening|night))?"
    r"(?: sharp| ?h(?:ou)?rs?| ?h)?"
)


def _read_time(kind: str, match: re.Match[str]) -> Reading | None:
    """Read a time of the day as all times that it may mean; None if it is no time, such as a number alone.

    A value is (form, hour, minute, second). The forms keep apart which texts may agree: `written` for equal digits,
    `day` for a time of 24 hours, `half` for a time of 12 hours, and `hour` for an answer that is only an hour. For
    example, `9:19` may be in the morning or in the evening, and `9:19 pm` is only 21:19.

    A text such as `9:19`, whose numbers have no common factor, may also be a ratio, so its reading is not closed.
    """
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    half = (match["half"] or match["phase"] or "").lower()
    if hour > 24 or not (match["minute"] or half or match["sharp"]):
        return None
    literal = ("written", hour, minute, second)
    if half:
        if not 1 <= hour <= 12:
            return Reading(kind, frozenset({("day", hour, minute, second)}))
        exact = (hour % 12 + _HALVES[half], minute, second)
        late = half == "night" and hour in (12, *range(1, 5))
        exact = (hour % 12, minute, second) if late else exact
        values: set[Hashable] = {(name, *exact) for name in ("day", "half", "hour")}
        return Reading(kind, frozenset(values))
    if match["hour"][0] == "0" or not 1 <= hour <= 12:
        values = {literal, ("day", hour % 24, minute, second)}
    else:
        values = {literal, ("half", hour % 12, minute, second), ("half", hour % 12 + 12, minute, second)}
    ratio = match["minute"] is not None and match["minute"][0] != "0" and match["hour"][0] != "0"
    if ratio and not match["second"] and gcd(hour, minute) == 1:
        return Reading(kind if minute % 5 == 0 else "ratio", frozenset(values), closed=False)
    return Reading(kind, frozenset(values), closed=match["sharp"] is None)


def _read_hour(kind: str, match: re.Match[str]) -> Reading:
    """Read an answer like `9` to a reference that is a time: the hour in the morning or the afternoon."""
    hour = int(match[0]) % 12
    return Reading(kind, frozenset({("hour", hour, 0, 0), ("hour", hour + 12, 0, 0)}))


def _read_midday(kind: str, match: re.Match[str]) -> Reading:
    """Read `noon`, `midday` or `midnight`."""
    hour = 12 if match[1].lower() in ("noon", "midday") else 0
    return Reading(kind, frozenset({(name, hour, 0, 0) for name in ("day", "half")}))


def _read_text(kind: str, match: re.Match[str]) -> Reading:
    """Read an address, a code or a string of digits literally: the last group of the match, or the full match.

    Case and a slash at the end do not count. The reading of a code is not closed, since a code may also be a formula.
    """
    return Reading(
        kind, frozenset({match[match.lastindex or 0].casefold().rstrip("/")}), closed=kind != "code"
    )


def _read_version(kind: str, match: re.Match[str]) -> Reading | None:
    """Read a version such as `2.10.3` or an IP address; None for a number with periods between thousands (`1.234.567`)."""
    groups = match[1].split(".")
    is_address = len(groups) == 4 and all(group.isdigit() and int(group) < 256 for group in groups)
    if not is_address and _THOUSANDS.fullmatch(match[1]):
        return None
    return Reading(kind, frozenset({match[1].casefold()}))


def _read_digits(kind: str, match: re.Match[str]) -> Reading:
    """Read the digits of a telephone number without its separators."""
    return Reading(kind, frozenset({re.sub(r"[^0-9]", "", match[0])}))


_THOUSANDS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+")
_HOST = r"(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|io|info|co|uk|de|fr|cn|jp|ru|eu)"


_ROMAN = r"(?=[MDCLXVI])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})"
_ROMAN_VALUES = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
_ORDINALS = (
    "zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth", "twentieth",
)  # fmt: skip
_ORDINAL = rf"(?:[0-9]{{1,4}}(?:st|nd|rd|th)|{'|'.join(_ORDINALS)})"


def roman_value(numeral: str) -> int:
    """Return the number of a Roman numeral in capitals: 4 for `IV`."""
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _read_numeral(kind: str, match: re.Match[str]) -> Reading | None:
    """Read a Roman numeral of two letters or more; None for other texts, and for texts of only C and D, such as `CD`."""
    if not match["roman"] or len(match["roman"]) < 2 or not set(match["roman"]) - set("CD"):
        return None
    return Reading(kind, frozenset({roman_value(match["roman"])}))


def _read_small_numeral(kind: str, match: re.Match[str]) -> Reading:
    """Read a Roman numeral in small letters."""
    return Reading(kind, frozenset({roman_value(match[0].upper())}))


def _parse_ordinal(word: str) -> int:
    """Return 4 for `IV`, `4`, `4th` or `fourth`."""
    if set(word) <= set("IVX"):
        return roman_value(word)
    return int(word.rstrip("stndrhSTNDRH")) if word[0].isdigit() else _ORDINALS.index(word.lower())


def _read_labelled(kind: str, match: re.Match[str]) -> Reading:
    """Read a number with a label, such as `Quadrant IV` or `fourth quadrant`; the label is the detail."""
    fields = match.groupdict()
    number = fields["roman"] or fields.get("number") or fields.get("ordinal") or "0"
    return Reading(
        kind, frozenset({_parse_ordinal(number)}), (fields["label"] or "").casefold(), closed=False
    )


def _read_statements(kind: str, match: re.Match[str]) -> Reading | None:
    """Read a selection of numbered statements, such as `I and III` or `II only`, as a set of Roman numerals.

    The result is None for a single numeral without "only".
    """
    numerals = frozenset(re.findall(r"[IVX]+", match[1]))
    return Reading(kind, frozenset({numerals}), closed=False) if len(numerals) > 1 or match[2] else None


def _read_ordinal(kind: str, match: re.Match[str]) -> Reading:
    """Read `4th` or `fourth`."""
    return Reading(kind, frozenset({_parse_ordinal(match[1])}), closed=False)


_AMOUNT = r"[$\u20ac\u00a3]?[0-9]{1,12}(?:\.[0-9]{1,12})?(?: ?%)?"
_MEASURE = (
    r"(?P<unit> ?%| ?(?:[cmk]m|[mk]?g|m[lL]|ft|in|hrs?|min)| [mgsLh]| [A-Za-z]{3}[A-Za-z ./^0-9]{0,30})?"
)
_LENGTH = rf"{_AMOUNT}(?: ?[a-z]{{1,10}}(?= by\b))?"
_JOINT = " ?(?:[xX\u00d7]|\\bby\\b) ?"
_TABLES = "(?:matrix|matrices|grid|rectangle|board|table|array|square)s?"


def _numbers(text: str) -> tuple[str, ...]:
    """Return the numbers of a text as digits, without leading zeros and zeros at the end of decimals."""
    numbers = re.findall(r"[0-9]+(?:\.[0-9]+)?", text)
    return tuple(
        (number.lstrip("0") or "0")
        for number in (re.sub(r"(\.[0-9]*?)0+$", r"\1", n).rstrip(".") for n in numbers)
    )


def _read_sequence(kind: str, match: re.Match[str]) -> Reading:
    """Read the numbers of a size (`3 x 4`), score (`3-2`) or range (`from 3 to 4`), with a unit as the detail."""
    unit = "%" if "%" in match[0] else (match["unit"] or "").replace(".", "").strip().casefold()
    return Reading(kind, frozenset({_numbers(match["body"])}), unit.removesuffix("s"))


def _read_letters(kind: str, match: re.Match[str]) -> Reading:
    """Read capital letters in an order, such as `A-C-B`."""
    return Reading(kind, frozenset({tuple(re.findall(r"(?<!\\)\b[A-Z]\b", match[0]))}))


_COMPARATIVE = "(?:more|greater|fewer|less|above|below)"
_BOUND = "at (?:most|least)|(?:no|not) (?:more|less|fewer|greater) than|up to|(?:more|less|fewer|greater) than|over|under"
_UPPER = re.compile(
    r"most|[\u2264<]|(?:no|not) (?:more|greater)|up to|or (?:fewer|less|below)|^(?:less|fewer|under)",
    re.IGNORECASE,
)
_STRICT = re.compile("[<>]|(?<!no )(?<!not )(?:more|less|fewer|greater) than|over|under", re.IGNORECASE)


def _read_bound(kind: str, match: re.Match[str]) -> Reading:
    """Read `at least 5` or `5 or more` as a bound: whether it is an upper bound, whether it is strict, and its number."""
    phrase = match["phrase"]
    value = (bool(_UPPER.search(phrase)), bool(_STRICT.search(phrase)), _numbers(match["body"]))
    return Reading(kind, frozenset({value}), (match["unit"] or "").strip(" .").casefold())


_SPEAKABLE = re.compile(
    r"(?:[bcdfghjklmnprstvwyz]|[bcfgps]l|[bcdfgpt]r|[cstw]h|s[ckmnptw]|tw|qu)?[aeiouy]{1,2}"
    r"(?:[bcdfgklmnprstwxyz]|[cfkpx]t|ll|ss|n[dtgk]|s[tkph]|l[tdfkmp]|r[tdkmn]|ck|mp|[st]h|ff|dd|gg)?e?|[aeiou][bcdfgklmnprstvz]a"
)
_PRODUCTS = frozenset({"am", "an", "as", "at", "be", "by", "my"})
"""Words of two letters that usually are a product of variables."""
_SHORT_WORDS = frozenset({
    "do", "go", "he", "hi", "if", "in", "is", "it", "me", "no", "of", "oh", "ok", "on", "or", "ox", "so", "to",
    "up", "us", "we",
})  # fmt: skip


def _is_word(letters: str) -> bool:
    """Return whether small letters look like an English word rather than a product of variables such as `abc`.

    Two letters have to be in `_SHORT_WORDS`. Other letters have to contain an `o` or be speakable (`_SPEAKABLE`).
    """
    if len(letters) == 2:
        return letters in _SHORT_WORDS
    return "o" in letters or _SPEAKABLE.fullmatch(letters) is not None


def _read_word(kind: str, match: re.Match[str]) -> Reading | None:
    """Read two or three letters, or at least four capitals, as a word.

    Capitals such as `USA` are always a word. Small letters, and two letters of different case, are a word only if they
    look like one (`_is_word`). Otherwise they may be a product of variables (`abc`, `Fd`), and the result is None.
    Words that look like English agree in any case.
    """
    text = match[0]
    if (text.islower() or (len(text) == 2 and not text.isupper())) and not _is_word(text.lower()):
        return None
    return Reading(kind, frozenset({text, text.lower()} if _is_word(text.lower()) else {text}), closed=False)


def _read_any_word(kind: str, match: re.Match[str]) -> Reading:
    """Read any letters as an answer to a reference that is a word; case does not count for words."""
    text = match[0]
    ignores_case = len(text) > 2 or text.lower() in _SHORT_WORDS | _PRODUCTS
    return Reading(kind, frozenset({text, text.lower()} if ignores_case else {text}))


def _row(
    kind: str,
    pattern: str,
    read: Callable[[str, re.Match[str]], Reading | None],
    flags: re.RegexFlag = re.NOFLAG,
    answers: bool = False,
) -> KindReader:
    """Return a row of `READERS`.

    Args:
        kind: The kind of values, such as `date`.
        pattern: The regular expression of a text of this kind.
        read: Returns the reading of a match, or None if the text is not of this kind after all.
        flags: The flags of the regular expression.
        answers: True if only answers, not references, are read by this pattern.
    """
    return KindReader(kind, re.compile(pattern, flags), read, answers)


READERS = (
    _row("date", r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})", _read_year_first),
    _row("date", r"([0-9]{4})(-)(0[1-9]|1[0-2])", _read_month),
    _row("date", r"([0-9]{1,2})([-/.])([0-9]{1,2})\2([0-9]{4})", _read_year_last),
    _row("date", r"([0-9]{1,2})(/)([0-9]{1,2})/([0-9]{2})", _read_year_last),
    _row("date", rf"(?:on )?(?:{_WEEKDAY},? )?{_MONTH} (?:the )?{_DAY}{_YEAR}?", _read_named_date, re.I),
    _row("date", rf"(?:on )?(?:{_WEEKDAY},? )?(?:the )?{_DAY} (?:of |(?P<bare>)){_MONTH}{_YEAR}?", _read_named_date, re.I),
    _row("date", rf"(?:in )?{_MONTH}{_YEAR}", _read_named_date, re.I),
    _row("weekday", rf"(?:on )?(?!sun\Z)(?:a )?{_WEEKDAY}", _read_name, re.I),
    _row("month", rf"(?:in )?{_MONTH}", _read_name, re.I),
    KindReader("time", _CLOCK, _read_time),
    _row("ratio", rf"(?=.*(?:[apAP]\.? ?[mM]|ing|noon|night)){_CLOCK.pattern}", _read_time, answers=True),
    _row("time", r"(?:at )?(?:12 )?(noon|midday|midnight)", _read_midday, re.I),
    _row("time", "[0-9]{1,2}", _read_hour, answers=True),
    _row("address", rf"\S+@\S+\.[a-z]{{2,}}|(?:https?|ftp)://\S+|www\.\S+|{_HOST}(?:/\S*)?", _read_text, re.I),
    _row("address", r"(?=.*::|(?:.*:){5})[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}", _read_text, re.I),
    _row("address", r"#[0-9a-f]{3,8}", _read_text, re.I),
    _row("version", r"(?:v|version )?([0-9]+(?:\.[0-9]+){2,}(?:[-+:/][0-9a-z.]+)?)", _read_version, re.I),
    _row("version", r"(?:v|version )([0-9]+\.[0-9]+)", _read_version, re.I),
    _row("version", r"([0-9]+\.[0-9]+)", _read_version, answers=True),
    _row("telephone", r"(?:\+[0-9]{1,3}[ -])?(?:\([0-9]{3}\) ?|[0-9]{3}[- ])?[0-9]{3}-[0-9]{4}", _read_digits),
    _row("telephone", r"\+[0-9]{1,3}(?:[ -][0-9]{2,4}){2,5}|[0-9]{3}-[0-9]{2}-[0-9]{4}", _read_digits),
    _row("telephone", r"\+?[0-9 ().-]{7,20}", _read_digits, answers=True),
    _row("digits", r"(00|0000+|0[01]{3,60})", _read_text),
    _row("digits", r"(0[01]+)_\{?2\}?", _read_text, answers=True),
    _row("statements", r"(?:statements? )?([IVX]+(?:(?: ?, ?(?:and )?| and | ?& ?)[IVX]+)*)( only)?", _read_statements),
    _row("statements", r"([IVX]+)()", _read_statements, answers=True),
    _row("roman", rf"(?P<roman>{_ROMAN})", _read_numeral),
    _row("roman", _ROMAN.lower(), _read_small_numeral, answers=True),
    _row("labelled", r"(?P<label>[A-Za-z]{3,}(?: [A-Za-z]{3,})?) (?P<roman>[IVX]+)", _read_labelled),
    _row("labelled", r"(?:the )?(?P<label>)(?P<roman>[IVX]+)", _read_labelled, answers=True),
    _row("labelled", r"(?:the )?(?P<label>[a-z]{3,}) (?P<number>[0-9]{1,3})(?P<roman>)", _read_labelled, re.I, True),
    _row("labelled", rf"(?:the )?(?P<ordinal>{_ORDINAL}) (?P<label>[a-z]{{3,}})(?P<roman>)", _read_labelled, re.I, True),
    _row("ordinal", rf"(?:the )?({_ORDINAL})", _read_ordinal, re.I),
    _row("size", rf"(?!0[xX])(?P<body>{_LENGTH}(?: ?(?:x|X|\bby\b) ?{_LENGTH}){{1,3}}){_MEASURE}", _read_sequence),
    _row("size", rf"(?P<body>{_AMOUNT}(?:{_JOINT}{_AMOUNT})+) (?P<unit>{_TABLES})", _read_sequence),
    _row("size", rf"(?P<body>{_AMOUNT}(?:{_JOINT}{_AMOUNT}){{1,3}}){_MEASURE}", _read_sequence, answers=True),
    _row("sequence", rf"(?P<body>{_AMOUNT}(?: ?[-\u2192] ?{_AMOUNT}){{1,20}}){_MEASURE}", _read_sequence),
    _row("sequence", rf"(?:from )?(?P<body>{_AMOUNT}(?: ?(?:to|-|:) ?{_AMOUNT})){_MEASURE}", _read_sequence, answers=True),
    _row("sequence", rf"between (?P<body>{_AMOUNT}[a-z ]* and {_AMOUNT}){_MEASURE}", _read_sequence),
    _row("sequence", rf"(?P<body>\[{_AMOUNT}, ?{_AMOUNT}\]){_MEASURE}", _read_sequence, answers=True),
    _row("bound", rf"(?P<phrase>{_BOUND}) (?P<body>{_AMOUNT}){_MEASURE}", _read_bound, re.I),
    _row("bound", rf"(?P<body>{_AMOUNT})(?P<unit> [a-z ]+?)? (?P<phrase>or {_COMPARATIVE})", _read_bound, re.I),
    _row("bound", rf"(?:[a-z] ?)?(?P<phrase>[\u2265\u2264<>]) ?(?P<body>{_AMOUNT}){_MEASURE}", _read_bound, answers=True),
    _row("letters", r"[A-Z](?: ?- ?[A-Z]){2,}|[A-Z](?: ?\u2192 ?[A-Z])+", _read_letters),
    _row("letters", r"[A-Z](?: ?(?:->|[-,>\u2192]) ?[A-Z])+", _read_letters, answers=True),
    _row("word", r"[A-Za-z]{2,3}|[A-Z]{4,}", _read_word),
    _row("word", r"[A-Za-z]+", _read_any_word, answers=True),
    _row("code", r"([A-Za-z]{1,3}[0-9]{1,4}[A-Za-z]?)", _read_text),
    _row("code", r"[0-9A-Za-z]{2,8}", _read_text, answers=True),
)  # fmt: skip
