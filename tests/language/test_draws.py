"""A greedy suite that draws a question more than once (W0534), and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language import check_file

SPEC = """from std.miniature import overthinker, chain_suite, chain_forcing

suite mine = chain_suite {{ {settings} }}

study all {{
  arm base = checkpoint(overthinker) {{ eval = mine }}
}}
"""


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ("temperature = 0", True),
        ("top_k = 1", True),
        ("temperature = 0, samples = 1", False),
        ("temperature = 1", False),
        ("top_k = 2", False),
        ("temperature = 0, forcing = chain_forcing { temperature = 0.6 }", False),
    ],
)
def test_equal_samples_are_a_warning(settings: str, warned: bool, tmp_path: Path) -> None:
    spec = tmp_path / "spec.reo"
    spec.write_text(SPEC.format(settings=settings))
    found = check_file(spec).diagnostics
    assert all(each.severity == "warning" for each in found)
    assert ("W0534" in {each.code for each in found}) is warned
