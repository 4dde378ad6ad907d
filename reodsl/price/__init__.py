"""Prices: what a spec's tasks are expected to cost, by a documented model that the results of past runs correct."""

from reodsl.price.history import History, read_history
from reodsl.price.memory import sizes_at_hand
from reodsl.price.prices import choose_sharding, lower_placed, price
from reodsl.price.value import Price, Prices

__all__ = [
    "History", "Price", "Prices", "choose_sharding", "lower_placed", "price", "read_history",
    "sizes_at_hand",
]  # fmt: skip
