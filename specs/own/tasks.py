"""What is asked."""

from random import Random

from reodsl.own import Question


def make(random: Random) -> Question:
    """A sum of two digits, modulo 10; the larger ones count twice."""
    a, b = random.randrange(10), random.randrange(1, 10)
    return Question(f"{a} a +{b} ?", str((a + b) % 10), meta={"weight": 1 if b < 5 else 2})
