r"""Read numbers as answers have them: `4.5 \times 10^{33}`, `12.5\%`, `\$1,024`, `2\frac{1}{2} \text{ cm}`, `two thirds`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from runners.grade.compare.notation import TEXT, WORDS_TO_TWENTY, in_line

Dimension = tuple[tuple[str, int], ...]
MOST_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measurement."""

    dimension: Dimension
    """The powers of base quantities, such as length 1 and time -1 for km/h."""
    size: Fraction
    """The number of base units, such as meters per second, in the unit."""


_PREFIXES = {
    "k": 3, "M": 6, "G": 9, "T": 12, "m": -3, "u": -6, "\u00b5": -6, "\u03bc": -6, "n": -9, "p": -12, "f": -15,
}  # fmt: skip
_WORD_PREFIXES = {"kilo": 3, "mega": 6, "giga": 9, "milli": -3, "micro": -6, "nano": -9, "pico": -12}

_WITH_PREFIXES: tuple[tuple[str, tuple[str, ...], str, Mapping[str, int]], ...] = (
    ("m", ("meter", "metre"), "1", {"length": 1}),
    ("g", ("gram",), "0.001", {"mass": 1}),
    ("s", ("second",), "1", {"time": 1}),
    ("J", ("joule",), "1", {"mass": 1, "length": 2, "time": -2}),
    ("eV", ("electronvolt",), "1.602176634e-19", {"mass": 1, "length": 2, "time": -2}),
    ("cal", ("calorie",), "4.184", {"mass": 1, "length": 2, "time": -2}),
    ("W", ("watt",), "1", {"mass": 1, "length": 2, "time": -3}),
    ("N", ("newton",), "1", {"mass": 1, "length": 1, "time": -2}),
    ("Pa", ("pascal",), "1", {"mass": 1, "length": -1, "time": -2}),
    ("Hz", ("hertz",), "1", {"time": -1}),
    ("C", ("coulomb",), "1", {"charge": 1}),
    ("A", ("ampere", "amp"), "1", {"charge": 1, "time": -1}),
    ("V", ("volt",), "1", {"mass": 1, "length": 2, "time": -2, "charge": -1}),
    ("\u03a9", ("ohm",), "1", {"mass": 1, "length": 2, "time": -1, "charge": -2}),
    ("F", ("farad",), "1", {"mass": -1, "length": -2, "time": 2, "charge": 2}),
    ("T", ("tesla",), "1", {"mass": 1, "time": -1, "charge": -1}),
    ("mol", ("mole",), "1", {"amount": 1}),
    ("L", ("liter", "litre"), "0.001", {"length": 3}),
    ("l", (), "0.001", {"length": 3}),
    ("pc", ("parsec",), "3.0856775814913673e16", {"length": 1}),
    ("K", ("kelvin",), "1", {"temperature": 1}),
)
"""Units that take prefixes: symbol, names, size in base units, powers of base quantities."""
_WITHOUT_PREFIXES: tuple[tuple[tuple[str, ...], str, Mapping[str, int]], ...] = (
    (("cm", "centimeter", "centimetre"), "0.01", {"length": 1}),
    (("in", "inch", "inche"), "0.0254", {"length": 1}),
    (("ft", "foot", "feet"), "0.3048", {"length": 1}),
    (("yd", "yard"), "0.9144", {"length": 1}),
    (("mi", "mile"), "1609.344", {"length": 1}),
    (("\u00c5", "\u212b", "angstrom"), "1e-10", {"length": 1}),
    (("AU", "au"), "1.495978707e11", {"length": 1}),
    (("ly", "lightyear"), "9.4607304725808e15", {"length": 1}),
    (("min", "minute"), "60", {"time": 1}),
    (("h", "hr", "hour"), "3600", {"time": 1}),
    (("day", "d"), "86400", {"time": 1}),
    (("week",), "604800", {"time": 1}),
    (("month",), "1", {"month": 1}),
    (("year", "yr"), "12", {"month": 1}),
    (("sec",), "1", {"time": 1}),
    (("lb", "pound"), "0.45359237", {"mass": 1}),
    (("oz", "ounce"), "0.028349523125", {"mass": 1}),
    (("ton", "tonne"), "1000", {"mass": 1}),
    (("erg",), "1e-7", {"mass": 1, "length": 2, "time": -2}),
    (("dyn", "dyne"), "1e-5", {"mass": 1, "length": 1, "time": -2}),
    (("M", "molar"), "1000", {"amount": 1, "length": -3}),
    (("atm",), "101325", {"mass": 1, "length": -1, "time": -2}),
    (("bar",), "100000", {"mass": 1, "length": -1, "time": -2}),
    (("mph",), "0.44704", {"length": 1, "time": -1}),
    (("kph", "kmh"), "5/18", {"length": 1, "time": -1}),
    (("dollar", "buck", "USD", "$"), "1", {"money": 1}),
    (("cent", "penny", "pennie", "\u00a2"), "0.01", {"money": 1}),
    (("euro", "EUR", "\u20ac"), "1", {"euro": 1}),
    (("GBP", "\u00a3"), "1", {"sterling": 1}),
    (("rupee", "INR", "\u20b9", "Rs"), "1", {"rupee": 1}),
    (("yuan", "CNY", "RMB", "\u00a5", "\u5143"), "1", {"yuan": 1}),
    (("won", "KRW", "\u20a9"), "1", {"won": 1}),
    (("ruble", "rouble", "RUB", "\u20bd"), "1", {"ruble": 1}),
    (("Msun",), "1.98892e30", {"mass": 1}),
    (("Lsun",), "3.828e26", {"mass": 1, "length": 2, "time": -3}),
    (("Rsun",), "6.957e8", {"length": 1}),
    (("rad", "radian"), "1", {"angle": 1}),
)
"""Units without prefixes: names, size in base units, powers of base quantities."""


