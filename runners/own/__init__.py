"""Functions and environments in Python that a spec names, run in the sandbox.

This file imports nothing: a sandboxed process imports this package, and the imports of its parent would take half a second.
"""
