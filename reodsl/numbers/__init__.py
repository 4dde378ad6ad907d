"""The paper's numbers: budgets and weights, curves and frontiers, REG and its intervals. Light to import."""