def _dimension(quantities: Mapping[str, int]) -> Dimension:
    """Return the dimension with these powers of base quantities, sorted and without powers of 0."""
    return tuple(sorted((name, power) for name, power in quantities.items() if power))


def _all_units() -> dict[str, Unit]:
    """Return all units by their symbols and names, including those with a prefix and plurals."""
    units: dict[str, Unit] = {}
    for symbol, words, size, quantities in _WITH_PREFIXES:
        dimension, value = _dimension(quantities), Fraction(size)
        for prefix, power in {"": 0, **_PREFIXES}.items():
            units.setdefault(prefix + symbol, Unit(dimension, value * Fraction(10) ** power))
        for word in words:
            for prefix, power in {"": 0, **_WORD_PREFIXES}.items():
                for ending in ("", "s"):
                    units[prefix + word + ending] = Unit(dimension, value * Fraction(10) ** power)
    for names, size, quantities in _WITHOUT_PREFIXES:
        for name in names:
            unit = Unit(_dimension(quantities), Fraction(size))
            units[name] = unit
            if len(name) > 1:
                units.setdefault(name + "s", unit)
    units["hertz"] = units["Hz"]
    return units


_UNITS = _all_units()
_TIMES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "squared": 2, "cubed": 3}
_TOKEN = re.compile(
    r"\s*+(?:(?P<per>/|per(?![A-Za-z]))|\\cdot|\*|(?:(?P<before>square|sq|cubic|cu)\s++)?"
    r"(?P<unit>[A-Za-z\u00b5\u03bc\u03a9\u00c5\u212b]++|[$\u20ac\u00a3\u20b9\u00a5\u20a9\u20bd\u00a2\u5143])"
    r"\s*+(?:\^\{?(?P<power>-?[0-6])\}?|(?P<after>squared|cubed)(?![A-Za-z]))?)"
)
_IN_TEXT = re.compile(r"\\(?:text|mathrm)\{((?:[^{}]|\{[^{}]*+\})*+)\}")
_SUN = re.compile(r"([MLR])_ ?\{? ?\\odot ?\}?")
_QUOTIENT = re.compile(r"\\frac\{([^{}]*+)\}\{([^{}]*+)\}")


@lru_cache(maxsize=4096)
def unit_of(text: str) -> Unit | None:
    r"""Return the unit that a text names, such as `\text{ km/h}`, `cm^2` or `\mathrm{erg s^{-1}}`; None for other texts.

    A product or quotient of units is combined into one unit: powers of base quantities are added, and sizes are
    multiplied. After `/` or `per`, all units that follow are divided by (the local `sign`).
    """
    if len(text) > MOST_CHARACTERS:
        return None
    text = _QUOTIENT.sub(r"\1 / \2 ", _SUN.sub(r"\1sun ", _IN_TEXT.sub(r" \1 ", text)))
    text = text.replace(".", " ").replace(r"\$", "$").replace(r"\Omega", "\u03a9").strip()
    position, sign, size = 0, 1, Fraction(1)
    powers: dict[str, int] = {}
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        position, word = token.end(), token["unit"]
        if word is None:
            sign = -1 if token["per"] else sign
            continue
        unit = _UNITS.get(word) or _UNITS.get(word.lower() if len(word) > 3 else word)
        if unit is None:
            return None
        power = sign * _TIMES.get(token["before"], 1) * int(token["power"] or _TIMES.get(token["after"], 1))
        size *= unit.size**power
        for name, exponent in unit.dimension:
            powers[name] = powers.get(name, 0) + exponent * power
    return Unit(_dimension(powers), size) if powers else None


LARGEST_POWER = 999
"""The largest power of ten that is read here; computer algebra gets larger powers."""
FEWEST_DIGITS = 3
"""The fewest significant digits of a decimal reference with which an exact answer that rounds to it agrees."""
APPROXIMATIONS = frozenset({Fraction(22, 7), Fraction(355, 113)})
"""Fractions that people write instead of pi, so that they do not count as exact."""

