"""Lets the tests of this folder use the small studies and the toy runners."""

from __future__ import annotations

import sys
from pathlib import Path

for _folder in ("graph", "execute", "store"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / _folder))
