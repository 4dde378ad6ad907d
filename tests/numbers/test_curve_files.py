"""Curve files: what is written is read back, and each kind of bad file gives one clear error."""

import json

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.numbers.curve_files import read_frontier, read_models, write_frontier
from reodsl.numbers.curves import Curve

MODELS = {
    "base": {"AIME 2024": Curve((0, 64, 128), (0.1, 0.25, 1 / 3)), "Minerva": Curve((0, 64), (0.0, 1.0))},
    "short, 4K": {"AIME 2024": Curve((0, 64, 128), (0.1, 0.5, 0.5)), "Minerva": Curve((0, 64), (0.5, 0.75))},
}
ONE = '{"budgets": [0, 64], "accuracy": [0.1, 0.2]}'
HEAD = "model,benchmark,budget,accuracy\n"


def read_curves(path, model=None):
    return read_models(path, model)[0]


def failure(call, path, *args):
    with pytest.raises(Problem) as caught:
        call(path, *args)
    (found,) = caught.value.diagnostics
    assert found.help
    assert found.where is not None
    assert path.name in found.where
    return found.code, " ".join((found.message, found.where, *found.notes))


@pytest.mark.parametrize("ending", ["json", "csv", "parquet"])
def test_every_form_holds_the_same_curves(tmp_path, ending):
    path = tmp_path / f"curves.{ending}"
    points = [
        (model, benchmark, *point)
        for model, curves in MODELS.items()
        for benchmark, curve in curves.items()
        for point in zip(curve.budgets, curve.accuracy, strict=True)
    ]
    frame = pl.DataFrame(points, schema=["model", "benchmark", "budget", "accuracy"], orient="row")
    if ending == "json":
        nested = {model: {} for model in MODELS}
        for (model, benchmark), rows in frame.partition_by("model", "benchmark", as_dict=True).items():
            nested[model][benchmark] = {
                "budgets": rows["budget"].to_list(),
                "accuracy": rows["accuracy"].to_list(),
            }
        path.write_text(json.dumps(nested))
    else:
        getattr(frame, f"write_{ending}")(path)
    assert read_curves(path) == MODELS


@pytest.mark.parametrize(
    ("form", "bases"),
    [
        ('{{"m": {{"a": {0}}}, "n": {{"a": {0}}}}}', {}),
        ('{{"base": "Q", "curves": {{"m": {{"a": {0}}}, "n": {{"a": {0}}}}}}}', {"m": ("Q",), "n": ("Q",)}),
        ('{{"base": ["Q", "P"], "curves": {{"m": {{"a": {0}}}}}}}', {"m": ("Q", "P")}),
        ('{{"frontiers": {{"m": {{"a": {0}}}, "n": {{"a": {0}}}}}}}', {"m": ("m",), "n": ("n",)}),
    ],
)
def test_models_go_back_to_the_bases_that_a_file_names(tmp_path, form, bases):
    """Frontiers by model go back to themselves, and curves without a base to none that is known."""
    path = tmp_path / "curves.json"
    path.write_text(form.format(ONE))
    models, known = read_models(path)
    assert known == bases
    assert set(models) >= set(bases)
    assert all(curves == {"a": Curve((0, 64), (0.1, 0.2))} for curves in models.values())


def test_a_frontier_comes_back_as_written(tmp_path):
    write_frontier(tmp_path / "edge.json", MODELS["base"])
    assert [path.name for path in tmp_path.iterdir()] == ["edge.json"]
    assert read_frontier(tmp_path / "edge.json") == MODELS["base"]
    assert read_curves(tmp_path / "edge.json", model="edge") == {"edge": MODELS["base"]}
    assert failure(read_curves, tmp_path / "edge.json")[0] == "E0421"


def test_whole_floats_are_budgets(tmp_path):
    path = tmp_path / "edge.json"
    path.write_text('\ufeff{"Math": {"budgets": [0.0, 64], "accuracy": [0, 1]}}', encoding="utf-8")
    assert read_frontier(path) == {"Math": Curve((0, 64), (0.0, 1.0))}