_WHOLE = (
    r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,60}+(?![0-9])|[0-9]{1,3}(?: [0-9]{3}){1,60}+(?! ?[0-9])|[0-9]{1,200}+)"
)
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?) ?(?:(?P<money>(?:US)?\\?\$|US[D$]|[\u20ac\u00a3\u00a5\u20b9\u20a9\u20bd]|EUR|GBP|CNY|RMB|INR"
    rf"|Rs\.?) ?)?(?P<late>-?)(?:"
    rf"(?P<before>[0-9]{{0,12}}+)\.(?P<once>[0-9]{{0,12}}+)\\overline\{{(?P<over>[0-9]{{1,12}})\}}"
    rf"|(?:(?P<mixed>[0-9]{{1,12}}) ?)?\\frac\{{ ?(?P<top>[+-]?[0-9]{{1,60}}) ?\}}\{{ ?(?P<bottom>[+-]?[0-9]{{1,60}}) ?\}}"
    rf"|(?:(?P<beside>[0-9]{{1,12}}) )?(?P<left>[0-9]{{1,60}})\.? ?/ ?(?P<right>[+-]?[0-9]{{1,60}})(?![0-9.])"
    rf"|(?P<whole>{_WHOLE})(?:\.(?P<decimals>[0-9]{{0,200}}+))?"
    rf"|\.(?P<fraction>[0-9]{{1,200}}+)"
    r")",
    re.ASCII,
)
_POWER = re.compile(
    r" ?(?:(?:\\times|\\cdot|\*|[xX])\s?(?:10|\{10\}) ?\^ ?(?:[{(] ?([+-]?[0-9]{1,6}) ?[})]|([+-]?[0-9]{1,6}))"
    r"|(?:[eE]|\\(?:text|mathrm)\{ ?[eE] ?\})(?:\{([+-]?[0-9]{1,6})\}|([+-]?[0-9]{1,6})))(?![0-9])"
)
_DOTS = re.compile(r" ?\\ldots(?![A-Za-z])")
_REPEATED = re.compile(r"([0-9]{0,12}?)([0-9]{1,6}?)\2+")
_TEN = re.compile(r"([+-]?) ?(?:10|\{10\}) ?\^ ?(?:\{ ?([+-]?[0-9]{1,6}) ?\}|([+-]?[0-9]{1,6})(?![0-9]))")
_PERCENT = re.compile(
    r"(?:\\?%|\\(?:text|mathrm)\{ ?(?:\\?%|percent(?:age)?|per cent|pct)\.? ?\}|percent(?:age)?|per cent|pct)",
    re.IGNORECASE,
)
_THEN = re.compile(
    r"(?<=[a-z])\.?(?:,? and|,)? (?=[0-9.]+ ?[A-Za-z])|(?<=[0-9][hm])(?=[0-9]+ ?(?:m|s)[a-z]*$)"
)
_LETTER = re.compile(r"(?<=[0-9]) ?([A-Za-z])$")
_HOURS_OR_SECONDS = re.compile(r"[0-9] ?(?:h|hrs?|hours?|s|secs?|seconds?)\.?$")
_DEGREES = re.compile(r"\s*(?:\^\\circ|deg(?:ree)?s?)\.?\s*([CF]|celsius|fahrenheit)?\s*", re.IGNORECASE)
_SCALES = {
    letter: Unit(((name, 1),), Fraction(1)) for letter, name in (("c", "celsius"), ("f", "fahrenheit"))
}
_BASE = re.compile(r"_(?:\{ ?(?:\\(?:text|mathrm)\{ ?)?([a-z]+|[0-9]{1,2}) ?\}?\}|([0-9]))")
_LETTERED = re.compile(
    r"(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9]|[A-F]+_(?:\{ ?)?16)([0-9A-Za-z]{2,40})_(?:\{ ?)?([0-9]{2})(?: ?\})?"
)
_ORDINAL = re.compile(r"\^?\{?(?:\\(?:text|mathrm)\{ ?)?(?:st|nd|rd|th)\}?\}?")
_WRAPPED = re.compile(r"\\(?:text|mathrm|frac)\{")


@dataclass(frozen=True, slots=True)
class MeasuredQuantity:
    """A number with its unit and the way in which it is written."""

    value: Fraction
    """The number without its percent sign, degree sign and unit."""
    is_integer: bool
    """True if the number is written as an integer, so that only equal numbers agree with it."""
    rounded: bool
    """True if the number has decimals or a power of ten, so that numbers within a tolerance agree with it."""
    percent: bool = False
    """True if a percent sign follows the number."""
    degrees: bool = False
    """True if a degree sign follows the number."""
    unit: Unit | None = None
    """The unit, or None if the number has no known unit."""
    base: int | None = None
    """The base of the digits, or None if the text names no base."""
    digits: str = ""
    """The digits before the decimal point as the text has them."""
    counted: bool = False
    """True if words after the number say what is counted."""
    unended: bool = False
    """True for decimals that end in dots and do not repeat, so that the exact number is unknown."""
    step: Fraction = Fraction(0)
    """The value of 1 in the last digit of a rounded number with at least `FEWEST_DIGITS` digits, else 0."""

    @property
    def exact(self) -> bool:
        """Return whether the number is written as an exact fraction, and not one that approximates pi."""
        return not self.rounded and self.value.denominator > 1 and self.value not in APPROXIMATIONS

    def allowance(self, tolerance: Fraction, exact: bool) -> Fraction:
        """Return the largest accepted distance of an answer from this reference.

        An exact answer, such as 1/3, may also differ by half a unit of the reference's last digit, if the tolerance is
        not 0.

        Args:
            tolerance: The accepted distance relative to this number.
            exact: True if the answer is exact.
        """
        return max(tolerance * abs(self.value), self.step / 2 if exact and tolerance else Fraction(0))


def quantity(text: str, *, reference: bool = False) -> MeasuredQuantity | None:
    """Return the number, with its unit, that a text in the spelling of `notation.plain` is; None for another text.

    Special forms are tried first: numbers with a prefix for their base, angles with minutes, sums of units, digits in a
    base above 10, and a power of ten alone. Otherwise the text is a number (`_NUMBER`), with optional dots, power of
    ten, word for a scale ("million"), and suffix (`_add_suffix`).

    Args:
        text: Digits with a sign, decimals, a fraction, a power of ten, a percent sign, a currency or a unit; also several
            units (`1 hour 30 minutes`), a number in another base (`0x1F`), and degrees with minutes.
        reference: True for a reference, in which letters directly after a number are variables and no unit.
    """
    text = text.strip(" ")
    if "'" in text:
        text = _FEET.sub(r"\1 ft \2 in", text)
    if "." in text:
        text = _POINTS.sub(_without_points, text)
    flat = in_line(text)
    special = _read_prefixed(flat) if flat[:1] == "0" else _read_arc(text) if "'" in text else None
    if special is not None:
        return special
    parts = _THEN.split(flat)
    if len(parts) > 1:
        return _sum_units([quantity(part, reference=reference) for part in _spell_out_minutes(parts)])
    # Digits with letters in a base above 10, such as `1F_{16}`.
    lettered = _LETTERED.fullmatch(text if "\\" not in text else TEXT.sub(r"\1", text))
    if lettered is not None and 10 < int(lettered[2]) <= 36:
        digits = lettered[1].upper()
        if all(int(digit, 36) < int(lettered[2]) for digit in digits):
            value = Fraction(int(digits, int(lettered[2])))
            return MeasuredQuantity(value, True, False, base=int(lettered[2]), digits=digits)
    power_alone = _TEN.match(text)
    if power_alone is not None:
        exponent = int(power_alone[2] or power_alone[3])
        if abs(exponent) > LARGEST_POWER:
            return None
        value = (-1 if power_alone[1] == "-" else 1) * Fraction(10) ** exponent
        return _add_suffix(MeasuredQuantity(value, False, False), text[power_alone.end() :], reference)
    number = _NUMBER.match(text)
    if number is None:
        return None
    parsed, sign = _parse_digits(number), number["sign"] + number["late"]
    if parsed is None or len(sign) > 1:
        return None
    value, digits = parsed
    decimals = number["decimals"] or number["fraction"] or ""
    rounded, unended, step = bool(decimals.strip("0")), False, Fraction(1, 10 ** len(decimals))
    dots, end = _DOTS.match(text, number.end()), number.end()
    if dots is not None:
        if not decimals and number["over"] is None:
            return None
        # `0.333\ldots` repeats for ever, `3.14\ldots` is an unended decimal.
        repeated = _REPEATED.fullmatch(decimals)
        rest = (
            Fraction(int(repeated[2]), (10 ** len(repeated[2]) - 1) * 10 ** len(decimals)) if repeated else 0
        )
        value += rest
        unended, rounded, end = not (rest or number["over"]), True, dots.end()
    power = _POWER.match(text, end)
    if power is not None and number["over"] is None:
        exponent = int(next(part for part in power.groups() if part is not None))
        if abs(exponent) > LARGEST_POWER:
            return None
        value, rounded, end = value * Fraction(10) ** exponent, True, power.end()
        step *= Fraction(10) ** exponent
    integer = value.denominator == 1 and not rounded
    scale = _SCALE.match(text, end)
    if scale is not None:
        times = _POWERS[scale[1]]
        value, step, end = value * times, step * times, scale.end()
        if "{" in scale[0] and "}" not in scale[0]:
            text = text[:end] + r"\text{" + text[end:]
        integer = value.denominator == 1
    money = number["money"]
    money = None if money is None else unit_of("$" if "$" in money or money == "USD" else money)
    step *= rounded and len((digits + decimals).lstrip("0")) >= FEWEST_DIGITS
    value = -value if sign == "-" else value
    amount = MeasuredQuantity(value, integer, rounded, unit=money, digits=digits, unended=unended, step=step)
    return _add_suffix(amount, text[end:], reference)


_POINTS = re.compile(
    r"\A([+-]?)([0-9]{1,3}(?:\.[0-9]{3})+)(?:,([0-9]{1,12})|(?<=\.[0-9]{3}\.[0-9]{3}))(?![0-9.,])"
)
_FEET = re.compile(r"\A([0-9]{1,4})' ?([0-9]{1,2}(?:\.[0-9]+)?)(?:''|\")\Z")
_MINUS = re.compile("(?:negative|minus) (?!negative|minus)", re.IGNORECASE)
_PREFIXED = re.compile(r"0([xXbBoO])([0-9A-Fa-f]{1,64})")
_PREFIXES_OF_BASES = {"x": 16, "b": 2, "o": 8}
_ARC = re.compile(
    r"(-?)([0-9]{1,4}) ?\^\\circ ?([0-9]{1,2}(?:\.[0-9]{1,9})?) ?'(?!') ?(?:([0-9]{1,2}(?:\.[0-9]{1,9})?) ?(?:''|\"))?"
)


def _without_points(number: re.Match[str]) -> str:
    """Return `1234.56` for the match `1.234,56` of `_POINTS`."""
    return f"{number[1]}{number[2].replace('.', '')}{'.' + number[3] if number[3] else ''}"


def _read_prefixed(text: str) -> MeasuredQuantity | None:
    """Return the number that `0x1F`, `0b101` or `0o17` is; None for another text, also with digits beyond the base."""
    match = _PREFIXED.fullmatch(text)
    if match is None:
        return None
    base, digits = _PREFIXES_OF_BASES[match[1].lower()], match[2].upper().lstrip("0") or "0"
    if any(int(digit, 16) >= base for digit in digits):
        return None
    return MeasuredQuantity(Fraction(int(digits, base)), True, False, base=base, digits=digits)


def _read_arc(text: str) -> MeasuredQuantity | None:
    r"""Return an angle of degrees, minutes and seconds as degrees: 12.51 for `12^\circ 30' 36''`.

    The seconds may be missing. The result is None for another text, and for 60 minutes or more.
    """
    match = _ARC.fullmatch(text)
    if match is None or float(match[3]) >= 60:
        return None
    degrees = int(match[2]) + Fraction(match[3]) / 60 + Fraction(match[4] or 0) / 3600
    return MeasuredQuantity(-degrees if match[1] else degrees, False, False, degrees=True)


def read_number(text: str, reference: bool = False) -> MeasuredQuantity | None:
    """Return the number that a text is in digits or in words, with its unit; None for another text.

    Args:
        text: The text in the spelling of `notation.plain`.
        reference: True for a reference, which is no number if more words follow a number in words.
    """
    return quantity(text, reference=reference) or _quantity_in_words(text, reference)


def _quantity_in_words(text: str, reference: bool) -> MeasuredQuantity | None:
    """Return the number, with its unit, that a text is in words, such as `minus three meters`; None for another text.

    Args:
        text: The text in the spelling of `notation.plain`.
        reference: True for a reference, which is no number if more words follow the number.
    """
    if not text[:1].isalpha() and text[:5] != r"\text":
        return None
    words = in_line(text)
    signed = _MINUS.match(words)
    if signed is not None:
        positive = read_number(words[signed.end() :], reference)
        return positive and replace(positive, value=-positive.value)
    spoken = number_in_words(words)
    if spoken is None or (spoken[1] and reference):
        return None
    number = MeasuredQuantity(spoken[0], spoken[0].denominator == 1, False)
    return _add_suffix(number, f" {spoken[1]}", reference) if spoken[1] else number


def same_quantity(reference: MeasuredQuantity, answer: MeasuredQuantity, tolerance: Fraction) -> bool:
    """Return whether an answer's number agrees with a reference's number.

    If both have a unit, the units must have the same dimension, and the answer is converted. If the reference names a
    base, the digits must be the same, and the answer may leave the base out. For a reference of 50%, both 50 and 0.5
    are right; for a reference of 0.5, 50% is right.

    If only the answer names a base, the base must be 10. The numbers must be equal if the reference is an integer
    without a percent sign, or if neither number is rounded. Otherwise they may differ by the reference's `allowance`.

    Args:
        reference: The number of the reference.
        answer: The number of the answer.
        tolerance: The largest accepted distance, relative to the reference.
    """
    if answer.base is not None and reference.base is None:
        return answer.base == 10 and reference.value == answer.value
    if reference.base is not None:
        bases = {number.base for number in (reference, answer) if number.base is not None}
        return len(bases) == 1 and reference.digits == answer.digits and bool(reference.digits)
    if answer.unit in _SCALES.values() and reference.unit is None:
        return False
    if reference.unit in _SCALES.values() and answer.degrees:
        answer = replace(answer, degrees=False)
    scale = Fraction(1)
    if reference.unit is not None and answer.unit is not None:
        if reference.unit.dimension != answer.unit.dimension:
            return False
        scale = answer.unit.size / reference.unit.size
    if (reference.degrees and answer.unit is not None) or (answer.degrees and reference.unit is not None):
        return False
    values = [answer.value * scale]
    gold = reference.value
    if answer.percent and not reference.percent:
        values = [answer.value / 100]
    elif reference.percent and not answer.percent:
        values = [answer.value, answer.value * 100]
    elif reference.percent:
        values = [answer.value]
    if answer.unended and not reference.unended and gold in values:
        return False
    needs_equality = (reference.is_integer and not reference.percent) or not (
        reference.rounded or answer.rounded
    )
    allowed = reference.allowance(tolerance, answer.exact)
    return any(gold == value or (not needs_equality and abs(gold - value) <= allowed) for value in values)


def _sum_units(terms: Sequence[MeasuredQuantity | None]) -> MeasuredQuantity | None:
    """Return the sum of numbers such as 1 hour and 30 minutes, in the unit of the first.

    The result is None if a term is no number or has no unit, if two terms have the same unit, or if the units have
    different dimensions.
    """
    units = [term.unit for term in terms if term is not None and term.unit is not None]
    if len(units) < len(terms) or len({unit.dimension for unit in units}) > 1 or len(set(units)) < len(units):
        return None
    sizes = [term.value * unit.size for term, unit in zip(terms, units, strict=True) if term is not None]
    return MeasuredQuantity(sum(sizes, Fraction(0)) / units[0].size, False, False, unit=units[0])


def _spell_out_minutes(texts: Sequence[str]) -> list[str]:
    r"""Return the parts of a time or measure such as `2 h` and `15 m` with their unit in `\text{}`.

    The unit `m` becomes `min` if another part has hours or seconds.
    """
    has_time = any(map(_HOURS_OR_SECONDS.search, texts))
    return [
        _LETTER.sub(
            lambda letter: r"\text{ min}" if has_time and letter[1] == "m" else rf"\text{{ {letter[1]}}}",
            text,
        )
        for text in texts
    ]


def _parse_digits(number: re.Match[str]) -> tuple[Fraction, str] | None:
    """Return the value of a match of `_NUMBER` without its sign, and its digits before the decimal point.

    The digits are without separators, and "" for fractions, repeating decimals, and decimals such as `.5`. The result
    is None if a denominator is 0, or if the fraction of a mixed number is not from 0 to below 1.
    """
    if number["over"] is not None:
        before, fixed, over = number["before"] or "0", number["once"] or "", number["over"]
        repeated = Fraction(int(over), (10 ** len(over) - 1) * 10 ** len(fixed))
        return Fraction(f"{before}.{fixed or 0}") + repeated, ""
    if number["whole"] is not None:
        integer = number["whole"].replace(",", "").replace(" ", "")
        decimals = number["decimals"]
        return (Fraction(int(integer)) if not decimals else Fraction(f"{integer}.{decimals}")), integer
    if number["fraction"] is not None:
        return Fraction(f"0.{number['fraction']}"), ""
    below = int(number["bottom"] or number["right"])
    if below == 0:
        return None
    frac, mixed = (Fraction(int(number["top"] or number["left"]), below), number["mixed"] or number["beside"])
    if mixed is None:
        return frac, ""
    return (int(mixed) + frac, "") if 0 <= frac < 1 else None


def _add_suffix(number: MeasuredQuantity, suffix: str, reference: bool) -> MeasuredQuantity | None:
    """Return a number with the meaning of the text after it: percent, degrees, a base, a unit, or a counted noun.

    Args:
        number: The number.
        suffix: The text after the number, beginning with a space if there is one.
        reference: True for a reference, in which letters directly after a number are variables.

    Returns:
        The number with its new meaning. None if number and suffix together are no number, such as `3 or 4` and `2x`.
    """
    has_gap = suffix[:1] == " "
    suffix = suffix.strip(" ")
    if not suffix:
        return number
    if _PERCENT.fullmatch(suffix):
        return replace(number, percent=True)
    degrees = _DEGREES.fullmatch(TEXT.sub(r"\1", suffix))
    if degrees is not None:
        letter = degrees[1]
        return (
            replace(number, degrees=True)
            if letter is None
            else replace(number, unit=_SCALES[letter[0].lower()])
        )
    base = _BASE.fullmatch(suffix)
    if base is not None and number.digits and number.value.denominator == 1:
        base_text = base[1] or base[2]
        base_value = int(base_text) if base_text.isdigit() else _CARDINALS.get(base_text)
        return None if base_value is None else replace(number, base=base_value)
    if _ORDINAL.fullmatch(suffix):
        return number if number.is_integer else None
    wrapped = _WRAPPED.match(suffix)
    has_mark = not suffix.isascii() or suffix[0] in r"\$("
    if wrapped is None and not has_gap and not has_mark and (reference or len(suffix) < 2):
        return None
    unit = unit_of(suffix)
    if unit is not None and (wrapped is not None or has_mark or len(suffix) > 1):
        return replace(number, unit=unit)
    # Words that are no unit say what is counted, unless they change the number: `3 or 4`, `3 times`.
    if _SAYS.fullmatch(suffix) and not _CHANGES_NUMBER.search(suffix):
        return number
    words = in_line(suffix)
    if _COUNTER.fullmatch(words):
        return None if _CHANGES_NUMBER.search(words) else number
    if words[:1] == "(" and words[-1:] == ")":
        words = words[1:-1].strip(" ")
    if not _NOUNS.fullmatch(words) or _CHANGES_NUMBER.search(words.lower()):
        return None
    return replace(number, unit=number.unit or _first_unit(words), counted=True)


def _first_unit(words: str) -> Unit | None:
    """Return the unit that is the first of the words after a number, skipping words such as "total"; None if it is no unit.

    A unit of one or two letters does not count.
    """
    first = next((word for word in words.split(" ") if word.lower() not in _FILLERS), "")
    return unit_of(first) if len(first) > 2 else None


_SCALE = re.compile(r" ?(?:\\(?:text|mathrm)\{ ?)?(thousand|million|billion|trillion)(?![A-Za-z])(?: ?\})?")
_SAYS = re.compile(r"(?:\\text\{[^{}0-9\\]*\}(?:\^(?:\{-?\d\}|-?\d))? ?)+")
_NOUNS = re.compile(
    r"(?:[A-Za-z][a-z]{3,}|[A-Za-z]?[b-df-hj-np-tv-z][aeiouy][a-z]|per|sq|egg|all|old|ago"
    r"|ant|owl|o'clock|in(?= )|of(?= )|on(?= )|a(?= ))"
    r"(?:[ ,'/.-]+(?:[A-Za-z]{2,}|a)){0,12}\.?"
)
"""Words after a number that may be a counted noun: the first has four letters, or three that can be spoken."""
_COUNTER = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af/]{1,8}"
    r"|[\u0400-\u04ff\u0590-\u06ff\u0900-\u0dff\u0e00-\u0eff .]{1,40}(?:\^\{?[23]\}?)?"
)
_FILLERS = frozenset({"total", "more", "extra", "additional", "full", "whole", "other", "different"})
_CHANGES_NUMBER = re.compile(
    r"\b(?:and|or|to(?! [a-z]{2})|thousand|hundred|million|billion|trillion|if|when|unless|except|not|no|than|times|squared"
    r"|cubed|plus|minus|over(?! the)|less"
    r"|percent|percentage|pct|factorial|choose|mod|modulo|divided|multiplied|half|halves|quarters?|thirds?|root|sin|cos|tan|cot|sec|csc|log|exp|sqrt|lcm"
    r"|gcd|pi"
    r"|alpha|beta|gamma|delta|theta|sigma|omega|lambda|phi|psi|rho|tau|infinity|for [a-z]|zero|one|two|three|four|five"
    r"|six|seven"
    r"|eight|nine|ten|eleven|twelve)\b|\u5343(?![\u7c73\u514b])|\u0438\u043b\u0438|\u0442\u044b\u0441|\u043c\u043b\u043d|\u043c\u0438\u043b\u043b\u0438|\u043c\u043b\u0440\u0434|\u043f\u0440\u043e\u0446\u0435\u043d\u0442|[\u4e07\u4ebf\u5104\u842c\u767e\u5341\u534a\u6216\u548c\u500d]"
)


