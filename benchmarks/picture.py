"""A picture of a report: a page in, the top of it as a browser draws it out, as a PNG of 1400 x 1150 pixels.

    python -m benchmarks.picture runs/quickstart-…/report.html docs/report.png

Needs Chromium, which is in most distributions (`apt-get install chromium`).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 1400, 1150
SECONDS = 120.0


def browser() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def picture(page: Path, image: Path, program: str, *, dark: bool = False) -> None:
    """Draw the top of `page` into `image`, in light or dark colours and without a network.

    The browser's own sandbox is off, as the page is one that this project draws: it does not start for root otherwise.
    """
    with tempfile.TemporaryDirectory() as profile:
        shown = Path(profile) / "page.html"
        theme = "dark" if dark else "light"
        text = page.read_text("utf-8").replace(
            '<html lang="en">', f'<html lang="en" data-theme="{theme}">', 1
        )
        shown.write_text(text, "utf-8")
        subprocess.run(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--proxy-server=127.0.0.1:9",
                f"--user-data-dir={profile}",
                f"--window-size={WIDTH},{HEIGHT}",
                "--virtual-time-budget=5000",
                f"--screenshot={image.resolve()}",
                shown.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("image", type=Path)
    asked = parser.parse_args()
    program = browser()
    if program is None:
        raise SystemExit("there is no Chromium here: apt-get install chromium")
    picture(asked.page, asked.image, program)


if __name__ == "__main__":
    main()
