"""Type rewards: from their syntax to expressions, with the unit and range of every value."""