_GAP = r"(?:\s|~|\\[ ,;:]|\\q?quad)++"
_ONE_OF_SEVERAL = r"(?:\\[dt]?frac\{[0-9]++\}\{[0-9]++\}|[0-9]++(?:[./][0-9]++)?)"
_IN_BRACKETS = rf"(?:\\left)?[(\[]\s*+[+-]?{_ONE_OF_SEVERAL}\s*+(?:\\right)?[)\]]"
_SEVERAL = re.compile(
    rf"[+-]?(?:{_ONE_OF_SEVERAL}|{_IN_BRACKETS})(?:(?:{_GAP})?{_IN_BRACKETS}|(?:{_GAP}|(?<=[)\]])){_ONE_OF_SEVERAL})+"
)


def several(text: str) -> bool:
    """Return whether a text is several numbers with only spaces or brackets between them, such as `3 (4)`.

    Such a text is no answer, because it may be a sum, a product, a list or a mixed number. math-verify would add the
    numbers or read only the first. A text that `quantity` reads as a single number, such as `1 000`, does not count.
    """
    return _SEVERAL.fullmatch(text) is not None and quantity(text) is None


_UNIT_AFTER = re.compile(r" ?((?:\\(?:text|mathrm)\{(?![eEid]\})[^{}]*+\}(?:\^(?:\{-?\d\}|-?\d))? ?){1,6})$")
_BARE_UNIT = re.compile(
    r"(?:(?<=\\pi) |(?<=[})]) ?)((?:(?:square|cubic|sq) )?(?:[cmk]m|ft|in|yd|mi|kg|mg|mL|[a-z]{4,12})(?:(?:/| per )[a-z]+)?"
    r"(?:\^(?:\{[23]\}|[23]))?)$"
)


