"""How well a response is written."""

from reodsl.own import Response


def score(response: Response) -> float:
    """The share of the words that are not said twice."""
    words = response.text.split()
    return len(set(words)) / max(1, len(words))