def test_rows_in_any_order_and_other_columns(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("seed,accuracy,model,budget,benchmark\n1,0.5,m,64,b\n1,0.25,m,0,b\n1,7.5e-1,m,128.0,b\n")
    assert read_curves(path) == {"m": {"b": Curve((0, 64, 128), (0.25, 0.5, 0.75))}}


def test_categories_and_small_integers_in_parquet(tmp_path):
    frame = pl.DataFrame({"model": ["m"] * 2, "benchmark": ["b"] * 2, "budget": [0, 64], "accuracy": [0, 1]})
    path = tmp_path / "long.parquet"
    frame.with_columns(pl.col("model").cast(pl.Categorical), pl.col("budget").cast(pl.UInt16)).write_parquet(
        path
    )
    assert read_curves(path) == {"m": {"b": Curve((0, 64), (0.0, 1.0))}}


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        ("", "E0421", "empty"),
        ("{", "E0421", "line 1, column 2"),
        ("[1]", "E0421", "found [1] instead of benchmarks by name"),
        ("{}", "E0421", "there is no benchmark"),
        ('{"m": 3}', "E0421", "benchmark `m`: found 3 instead of a curve"),
        ('{"b": {"x": [0], "y": [0]}}', "E0421", "no `budgets`, only `x`, `y`"),
        ('{"b": {"budgets": 3, "accuracy": [0]}}', "E0421", "`budgets` is 3, which is not a list"),
        (f'{{"m": {{"b": {ONE}}}}}', "E0421", "models' curves"),
        (f'{{"b": {ONE}, "b": {ONE}}}', "E0421", "`b` is listed twice"),
        ('{"b": {"budgets": [0], "accuracy": [NaN]}}', "E0421", "accuracy[0] is nan"),
        ('{"b": {"budgets": [0], "accuracy": [-Infinity]}}', "E0421", "is -inf"),
        ('{"b": {"budgets": [0], "accuracy": ["0.5"]}}', "E0421", "'0.5', which is not a number"),
        ('{"b": {"budgets": [0], "accuracy": [50]}}', "E0421", "percent"),
        ('{"b": {"budgets": [0], "accuracy": [1' + "0" * 4000 + "]}}", "E0421", "..., outside 0 to 1"),
        ('{"b": {"budgets": [64, 0], "accuracy": [0, 0]}}', "E0421", "0 follows 64"),
        ('{"b": {"budgets": [1e999], "accuracy": [0]}}', "E0421", "inf"),
        ('{"b": {"budgets": [' + "9" * 5000 + '], "accuracy": [0]}}', "E0421", "has thousands of digits"),
        ('{"b": {"budgets": [0, 64], "accuracy": [0]}}', "E0421", "2 budgets and 1 accuracy "),
        ('{"b": {"budgets": [0], "accuracy": [true]}}', "E0421", "accuracy[0] is true, which"),
        ("null", "E0421", "found null instead of"),
        ('{"b": {"budgets": [], "accuracy": []}}', "E0421", "empty"),
        (f'{{"": {ONE}}}', "E0421", "no name"),
        (f'{{"a": {ONE}, "Average": {ONE}}}', "E0425", "Average"),
        ("[" * 100_000, "E0421", "nested too deeply"),
    ],
)
def test_bad_frontiers(tmp_path, text, expected, words):
    (tmp_path / "edge.json").write_text(text)
    found, message = failure(read_frontier, tmp_path / "edge.json")
    assert (found, words in message) == (expected, True), message


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        ("", "E0421", "empty"),
        ("model,benchmark,acc\nm,b,0.5\n", "E0421", "no column `budget` and no column `accuracy` "),
        ("model,benchmark,acc\nm,b,0.5\n", "E0421", "it has `model`, `benchmark`, `acc`"),
        (HEAD, "E0421", "no rows"),
        (HEAD + "m,b,0,0.5\nm,b,0,0.5\n", "E0421", "in rows 1 and 2"),
        (HEAD + "m,b,0,0.5\nm,b,64,high\n", "E0421", "row 2"),
        (HEAD + "m,b,0,\n", "E0421", "`accuracy` is missing"),
        (HEAD + "m,b,0,nan\n", "E0421", "nan"),
        (HEAD + "m,b,0,6.1\nm,b,64,49.2\n", "E0421", "percent"),
        (HEAD + "m,b,0,50%\n", "E0421", "'50%', which is not a number"),
        (HEAD + "m,b,1K,0.5\n", "E0421", "'1K'"),
        (HEAD + "m,b,1.5,0.5\n", "E0421", "not a number of tokens"),
        (HEAD + "m,b,inf,0.5\n", "E0421", "not a number of tokens"),
        (HEAD + "m,b,-64,0.5\n", "E0421", "-64"),
        (HEAD + ",b,0,0.5\n", "E0421", "`model` is missing"),
        (HEAD + "m,b,0,0.5\nm,b,64,0.5,9,9\n", "E0421", "cannot be read: found more fields"),
        (HEAD.replace(",", ";") + "m;b;0;0,5\n", "E0421", "cannot be read: found more fields"),
        (HEAD.replace(",", "\t") + "m\tb\t0\t0.5\n", "E0421", "has no column `model`"),
        ("model,benchmark,budget,budget,accuracy\nm,b,0,64,0.5\n", "E0421", "two columns `budget`"),
        (HEAD + "m,b,0,0.5\nm,mean,0,0.5\n", "E0425", "`mean`"),
    ],
)
def test_bad_tables(tmp_path, text, expected, words):
    (tmp_path / "long.csv").write_text(text)
    found, message = failure(read_curves, tmp_path / "long.csv")
    assert (found, words in message) == (expected, True), message