def without_unit(text: str) -> tuple[str, Unit | None, str]:
    """Separate an expression from the unit or words at its end.

    Words that are no unit are removed only if they are in `text`, after a space inside it.

    Returns:
        The expression, the unit (None if it is unknown), and the text that was removed ("" if there is none).
    """
    after = _UNIT_AFTER.search(text) or _BARE_UNIT.search(text)
    if after is None or after.start() == 0:
        return text, None, ""
    unit = unit_of(after[1].strip(" "))
    if unit is None and (
        after.re is _BARE_UNIT or r"\mathrm" in after[1] or not after[1].startswith(r"\text{ ")
    ):
        return text, None, ""
    return text[: after.start()].strip(" "), unit, after[1]


def number_text(value: Fraction, rounded: bool) -> str:
    """Return a number as LaTeX for computer algebra: decimals if it is `rounded`, else an integer or a fraction."""
    sign = "-" if value < 0 else ""
    if rounded:
        digits, power = f"{float(abs(value)):.15e}".split("e")
        return rf"{sign}{digits} \cdot 10^{{{int(power)}}}"
    if value.denominator == 1:
        return str(value.numerator)
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


MOST_WORDS = 24
"""The most words of a number; a text with more is a sentence."""
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CARDINALS = {word: value for value, word in enumerate(WORDS_TO_TWENTY)} | {
    word: 10 * value for value, word in enumerate(_TENS, 2)
}
_POWERS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SHARES = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12, "fifteenth": 15, "sixteenth": 16, "twentieth": 20,
    "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
