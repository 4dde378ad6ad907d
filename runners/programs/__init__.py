"""Run programs that models wrote against the tests of a question, in processes that cannot decide the verdict."""
