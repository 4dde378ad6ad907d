"""Addresses of pages and headings that moved, and the anchors that headings have."""

from __future__ import annotations

import json
import re
from pathlib import Path

MOVED = {
    "COOKBOOK.md#compare-with-published-numbers": "EVALUATE.md#published-frontiers-and-tables",
    "COOKBOOK.md#methods-of-the-paper": "METHODS.md#the-papers-tables",
    "COOKBOOK.md#methods-elsewhere": "METHODS.md",
    "IMPORT.md": "EVALUATE.md",
    "IMPORT.md#kinds-of-curves": "EVALUATE.md#kinds-of-curves",
    "IMPORT.md#responses-of-any-model": "EVALUATE.md#logs-of-other-tools",
    "IMPORT.md#what-a-table-gives": "EVALUATE.md#what-a-table-gives",
    "IMPORT.md#in-a-spec": "EVALUATE.md#imported-results-in-a-study",
    "IMPORT.md#answers-forced-out-of-texts": "EVALUATE.md#force-answers-from-texts",
    "IMPORT.md#a-model-behind-an-address": "EVALUATE.md#a-model-served-by-vllm-or-sglang",
}
"""Each address that moved, and where it leads now."""
GONE = {old for old in MOVED if "#" not in old}
"""Pages that moved as a whole: a line in their file says where to."""


def slug(title: str) -> str:
    """Return the anchor that a heading has."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower())).strip("-")


def slugs(text: str) -> list[str]:
    """Return the anchors of a text's headings."""
    return [slug(each) for each in re.findall(r"^#+ (.*)$", text, flags=re.M)]


def redirects() -> str:
    """Return the script that leads from each address that moved to the new one."""
    table = {old.replace(".md", ".html"): new.replace(".md", ".html") for old, new in MOVED.items()}
    return (
        f"const moved = {json.dumps(table, indent=2)};\n"
        "const old = location.pathname.split('/').pop();\n"
        "const now = moved[old + location.hash] || moved[old];\n"
        "if (now) location.replace(now);\n"
    )


def write_moved_pages(html: Path) -> None:
    """Write a page for each that moved, which leads on with and without a script."""
    for old in GONE:
        now = MOVED[old].replace(".md", ".html")
        html.joinpath(old.replace(".md", ".html")).write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved</title>'
            f'<script src="moved.js"></script><meta http-equiv="refresh" content="0; url={now}">'
            f'<p>This page has moved: <a href="{now}">{now}</a>.</p></html>\n'
        )
