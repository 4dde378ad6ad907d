"""Which answers are right."""

from reodsl.own import Answer


def check(answers: list[Answer]) -> list[bool]:
    """Right where it is the same whole number."""
    return [_number(answer.text) == int(answer.reference) for answer in answers]


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
