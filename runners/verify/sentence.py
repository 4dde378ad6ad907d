r"""Read what a sentence gives as an answer: a value with its unit, a choice, or words; nothing where several could be meant.

Mathematics in it is hidden, each piece behind one character. What follows words such as "the answer is" is read; else, in
this order: an opinion (yes), what is in bold, and of the part that concludes (`_clause`) a choice, the end of a chain of
equations, a time of day, the last value after a verb, the only value that is no aside, the words after "is".
"""

from __future__ import annotations

import re

from runners.verify.notation import WORDS_TO_TWENTY, plain
from runners.verify.quantity import quantity, unit_of

FIRST_MASK, MASK = 0xE100, "\ue100-\uf8ff"
"""Characters that stand for the mathematics of a sentence, in its order."""
LEADS = re.compile(
    r"(?<!find the )(?<!get the )(?<!compute the )(?<!determine the )(?<!check the )(?<!wrong )(?<!incorrect )"
    r"(?:\b(?:answers?|ans\.?(?=[ :=])|(?:correct|best|right) (?:option|choice|statement|response|result|answer)s?)"
    r"(?: (?:to|for|of) [^.:\n]{1,60}?|,? then,)?(?:\*\*)?\s*(?:(?:we (?:get|seek|want) )?(?:is|are|was|must be"
    r"|should be|will be|comes? (?:out )?to|equals|becomes)\b(?! not\b)|[:=]|[-\u2013\u2014](?= ))"
    r"|(?<=ans)\.(?= )|\*\*(?:final )?answer\*\*|(?:^|\n)[#*\s]*(?:the )?(?:final )?answer[*\s]*(?=\n)"
    r"|\b(?:respuesta|r\u00e9ponse|antwort|l\u00f6sung|resposta|risposta|\u043e\u0442\u0432\u0435\u0442|odpowied\u017a"
    r"|jawaban|antwoord|cevap|\u0111\u00e1p (?:\u00e1n|s\u1ed1))(?: [^\W\d]{4,})?"
    r"(?::| ?[=\u2013\u2014]| (?:es|est|ist|lautet|\u00e9|\u00e8|\u044d\u0442\u043e|to|is|adalah|l\u00e0)\b)"
    r"|(?:\u7b54\u6848|\u7b54\u3048|\u7b54|\uc815\ub2f5|\ub2f5|[\u6545\u5e94\u61c9]?[\u9009\u9078]\u62e9?)"
    r"(?:[\u662f\u4e3a\u70ba\u9009\u9078\u306f\uc740\ub294:]+ ?|(?= ?\(?[A-J]+\b)))[\s*:]*",
    re.IGNORECASE,
)
"""Words after which the answer follows, in the languages of the benchmarks."""
_WIDE = str.maketrans("\uff08\uff09\uff1a\uff0e\uff0c\uff1b", "():.,;")
_END = re.compile(
    r"(?:\u3067\u3059|\uc785\ub2c8\ub2e4|\uc774\ub2e4)?[\s.!\u25a0\u25a1\u220e\u2713\u2714\u2705\u3002]*\Z"
)
_SPARE = re.compile(f"[{MASK}]")
_FUNCTION = r"(?:sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|arcsin|arccos|arctan|gcd|lcm|max|min)(?![A-Za-z])"
_TOKEN = (
    rf"(?:[{MASK}]|\\?[$\u20ac\u00a3\u00a5\u20b9](?=[-\d.])"
    r"|(?!\d[\d,.]*-[A-Za-z]{2}|\d+(?:st|nd|rd|th)\b(?!\W*\Z))(?<![A-Za-z]{2})\d(?:\d|[,.:](?=\d)"
    r"|\{,\}(?=\d))*+(?: ?[apAP]\.?[mM]\b|(?:st|nd|rd|th)\b)?"
    rf"|\.(?=\d)|{_FUNCTION}|\\[A-Za-z]++|\\[%{{}}]|(?<![A-Za-z\u2019'])[A-Za-z](?:'(?=\()|(?![A-Za-z\u2019']))"
    r"|[-+\u2212\u2013\u00d7\u00b7*/^_=<>\u2260\u2264\u2265\u2248\u00b1\u00f7\u221a\u222a\u2229\u2208|!%\u00b0'\u03c0\u221e\u2205\u211d\u2124\u00bc-\u00be\u2150-\u215e"
    r"\u2070\u00b9\u00b2\u00b3\u2074-\u209c\u207a\u207b:]"
    r"|[(\[{\u27e8](?:(?![A-Za-z]{4})[^()\[\]{}\n]|\((?:(?![A-Za-z]{4})[^()\n]){0,60}\)){1,120}[)\]}\u27e9])"
)
_RUN = rf"(?:(?!(?:a|A|I|s) [^=+<>-])(?:{_TOKEN}(?: (?={_TOKEN}))?)++)"
_JOIN = r"(?:,? (?:and|or) (?:also )?(?:by )?|, |; | ?[\u6216\u548c\u3001] ?)"
_GROUP = re.compile(rf"{_RUN}(?:{_JOIN}{_RUN})*+")
_VALUE = re.compile(
    rf"[\d{MASK}\u03c0\u221e\u2205\u00bc-\u00be\u2150-\u215e]|[=<>\u2264\u2265\u221a]|\\[A-Za-z]{{2}}|\("
)
_QUANTITIES = (
    "total distance sum product difference value area volume ratio probability profit cost length perimeter speed average "
    "amount count radius height width price mean median remainder answer result maximum minimum form set measure number age "
    "balance rate slope coefficient weight mass temperature equation point pair function option choice angle"
).replace(" ", "|")
"""Nouns that have a value."""
_VERBS = (
    "is are was were be equals? becomes? gives? yields? gets? got obtain(?:s|ed)? have has had finds? found conclude see "
    "costs? takes? took pays? paid needs? needed sold sells? earn(?:s|ed)? makes? made spends? spent save[sd]? weighs? "
    "eats? ate reads? travel(?:s|l?ed) walk(?:s|ed) contains? receives? bought works? uses? used holds? leaves? leaving "
    "ends? remains? score[sd]? lasts? requires? totals? therefore"
).replace(" ", "|")
"""Verbs before a value, and words that do their work."""
_VERB = re.compile(
    rf"(?:(?<!\bto )\b(?:{_VERBS}|(?:simplif(?:y|ies|ied)|reduces?|evaluates?|comes?|amounts?|sums?|adds? up|leads?|factors?"
    r"|corresponds?|converges?|expands?|works? out|brings us|takes us|land) (?:to|as|into|on|out to)"
    r"|(?:left|up) with|(?:reduced|increased|decreased|dropped|rises?|rose|fell|grew|changed?) by)\b"
    rf"|\b(?:{_QUANTITIES})s?(?: of\b|:)|:(?= ))"
    r"(?: (?!(?:for|in|from|after|per|with|when|if|than|over|during|until|within|before|between|among|of|but|not|and"
    r"|or|by|on)\b)[A-Za-z'\u2019]+| (?:given|described|represented) by| of the form){0,4}:? ?\Z",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    rf"(?<=\s)(?:for(?! all [{MASK}])|of|in|over|from|out of|at|within|after|during|per|by|with|between|among|than"
    rf"|to|on|every|each)"
    rf" (?:(?:all|the|these|those|each|every|his|her|their|its|a|an|of|only|first|next|last) )*{_RUN}"
)
_PLACED = re.compile(r"\b(?:at|to|with|on)(?: about| exactly)? \Z")
_BOUND = re.compile(
    r"(?:\A|\b(?:answer|value|\w) (?:is|must be) )at (?:least|most)[ :]*\Z|\b(?:(?:greater|less|more|fewer|larger"
    r"|smaller|higher|lower) than|never|between)[ :]*\Z",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"\A(?:(?:so|thus|hence|therefore|then|now|finally|and|overall|altogether|in total|in conclusion|consequently"
    r"|also),? )*"
    r"(?:since|because|as|if|when|for|by|after|before|given|using|with|from|let|in|on|at|at first|combining"
    r"|[a-z]{2,}ing)\b[^,]{1,300}, (?:then )?",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"[,;]? \(?(?:where|since|because|when(?:ever)?|provided|assuming|including|so that|such that|just as|with equality"
    r"|as (?:required|desired|long|we|it|the|there|shown|expected|well|before)"
    r"|given|according|not|rather|instead|(?:after|before)(?!.* is )|while|if(?! and only)|unless|but|whose|whom|(?<=, )who"
    r"|(?<=[,;] )(?:both|each|all)|which(?! (?:simplif|reduce|give|equal|evaluate|come|become|mean|in turn"
    r"|is (?:the same as|equal)))"
    r"|rounded|to the nearest|or (?:about|approximately|roughly|equivalently)|that is|i\.e\.|i\. ?e|namely"
    r"|also written|\u2014|\u2013 )(?![A-Za-z])"
    r"|;(?= )|\u2014"
)
_RESTATES = re.compile(
    r"[,;]? \(?(?:i\.e\.|that is,?|namely|or equivalently|or simply|in other words),? "
    r"|,? (?:if,? and only if,?|iff|(?:exactly|precisely) (?:when|if)) "
)
_SO = re.compile(
    r"(?:(?:[,;:]| and)? (?:so|hence|therefore|thus|which means(?: that)?|meaning(?: that)?)"
    r"|(?:[,;:]| and) (?:giving(?: us)?|making|leaving(?: (?:him|her|them|us|[A-Z][a-z]+))?(?: with)?)"
    r"|, a (?:total|difference|sum) of) |[,\uff0c\u3002](?:\u5373|\u6240\u4ee5|\u6545|\u56e0\u6b64) ?"
)
_DENIED = re.compile(
    r"(?:\A|, | and | but | so |; )(?:both |[Ss]ince )*(?:[Oo]ptions? |[Cc]hoices? )?"
    r"\(?[A-J]\b(?:,? and [Oo]?\w* ?[A-J]\b|, [A-J]\b|\))* (?:is|are|can be|must be) (?:both |all )?"
    r"(?:wrong|incorrect|false|eliminated|ruled out|excluded|not)\b[^,;]*?(?=,|;| and |\Z)"
)
_AT_WHERE = re.compile(rf"\bat [^,]*[\d{MASK}][^,]*, where [^,]*[\d{MASK}]")
_TIME = re.compile(r"\d{1,2}:\d\d(?: ?[ap]\.?m)?\.?|\d{1,2} ?[ap]\.?m\.?", re.IGNORECASE)
_APART = re.compile(r"[,;]|\b(?:and|or|when|if|until)\b")
_LABELLED = re.compile(
    r"(?:So|Thus|Hence|Therefore)\b|(?!sin|cos|tan|log|gcd|lcm)[A-Z]?[a-z]{2,}[A-Za-z' ]*(?::| =) (?=.)"
)
_FOR_ALL = re.compile(
    rf",? for (?:all|every|any|each) (?:real |positive |nonnegative |complex )*(?:numbers? |values? of )?(?:[{MASK}]"
    rf"|[a-z]\b)"
)
_BASE = re.compile(r",?(?: written)? \(?(?:in )?base[- ](\d{1,2}|[a-z]{3,6})\)?")
_HALF = re.compile(r" in the (?:(morning)|afternoon|evening)")
_BOLD = re.compile(
    r"\*\*(?=\S)((?:(?!\*\*).){1,400}?)(?<=\S)\*\*|(?<!\w)__(?=\S)([^_\n]{1,200})(?<=\S)__(?!\w)"
)
_STRONG = re.compile(r"</?(?:b|strong)>", re.IGNORECASE)
_OPINION = re.compile(
    r"\W*(?:(?:so|thus|hence|therefore|then|and),? )?(yes|no|true|false)(?=\W*\Z|[,.:;!\u2014]|\*\*| \u2014| - )",
    re.IGNORECASE,
)
_CHOICE = re.compile(
    r"\b(?:[Oo]ptions?|[Cc]hoices?|answers?|[Ss]tatements?|pick|choose|select)(?: (?:is|are|must be))?(?: (?:option"
    r"|choice)s?)?:? \(?([A-J](?:\)?(?:,? and|,) \(?[A-J])*)(?![A-Za-z\u2019'])\)?"
    r"|(?:\A(?:[Ss]o|[Tt]hus|[Hh]ence|[Tt]herefore),? |\b[Ii]t's |\bgo with |: )\(?([A-J])\)?(?=\Z|:)"
    r"|(?:\A|\s)\(?([A-J])\)? is (?:the )?(?:correct|right|best|only)|(?:\bis|\bare|\A)[ :]+(?:\(([A-J])\)"
    r"|([B-HJ])(?=\)|\Z|[.:]\s))|\A\(?([A-J])(?:[).:] |\)?\Z)"
)
_WORDS = re.compile(
    r"\A(?:(?:So|Thus|Hence|Therefore),? )?((?!The|It|This|That|He|She|There)[A-Z][a-z]+) (?:is|was) the (?:[a-z]+ ?){1,3}\Z"
    r"|\b(?:is|are|was|were|be|has|have|becomes?|equals?|on|called|named|finished|there exists?)\s+(?:(?:therefore|thus"
    r"|actually|called|always|a|an|the|on|in)\s+)*((?:(?!that |who )[^\W\d_][^\s]*\s*){1,5})(?:(?:that|who) .*)?\Z"
)
_ARTICLES = re.compile(
    r"\A(?:(?:[Tt]he|a|an|[Aa]bout|approximately|exactly|simply|just|only|that|therefore|thus|then|equal to|given by"
    r"|option|choice|point|indeed)[ :]+)+(?=\S)"
)
_MEASURED = re.compile(
    r" ?(?!in [a-z])([A-Za-z\u00b5\u03a9]+(?:\^?[23\u00b2\u00b3])?(?:[ /][A-Za-z]+(?:\^?[23\u00b2\u00b3])?){0,3})"
)
_SPELT_UNITS = {
    "percent": "\\%", "percentage": "\\%", "pct": "\\%", "degrees": "^\\circ",
    **{scale: f" {scale}" for scale in ("thousand", "million", "billion", "trillion", "dozen")},
}  # fmt: skip
_NO_LETTERS = re.compile(
    r"\\(?:frac|dfrac|cdot|times|sqrt|div|left|right|text|mathrm|pi|begin|end|[a-z]*matrix|binom)(?![A-Za-z])"
)
_SEVERAL_UNITS = re.compile(r"\d+(?:\.\d+)? ?[A-Za-z]+(?:(?:,? and|,)? ?\d+(?:\.\d+)? ?[A-Za-z]+)+")
_IS = re.compile(r"\b(?:is|are|was|were|has|have|equals?)\b")
_SHORT = re.compile(r"(?:(?:no|all|only|both|neither|infinitely) )?\S+(?: \S+){0,2}\Z", re.IGNORECASE)
_SYSTEM = re.compile(rf"[^\n]*:\s*((?:\n[-* ]*[A-Za-z]\w? ?= ?{_RUN}[.,]? *){{2,}})\s*")
_FORMS = (
    (r"\bratio\b", r"(\d+) to (\d+)", r"\1:\2"),
    (r"\b(?:probability|chances?|odds)\b", r"(\d+) (?:out of|in) (\d+)", r"\1/\2"),
)
"""A subject, how people write a value of it, and how mathematics does."""
_COMPUTED = re.compile(r"\\(?:int|lim|sum|prod|det|frac ?\{ ?d)(?![A-Za-z])")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_COUNTS = {word: at for at, word in enumerate(WORDS_TO_TWENTY)} | {
    word: 10 * at for at, word in enumerate(_TENS, 2)
}
_COUNT = re.compile(
    rf"(?<!the )(?<!these )(?<!those )(?<!hundred )(?<!hundred and )(?<!thousand )(?<![-\w])"
    rf"(?:({'|'.join(_TENS)})(?:[- ]({'|'.join(WORDS_TO_TWENTY[1:10])}))?"
    rf"|(?:(?<=exactly )|(?<=only )|(?<=just )|(?<=is )|(?<=are ))(one)"
    rf"|(zero|{'|'.join(WORDS_TO_TWENTY[2:20])}))"
    rf"(?![-\w]| (?:hundred|half|halves|thirds?|quarters?|[a-z]+ths?)\b)",
    re.IGNORECASE,
)


