"""The words of a reward: its functions by what they are of, and the names that only a reward knows."""

WEIGHTS = ("trapezoid", "uniform", "half_first")
AGGREGATES = ("mean", "std", "min", "max", "sum", "count", "median")
NUMERIC = ("sigmoid", "log", "exp", "sqrt", "cos", "abs", "min", "max", "clip")
RESPONSE = ("len", "correct", "answer", "mode")
FUNCTIONS = (*RESPONSE, *WEIGHTS, "before", "z", *dict.fromkeys(AGGREGATES + NUMERIC))

RESPONSE_NAMES = frozenset({"y", "x", "group", "ref", *RESPONSE, *WEIGHTS, "before"})
