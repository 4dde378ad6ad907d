"""A folder where the quickstart ran with toys, once for all tests of commands that read results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.called import QUICKSTART, beside_quickstart, call
from tests.execute import toys


@pytest.fixture(scope="session")
def quickstart_ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patch:
        beside_quickstart(folder, toys.RUNNERS, patch)
        assert call("run", QUICKSTART, "--local", "--quiet") == 0
    (folder / "log.txt").unlink()
    return folder