def read_sentence(sentence: str, hidden: list[str]) -> tuple[str, bool]:
    """Return the answer in a sentence, of which `hidden` is the mathematics, and whether it says that this is the answer."""
    sentence = _END.sub("", _STRONG.sub("**", sentence.translate(_WIDE)))
    *_, mark = [None, *LEADS.finditer(sentence)]
    if mark is not None:
        rest = sentence[mark.end() :].strip().removesuffix("**")
        if rest:
            return _restored(_of_phrase(_in_digits(rest)), hidden), True
        sentence = sentence[: mark.start()]
    return _restored(_of_sentence(_in_digits(sentence)), hidden), False


def _in_digits(sentence: str) -> str:
    """Return a sentence without numbers with those that it has in words."""
    if re.search(rf"[\d{MASK}]", sentence):
        return sentence
    return _COUNT.sub(
        lambda count: str(sum(_COUNTS[word.lower()] for word in count.groups() if word)), sentence
    )


def _restored(answer: str, hidden: list[str]) -> str:
    """Return an answer with its mathematics."""
    members = re.split(_JOIN, answer)
    if len(members) > 1:
        sides = [_restored(member, hidden) for member in members]
        values = [side.rpartition("=")[2].strip() for side in sides]
        if all(_right_side(side) != side for side in sides):
            return values[-1]
        exact = {
            (number := quantity(plain(value))) and number.value / (100 if number.percent else 1)
            for value in values
        }
        if len(exact) == 1 and None not in exact:
            return values[0]
    alone = len(_SPARE.findall(answer)) == 1
    return _SPARE.sub(lambda mask: _in_line(hidden[ord(mask[0]) - FIRST_MASK], alone), answer).strip()


