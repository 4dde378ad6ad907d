"""Results of others: their forms, and their rows as one table of responses."""
