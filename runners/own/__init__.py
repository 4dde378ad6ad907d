"""Functions and environments that a spec brings in Python, run in confined processes.

Nothing is imported here: a confined process starts with this package, and what the parent needs would take it half a
second.
"""