def _in_line(mathematics: str, alone: bool) -> str:
    """Return mathematics without its marks, and without a left side that only says what was computed."""
    inner = re.sub(r"\A(?:\$\$?|\\[\[(])|(?:\$\$?|\\[\])])\Z", "", mathematics).strip().rstrip(".,;").strip()
    return _right_side(inner) if alone else f"${inner}$"


def _right_side(equation: str) -> str:
    """Return the last side of an equation whose other sides say what was computed; another text as it is."""
    left, equals, right = equation.rpartition("=")
    if not equals or not left or left[-1] in r"<>!\\":
        return equation
    computed = _COMPUTED.search(left) or not re.search(rf"[A-Za-z{MASK}\u03b8]", _NO_LETTERS.sub("", left))
    middle = left.rpartition("=")[2]
    chained = (
        "=" in left
        and not _APART.search(middle)
        and (re.search(r"\d", middle) or not re.search("[A-Za-z]", _NO_LETTERS.sub("", middle)))
        and quantity(plain(right))
    )
    return right.strip() if computed or chained else equation


def _of_phrase(phrase: str) -> str:
    """Return the answer in the words that follow "the answer is"."""
    bold = _bold(phrase)
    if bold and phrase.find(bold) < 40:
        return bold
    phrase = re.sub(r"\*\*|`", "", phrase).strip()
    choice = re.match(r"(?:\\text\{)?\(?([A-J])(?:\)[.:]?|[.:])(?= |\Z)|([A-J])\Z", phrase)
    if choice is not None:
        return choice[1] or choice[2]
    phrase = _ARTICLES.sub("", phrase)
    phrase = _restated(phrase)
    group = _GROUP.match(phrase)
    if group is not None and _VALUE.search(group[0]):
        return _with_unit(phrase, group)
    cut = _AFTER.search(phrase)
    short = phrase[: cut.start()] if cut else phrase
    if len(short.split()) <= 5 and not re.search(rf"[\d{MASK}]", short):
        return short.rstrip(" ,")
    return _of_sentence(phrase)


