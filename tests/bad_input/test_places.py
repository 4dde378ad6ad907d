"""Specs, data, models and stores in folders with odd names: every command goes as it does in a plain one."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from reodsl.store.runs import records
from reodsl.store.store import Store
from reodsl.view.api import Api
from tests.bad_input.commands import FROM_FOLDER, Place

ODD = ["[a] *?#\n\t b", """日本語 é ק %20 $(x) 'q" & {0} ~ =1"""]
SPEC = (
    FROM_FOLDER.replace(
        "source = generated(chain_easy, count: 4, seed: 1)", 'source = file("asked.parquet")', 1
    )
    + """
study odd {
  arm base = checkpoint(mite)
  arm vanilla = tiny
  frontier edge = envelope(of: [base, vanilla], to: 16 tokens)
  score = reg(against: edge, to: 16 tokens, relative_to: vanilla)
  report { table main { rows = arms, columns = [accuracy, length, reg] } }
}
"""
)
CURVES = "out/arms/vanilla.s1/curves.json"
COMMANDS = f"""
check tiny.reo
plan tiny.reo
run tiny.reo --local --quiet --out out
plan tiny.reo
why tiny.reo tiny.train.s1
graph tiny.reo
ls --verify
watch odd
report odd --out shown
frontier out/arms/base/curves.json -o edge.json --base mite
reg {CURVES} --frontier edge.json --l-max 16 --base mite
diff tiny.reo tiny.reo
reward tiny.reo tiny --length 3,4 --correct yes,no
run tiny.reo --local --quiet --set length=3 --out out
diff tiny.reo tiny.reo --amend tiny.steps=4
gc --dry-run
"""


def used(place: Place, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> object:
    """The exit codes of all commands in a new folder of that name, and the main table of the run there."""
    folder = place.folder / name
    shutil.copytree(checkpoint, folder / "weights")
    rows = {"question": ["<q> a ?", "<q> b ?", "<q> c ?"], "answer": ["1", "2", "3"]}
    pl.DataFrame(rows).write_parquet(folder / "asked.parquet")
    (folder / "tiny.reo").write_text(SPEC)
    monkeypatch.chdir(folder)
    codes = []
    for line in COMMANDS.strip().splitlines():
        told = place.call(*line.split(" "))
        assert told.code != 1, (line, told)
        codes.append(told.code)
    api = Api(Store(folder / ".reodsl"))
    for each in records(api.store):
        run = {"run": each.name}
        assert api.responses(run)["total"] > 0
        assert 'id="training"' in api.report(each.name)
    return codes, pl.read_parquet(folder / "out" / "tables" / "main.parquet", glob=False).to_dict(
        as_series=False
    )


@pytest.mark.slow
def test_a_folder_with_an_odd_name_is_a_folder(
    place: Place, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = used(place, checkpoint, monkeypatch, "plain")
    for name in ODD:
        assert used(place, checkpoint, monkeypatch, name) == plain, name
