"""docs/CI.md names hooks, inputs and a version that there are."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import reodsl

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "CI.md").read_text(), re.DOTALL)


def test_the_hooks_and_the_action_are_those_of_the_repository() -> None:
    hooks, workflow = (yaml.safe_load(block) for block in BLOCKS)
    known = {each["id"] for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert {each["id"] for each in hooks["repos"][0]["hooks"]} == known
    assert hooks["repos"][0]["rev"] == f"v{reodsl.__version__}"
    step = workflow["jobs"]["plan"]["steps"][-1]
    assert step["uses"].endswith(f"@v{reodsl.__version__}")
    assert set(step["with"]) <= set(yaml.safe_load((ROOT / "action.yml").read_text())["inputs"])