def _of_sentence(sentence: str) -> str:
    """Return the answer of a sentence by itself; empty where several values remain."""
    opinion = _OPINION.match(sentence)
    if opinion is not None:
        return opinion[1]
    if bold := _bold(sentence):
        return bold
    sentence = re.sub(
        r"\*\*|`| \((?![^()]*\b(?:option|choice)\b)[^()]*[a-z]{3}[^()]* [^()]*\)(?=[.,;]|\Z)", "", sentence
    ).strip()
    if _AT_WHERE.search(sentence):
        return ""
    kept = _DENIED.sub("", sentence).strip(" ,;")
    sentence = kept if _CHOICE.search(kept) else sentence
    for subject, form, written in _FORMS:
        sentence = re.sub(form, written, sentence) if re.search(subject, sentence) else sentence
    clause = _clause(sentence)
    choices = list(_CHOICE.finditer(clause))
    if choices:
        return next(each for each in choices[-1].groups() if each)
    if system := _SYSTEM.fullmatch(clause):
        return ", ".join(line.strip("-* .,") for line in system[1].strip().split("\n"))
    clause = " ".join(clause.split())
    chosen, several = _chosen(clause)
    words = _WORDS.search(clause)
    if words is not None and (words[1] or words[2])[0].isupper() and not words[0].startswith("on "):
        chosen, several = None, False
    if chosen is not None:
        return _with_unit(clause, chosen)
    if several or (re.search(r"\d", clause) and words is None):
        return ""
    if words is not None:
        return (words[1] or words[2]).strip(" ,")
    return clause if _SHORT.match(clause) and not _IS.search(clause) else ""