_ALL = {
    *_CARDINALS,
    *_POWERS,
    *_SHARES,
    *(f"{word}s" for word in _SHARES),
    "hundred",
    "dozen",
    "and",
    "a",
    "an",
}
_BETWEEN = re.compile(r"[ -]+")


def number_in_words(text: str) -> tuple[Fraction, str] | None:
    """Return the number in words at the start of a text, and the words after it.

    The result is None if the text does not start with a number, or if the number has more than `MOST_WORDS` words.
    """
    words = _BETWEEN.split(text.strip())
    count = next((index for index, word in enumerate(words) if word.lower() not in _ALL), len(words))
    if count > MOST_WORDS:
        return None
    while count and words[count - 1].lower() in ("and", "a", "an"):
        count -= 1
    value = _value_of_words([word.lower() for word in words[:count]])
    return None if value is None else (value, " ".join(words[count:]))


def _value_of_words(words: list[str]) -> Fraction | None:
    """Return the value of lower-case number words such as `two and a half` or `three dozen`; None if they are no number."""
    if not words or words == ["a"]:
        return None
    if words[-1] == "dozen":
        # `a dozen` alone may mean about twelve, and is no number.
        count = _value_of_words(words[:-2] if words[-2:-1] == ["a"] and len(words) > 2 else words[:-1])
        return None if count is None else 12 * count
    share = _SHARES.get(words[-1]) or _SHARES.get(words[-1].removesuffix("s"))
    return _fraction_in_words(words, share) if share is not None else _cardinal(words)


