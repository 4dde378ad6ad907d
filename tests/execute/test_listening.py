"""No process of a run listens beyond the loopback, from its first moment to its last."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.bad_input.commands import SPEC
from tests.listening import LOOPBACK, heard

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", [("--local",), ()], ids=["one process", "Ray"])
def test_no_process_of_a_run_listens_beyond_the_loopback(tmp_path: Path, how: tuple[str, ...]) -> None:
    (tmp_path / "tiny.reo").write_text(SPEC)
    reodsl = Path(sys.executable).with_name("reodsl")
    run = subprocess.Popen(
        [str(reodsl), "run", "tiny.reo", "--quiet", *how], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    seen = set()
    while run.poll() is None:
        seen |= heard(psutil.Process(run.pid))
        # To look takes as long as a tenth of this.
        time.sleep(0.3)
    assert run.returncode == 0, run.communicate()[1]
    assert seen <= LOOPBACK
    # Ray's own, which shows that they are seen; in one process nothing listens at all.
    assert bool(seen) == (not how)