def _chosen(clause: str) -> tuple[re.Match[str] | None, bool]:
    """Return the values that a clause gives as an answer, if there are such, and whether it has any values."""
    groups = [group for group in _GROUP.finditer(clause) if _VALUE.search(group[0])]
    joined = _SEVERAL_UNITS.match(clause, groups[0].start()) if groups else None
    if joined is not None and groups[-1].start() < joined.end():
        groups = groups[:1]
    led = [group for group in groups if _VERB.search(clause, max(0, group.start() - 120), group.start())]
    free = groups
    if not led:
        aside = [(found.start(), found.end()) for found in _ASIDE.finditer(clause)]
        free = [each for each in groups if not any(start < each.start() < end for start, end in aside)]
    if len(groups) == 1:
        start = groups[0].start()
        placed = re.match(r"\\?[$\u20ac\u00a3]", groups[0][0]) or _PLACED.search(
            clause, max(0, start - 40), start
        )
        free = groups if placed else free
    chosen = (_outcome(clause, groups) if groups else None) or (
        led[-1] if led else free[0] if len(free) == 1 else None
    )
    if chosen is not None and _BOUND.search(clause, max(0, chosen.start() - 40), chosen.start()):
        chosen = None
    return chosen, bool(groups)


def _outcome(clause: str, groups: list[re.Match[str]]) -> re.Match[str] | None:
    """Return what a chain of equations computes, or the time of day that a clause comes to; None where it has neither."""
    equals = clause.rfind("=")
    chain = (clause.count("=") > 1) + (groups[-1][0][0] == "=") + bool(re.search(r"\d", clause[:equals])) > 1
    last = _GROUP.search(clause, equals + 1) if chain else groups[-1]
    ends = last is not None and (chain or _TIME.fullmatch(last[0].strip()))
    return last if last and ends and not _APART.search(clause[groups[0].start() : last.start()]) else None


