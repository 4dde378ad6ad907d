"""Take the folders of this machine out of a spec that others see."""

from __future__ import annotations

import json
import os
import re
from pathlib import PurePosixPath

from reodsl.ir import Spec
from reodsl.ir.base import dumped, values_of
from reodsl.ir.data import File
from reodsl.ir.model import Folder

_NAMED = re.compile(r'\b(?:folder|file)\(\s*"(/[^"\\]*)"')


def placeless(spec: Spec) -> Spec:
    """Return the spec with relative paths in the place of absolute ones, in its settings and in its text alike.

    A path below the spec's folder starts there, any other is its last name, with as many before it as tell it from the
    others. What else in the text is below the user's folder starts with `~`.
    """
    named = [each.path for each in values_of(spec.study, Folder)]
    named += (each.path for each in values_of(spec.study, File))
    # Declarations that the study does not use have paths too.
    named += (path for text in spec.sources.values() for path in _NAMED.findall(text))
    files = (spec.folder, spec.path, *spec.sources, *(each.path for each in spec.origins.values()))
    paths = {path for path in (*named, *files) if path.startswith("/") and path.strip("/")}
    home = os.path.expanduser("~").rstrip("/")
    if not paths and not (home and any(f"{home}/" in text for text in spec.sources.values())):
        return spec
    shown = {home: "~"} if home else {}
    shown |= {path: _relative(path, spec.folder, {*named, *paths}) for path in paths}
    # As they are spelled in JSON, and in a text of the language that JSON holds.
    spelled = {_quoted(path): _quoted(new) for path, new in shown.items()}
    spelled |= {_quoted(_quoted(path)): _quoted(_quoted(new)) for path, new in shown.items()}
    longest = sorted(spelled, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w.~/-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")
    text = json.dumps(dumped(spec), ensure_ascii=False)
    return Spec.model_validate_json(pattern.sub(lambda path: spelled[path[0]], text))


def _relative(path: str, folder: str, others: set[str]) -> str:
    if folder.startswith("/") and PurePosixPath(path).is_relative_to(folder):
        return str(PurePosixPath(path).relative_to(folder))
    parts = PurePosixPath(path).parts[1:]
    tails = ("/".join(parts[-count:]) for count in range(1, len(parts)))
    alone = (
        tail for tail in tails if sum(f"/{each}".rstrip("/").endswith(f"/{tail}") for each in others) == 1
    )
    return next(alone, parts[-1] if parts else ".")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