@pytest.mark.parametrize("name", ["x.json", "x.csv", "x.parquet"])
def test_binary_missing_and_folders(tmp_path, name):
    path = tmp_path / name
    assert failure(read_curves, path)[0] == "E0421"
    path.write_bytes(bytes(range(256)) * 40)
    assert failure(read_curves, path)[0] == "E0421"
    path.unlink()
    path.mkdir()
    assert failure(read_curves, path)[0] == "E0421"


def test_huge_files_are_not_read(tmp_path):
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(2**40)
    assert failure(read_frontier, path)[0] == "E0421"


def test_a_long_name_of_a_column_is_not_repeated(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1" * 100_000)
    found, message = failure(read_curves, path)
    assert found == "E0421"
    assert len(message) < 500


def test_parquet_without_values(tmp_path):
    path = tmp_path / "x.parquet"
    pl.DataFrame({"model": ["m"], "benchmark": ["b"], "budget": [None], "accuracy": [0.5]}).write_parquet(
        path
    )
    assert failure(read_curves, path) == ("E0421", f"`budget` is missing {path}: row 1")
    pl.DataFrame({"model": [["m"]], "benchmark": ["b"], "budget": [1], "accuracy": [0.5]}).write_parquet(path)
    assert failure(read_curves, path)[0] == "E0421"


def test_a_failed_write_leaves_nothing(tmp_path):
    assert failure(write_frontier, tmp_path / "no" / "edge.json", MODELS["base"])[0] == "E0421"
    (tmp_path / "edge.json").mkdir()
    assert failure(write_frontier, tmp_path / "edge.json", MODELS["base"])[0] == "E0421"
    assert [p.name for p in tmp_path.iterdir()] == ["edge.json"]


def test_the_written_form_is_the_documented_one(tmp_path):
    write_frontier(tmp_path / "edge.json", {"Math": Curve((0, 64), (0.1, 0.2))})
    assert json.loads((tmp_path / "edge.json").read_text()) == {
        "Math": {"budgets": [0, 64], "accuracy": [0.1, 0.2]}
    }
