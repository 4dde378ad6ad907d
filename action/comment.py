"""Comment on a pull request: what it changes in specs by `reodsl diff`, and what running them would do by `reodsl plan`.

Reads SPECS (glob patterns), BASE (a commit), NUMBER (of the pull request), TOKEN and what GitHub sets itself.
Nothing of a spec is run. The comment of an earlier push is replaced. A token that may not comment, as in
pull requests of forks, leaves the text in the job's summary.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

MARK = "<!-- reodsl plan -->"
MOST_SPECS = 50
MOST_LETTERS = 60_000
"""GitHub takes 65,536 letters in a comment."""
FAULTY = "has errors"
REODSL = (sys.executable, "-P", "-m", "reodsl")


@dataclass(frozen=True, slots=True)
class Change:
    """What a pull request does to a spec: a line, and the texts of `diff` and `plan` or of what is wrong."""

    spec: str
    line: str
    diff: str
    plan: str


def reodsl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of reodsl, without colours and without a terminal's width."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    return subprocess.run(
        [*REODSL, *arguments], capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL
    )


def specs(patterns: str) -> list[str]:
    """The files that the patterns name and that hold a study or an experiment, hidden folders left out."""
    named = {path for pattern in patterns.split() for path in Path().glob(pattern) if path.is_file()}
    runs = re.compile(r"^(study|experiment)\s", re.MULTILINE)
    return sorted(
        path.as_posix()
        for path in named
        if not any(part.startswith(".") for part in path.parts)
        and path.suffix == ".reo"
        and runs.search(path.read_text(encoding="utf-8", errors="replace"))
    )


def change(spec: str, base: Path) -> Change | None:
    """What has changed of a spec since `base`, a folder with the repository as it was; None where nothing has."""
    before = base / spec
    diff = ""
    if before.exists():
        compared = reodsl("diff", str(before), spec)
        if compared.returncode == 0:
            return None
        diff = compared.stdout.replace(f"{base}/", "base/") if compared.returncode == 2 else ""
    planned = reodsl("plan", spec)
    if planned.returncode == 1 and planned.stdout.strip():
        # It costs more than its limit, or its questions have mistakes.
        return Change(spec, FAULTY, diff, f"{planned.stdout}\n{planned.stderr}")
    if planned.returncode == 1:
        checked = reodsl("check", spec)
        if checked.returncode == 0:  # a library: it checks, and there is nothing in it to plan
            return None
        return Change(spec, FAULTY, diff, checked.stderr or planned.stderr)
    lines = planned.stdout.strip().splitlines()
    line = next((each for each in reversed(lines) if each.startswith("Plan:")), lines[-1] if lines else "")
    return Change(spec, line if before.exists() else f"new. {line}", diff, planned.stdout)


def comment(changes: list[Change], left: int) -> str:
    """The comment in Markdown, short enough for GitHub. `left` specs were not looked at."""
    if not changes:
        return f"{MARK}\nThis pull request changes no spec's meaning.\n"
    parts = [MARK, "### What this pull request changes in specs", ""]
    parts += [f"- `{each.spec}`: {each.line}" for each in changes]
    if left:
        parts.append(f"- and {left} more specs, which were not looked at")
    room = MOST_LETTERS - sum(map(len, parts))
    for each in changes:
        for title, text in (("diff", each.diff), ("plan", each.plan)):
            shown = folded(f"{title} of {each.spec}", text)
            if text.strip() and len(shown) < room:
                parts.append(shown)
                room -= len(shown)
    return "\n".join(parts) + "\n"


def folded(title: str, text: str) -> str:
    """A text that a reader can open, in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"\n<details><summary>{title}</summary>\n\n{fence}text\n{text.strip()}\n{fence}\n\n</details>"


def ask(method: str, path: str, token: str, body: Any = None) -> Any:
    """Ask GitHub. Raises URLError."""
    root = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    request = urllib.request.Request(
        f"{root}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def post(text: str, number: str, token: str) -> None:
    """Replace the comment of an earlier push, or write the first. Raises URLError."""
    page = 1
    while comments := ask("GET", f"issues/{number}/comments?per_page=100&page={page}", token):
        for each in comments:
            if each["body"].startswith(MARK):
                ask("PATCH", f"issues/comments/{each['id']}", token, {"body": text})
                return
        page += 1
    ask("POST", f"issues/{number}/comments", token, {"body": text})


def main() -> int:
    """Write the comment to a file and the job's summary, and post it. 1 where a spec has errors."""
    base, number, token = (os.environ.get(name, "") for name in ("BASE", "NUMBER", "TOKEN"))
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "base"
        if base:
            # A shallow checkout has the head alone.
            subprocess.run(["git", "fetch", "--quiet", "--depth=1", "origin", base], capture_output=True)
            made = subprocess.run(
                ["git", "worktree", "add", "--quiet", "--detach", str(before), base],
                capture_output=True,
                text=True,
            )
            if made.returncode:
                print(f"the base {base} cannot be checked out: {made.stderr.strip()}", file=sys.stderr)
                return 1
        try:
            specs_left = iter(specs(os.environ.get("SPECS", "**/*.reo")))
            compared = (change(spec, before.resolve()) for spec in specs_left)
            changes = list(islice(filter(None, compared), MOST_SPECS))
            left = len(list(specs_left))
        finally:
            if base:
                subprocess.run(["git", "worktree", "remove", "--force", str(before)], capture_output=True)
    text = comment(changes, left)
    place = Path(os.environ.get("RUNNER_TEMP", tempfile.gettempdir())) / "reodsl-comment.md"
    place.write_text(text, encoding="utf-8")
    for variable, line in (("GITHUB_OUTPUT", f"comment={place}\n"), ("GITHUB_STEP_SUMMARY", text)):
        if os.environ.get(variable):
            with open(os.environ[variable], "a", encoding="utf-8") as file:
                file.write(line)
    if number and token:
        try:
            post(text, number, token)
        except urllib.error.URLError as refused:
            print(f"::warning::the plan is in the job's summary: GitHub takes no comment ({refused})")
    return 1 if any(each.line == FAULTY for each in changes) else 0


if __name__ == "__main__":
    sys.exit(main())
