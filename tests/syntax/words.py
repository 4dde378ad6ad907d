"""The words of the language, as its tests go through them."""

from reodsl.syntax.scanner import KEYWORDS

WORDS = sorted(word.lower() for word in KEYWORDS)
