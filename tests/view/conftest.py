"""Evaluations as their runner writes them, drawn at random; and a store with a small run whose texts are hostile."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reodsl.store.files import hash_plain
from reodsl.store.manifest import MANIFEST
from reodsl.store.store import Store
from reodsl.view.responses import Evaluation
from tests.bad_input.commands import SPEC
from tests.called import call
from tests.report.conftest import HOSTILE
from tests.undrawn import undraw

GRID = (0, 4, 8, 16)
FORMULA = r" 𝑥 \(a<\frac{1}{2}\href{javascript:window.pwned=1}{b}\) end"
KEYS = ["benchmark", "question", "sample"]


def drawn(folder: Path, name: str, questions: int = 60, samples: int = 3, parts: int = 1) -> Evaluation:
    """An evaluation of two benchmarks in `parts` files a table."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows, forced = [], []
    for benchmark in ("easy", "hard"):
        for number in range(questions):
            for sample in range(samples):
                tokens, right = int(rng.integers(1, 20)), bool(rng.random() < 0.5)
                question = f"{benchmark}-{number:04d}"
                keys = {"benchmark": benchmark, "question": question, "sample": sample}
                rows.append(
                    keys
                    | {
                        "text": f"What is {number} of {benchmark}?",
                        "gold": str(number),
                        "response": " ".join(f"w{i}" for i in range(tokens)),
                        "tokens": tokens,
                        "finish": "stop" if tokens < 19 else "length",
                        "answer": str(number) if right else None,
                        "correct": right,
                        "unsettled": None,
                    }
                )
                for budget in GRID:
                    cut = budget < tokens
                    now = bool(rng.random() < 0.5) if cut else right
                    forced.append(keys | {"budget": budget, "forced": cut, "answer": "x", "correct": now})
    tables = {"samples": pl.DataFrame(rows), "forced": pl.DataFrame(forced)}
    files: dict[str, list[Path]] = {"samples": [], "forced": []}
    for part in range(parts):
        place = folder / name / str(part)
        place.mkdir(parents=True)
        for table, frame in tables.items():
            each = len(rows) // parts * (len(GRID) if table == "forced" else 1)
            last = frame.height if part == parts - 1 else each * (part + 1)
            frame.slice(each * part, last - each * part).write_parquet(place / f"{table}.parquet")
            files[table].append(place / f"{table}.parquet")
    return Evaluation(
        name, 1, f"{name}.eval.s1", "k", tuple(files["samples"]), tuple(files["forced"]), (), None, True
    )


def shuffled(evaluation: Evaluation, folder: Path) -> Evaluation:
    """The same evaluation with its forced answers in another order, as another version might write them."""
    folder.mkdir(parents=True)
    path = folder / "forced.parquet"
    pl.scan_parquet(evaluation.forced).collect().sample(fraction=1, shuffle=True, seed=1).write_parquet(path)
    return replace(evaluation, forced=(path,))


@pytest.fixture(scope="session")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with a finished run whose study, questions, answers and responses hold the worst that a text can hold."""
    place = tmp_path_factory.mktemp("viewed")
    (place / "tiny.reo").write_text(SPEC)
    store = place / ".reodsl"
    where = ("--store", str(store), "--out", str(place / "out"))
    with pytest.MonkeyPatch.context() as patch:
        undraw(patch.setattr)
        assert call("run", str(place / "tiny.reo"), "--local", "--quiet", *where) == 0
    for path in store.glob("objects/*/*/samples.parquet"):
        path.parent.chmod(0o755)
        path.chmod(0o644)
        frame = pl.read_parquet(path)
        texts = ("text", "gold", "response", "answer")
        # A letter beyond U+FFFF, which a browser counts twice, comes before every cut of a response.
        bad = frame.with_columns(
            (
                pl.lit("𝑥" if name == "response" else "")
                + pl.col(name).fill_null("")
                + HOSTILE
                + (FORMULA if name == "response" else "")
            ).alias(name)
            for name in texts
        )
        bad.write_parquet(path)
        restamp(path)
    for path in store.glob("objects/*/*/rollouts.parquet"):
        path.parent.chmod(0o755)
        path.chmod(0o644)
        pl.read_parquet(path).with_columns(pl.col("text") + HOSTILE).write_parquet(path)
        restamp(path)
    return Store(store)


def restamp(path: Path) -> None:
    """Write the new size and checksum of a stored file into its result's manifest."""
    folder = next(each for each in path.parents if (each / MANIFEST).is_file())
    manifest = folder / MANIFEST
    manifest.chmod(0o644)
    kept = json.loads(manifest.read_text())
    kept["files"][str(path.relative_to(folder))] = {"bytes": path.stat().st_size, "sha256": hash_plain(path)}
    manifest.write_text(json.dumps(kept))