def _fraction_in_words(words: list[str], denominator: int) -> Fraction | None:
    """Return the value of `two thirds` or `two and a half`; None for an ordinal such as `third` alone.

    The word `half` alone is 1/2.

    Args:
        words: The words, of which the last names the denominator.
        denominator: The denominator, such as 3 for `thirds`.
    """
    numerator = words[:-1]
    integer = Fraction(0)
    if "and" in numerator:
        index = len(numerator) - 1 - numerator[::-1].index("and")
        before = _cardinal(numerator[:index])
        if before is None:
            return None
        integer, numerator = before, numerator[index + 1 :]
    if not numerator:
        return Fraction(1, 2) if denominator == 2 and not integer else None
    if numerator in (["a"], ["an"]):
        return integer + Fraction(1, denominator)
    count = _cardinal(numerator)
    return None if count is None else integer + count / denominator


def _cardinal(words: list[str]) -> Fraction | None:
    """Return the integer that words such as `three`, `hundred`, `and`, `forty`, `two` are; None for another order of words.

    The local `group` is the number below 1000 that is being read, `total` is the sum of the groups before it, each
    times its power of 1000, `last` is the power of the group before, and `before` is the word before.
    """
    total = group = 0
    last = 10**15
    before = ""
    for word in words:
        if word == "and":
            if before not in ("hundred", *_POWERS):
                return None
        elif word in ("a", "an"):
            if before:
                return None
            group = 1
        elif word in _POWERS:
            if not group or _POWERS[word] >= last:
                return None
            total, group, last = total + group * _POWERS[word], 0, _POWERS[word]
        elif word == "hundred":
            if not 0 < group < 100:
                return None
            group *= 100
        elif word in _CARDINALS:
            value = _CARDINALS[word]
            limit = 100 if before in ("", "and", "hundred", *_POWERS) else 10
            if (before in _CARDINALS and (_CARDINALS[before] < 20 or value >= 10)) or value >= limit:
                return None
            group += value
        else:
            return None
        before = word
    return None if not before or before in ("and", "a", "an") else Fraction(total + group)
