"""Workers that check answers serve one test after another."""

from tests.lent import _lent_workers  # noqa: F401