def _clause(sentence: str) -> str:
    """Return the part of a sentence that concludes, without what leads to it or explains it."""
    shorter = _FOR_ALL.sub("", sentence)
    sentence = shorter if _VALUE.search(shorter) else sentence
    *_, so = [None, *_SO.finditer(sentence)]
    if so is not None and re.search(rf"[\w{MASK}]", sentence[so.end() :]):
        sentence = sentence[so.end() :]
    sentence = _restated(sentence)
    sentence = _BEFORE.sub("", sentence) or sentence
    for cut in _AFTER.finditer(sentence):
        before = sentence[: cut.start()]
        if _VALUE.search(before) or _IS.search(before) or not _VALUE.search(sentence):
            return before
    return sentence


def _restated(text: str) -> str:
    """Return what follows "that is" or "if and only if" where only that has a value, or has it as mathematics."""
    said = _RESTATES.search(text)
    if said is None:
        return text
    left, right = text[: said.start()], text[said.end() :]
    values = any(kind.search(right) and not kind.search(left) for kind in (_VALUE, _SPARE))
    return right if values else text


def _bold(sentence: str) -> str:
    """Return what is in bold, joined where only `and`, `or` or a comma is between; nothing where it is a label."""
    bolds = [bold for bold in _BOLD.finditer(sentence) if not (bold[1] or bold[2]).rstrip().endswith(":")]
    if not bolds:
        return ""
    last = len(bolds) - 1
    while last and re.fullmatch(_JOIN, sentence[bolds[last - 1].end() : bolds[last].start()]):
        last -= 1
    inner = (bolds[-1][1] or bolds[-1][2]).rstrip(" .,;")
    if last < len(bolds) - 1:
        return re.sub(r"\*\*", "", sentence[bolds[last].start() : bolds[-1].end()])
    if len(inner.split()) > 6 or _LABELLED.match(inner):
        return _of_sentence(inner)
    mark = LEADS.search(inner)
    inner = inner[mark.end() :] if mark else inner
    tail = _tail(sentence, bolds[-1].end())
    return inner + tail if tail[:1] == "_" or re.fullmatch(rf"[\d.,:/{MASK} -]+", inner) else inner


