"""The published JSON Schema is that of the code."""

from __future__ import annotations

import json
import os
from pathlib import Path

from reodsl.ir import Spec

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "spec.schema.json"


def test_the_published_schema_is_current(request) -> None:  # type: ignore[no-untyped-def]
    text = json.dumps(Spec.model_json_schema(), indent=1, sort_keys=True) + "\n"
    if request.config.getoption("--update-goldens", default=False):
        PUBLISHED.write_text(text)
    assert PUBLISHED.read_text() == text, "run `make golden` and read the difference"
    assert os.path.getsize(PUBLISHED) < 220_000
