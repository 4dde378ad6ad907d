"""Compare two answers by their text: what they are, and whether they are the same."""