def _with_unit(clause: str, group: re.Match[str]) -> str:
    """Return a group of values as an answer: the first of equal ones, with its unit, its base or a percent sign."""
    value = group[0].strip(" ,;:")
    value = value.removesuffix("(").strip()
    several = _SEVERAL_UNITS.match(clause, group.start())
    if several is not None:
        whole = quantity(plain(several[0]))
        if (whole is not None and whole.unit is not None) or " and " in several[0]:
            return several[0]
    value = re.sub(r"\A[=:\u2248]+ ?", "", _right_side(value))
    return value + _tail(clause, group.end())


def _tail(clause: str, end: int) -> str:
    """Return the base, the half of the day or the unit that a clause names after a value."""
    base, half, measured = (mark.match(clause, end) for mark in (_BASE, _HALF, _MEASURED))
    if base is not None:
        return f"_{{{base[1]}}}"
    if half is not None:
        return " AM" if half[1] else " PM"
    return _unit(measured[1]) if measured is not None else ""


def _unit(words: str) -> str:
    """Return the unit that words begin with, as text after a number; nothing where they only say what is counted."""
    each = words.translate({0xB2: "^2", 0xB3: "^3"}).split(" ")
    if each[0].lower() in _SPELT_UNITS:
        return _SPELT_UNITS[each[0].lower()]
    compound = each[0] in ("square", "cubic", "sq") or any(word == "per" or "/" in word for word in each)
    for count in range(len(each) if compound else 1, 0, -1):
        if unit_of(" ".join(each[:count])) is not None:
            return f" \\text{{ {' '.join(each[:count])}}}"
    return ""
