"""Exports have the fields of inspect_ai's own files, and numbers that are counted here by hand."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.share.evaluated import ExportMaterial, export
from tests.share.evaluations import shared

# Fields of the classes in inspect_ai/log/_log.py, model/_model_output.py and scorer/_metric.py of 0.3.285, as far as a
# log of ours may use them; a star marks those without a default.
INSPECT = {
    "EvalLog": "version status eval* plan results stats error samples",
    "EvalSpec": "eval_id run_id created* task* task_id task_version dataset* model* model_generate_config config* packages "
    "metadata scorers",
    "EvalDataset": "name location samples sample_ids shuffled",
    "EvalConfig": "limit epochs epochs_reducer",
    "EvalScorer": "name* options metrics metadata",
    "EvalPlan": "name steps finish config",
    "EvalResults": "total_samples completed_samples scores metadata",
    "EvalScore": "name* scorer* reducer scored_samples unscored_samples params metrics metadata",
    "EvalMetric": "name* value* params metadata",
    "EvalStats": "started_at completed_at model_usage",
    "EvalSample": "id* epoch* input* target* messages output scores metadata store events model_usage attachments",
    "ModelOutput": "model choices completion usage",
    "Score": "value* answer explanation metadata",
    "ModelUsage": "input_tokens output_tokens total_tokens",
}  # fmt: skip


def fits(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """Has the fields that inspect demands, and none that it does not know."""
    known = INSPECT[kind].split()
    assert {name[:-1] for name in known if name.endswith("*")} <= value.keys(), kind
    assert value.keys() <= {name.rstrip("*") for name in known}, kind
    return value


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> ExportMaterial:
    return shared(tmp_path_factory.mktemp("study"), text=" \u2028</script>\x1e9")


@pytest.fixture(scope="module")
def logs(study: ExportMaterial, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    assert len(export(study, folder)) == 6 * 2
    return folder


def test_a_log_has_the_fields_of_inspects(logs: Path) -> None:
    for path in logs.iterdir():
        log = fits("EvalLog", json.loads(path.read_text("utf-8")))
        assert (log["version"], log["status"]) == (2, "success")
        fits("EvalDataset", fits("EvalSpec", log["eval"])["dataset"])
        fits("EvalConfig", log["eval"]["config"])
        fits("EvalScorer", log["eval"]["scorers"][0])
        fits("EvalPlan", log["plan"])
        fits("EvalStats", log["stats"])
        (score,) = fits("EvalResults", log["results"])["scores"]
        for metric in fits("EvalScore", score)["metrics"].values():
            fits("EvalMetric", metric)
        for sample in log["samples"]:
            fits("ModelUsage", fits("ModelOutput", fits("EvalSample", sample)["output"])["usage"])
            fits("Score", sample["scores"]["answer"])


def test_a_log_has_every_response_and_its_numbers(study: ExportMaterial, logs: Path) -> None:
    (path,) = logs.glob("2026-01-01T12-00-00+00-00_hard-reo-exp.s1_*.json")
    log = json.loads(path.read_text("utf-8"))
    one = next(each for each in study.evaluations if each.name == "reo_exp.s1")
    rows = pl.read_parquet(one.folder / "samples.parquet").filter(pl.col("benchmark") == "hard").to_dicts()
    assert log["eval"]["model"] == "quickstart/reo_exp.s1"
    assert [each["id"] for each in log["samples"]] == [row["question"] for row in rows]
    for sample, row in zip(log["samples"], rows, strict=True):
        assert sample["output"]["completion"] == row["response"] == sample["messages"][1]["content"]
        assert (sample["input"], sample["epoch"]) == (row["text"], row["sample"] + 1)
        assert sample["target"] == row["gold"].split("\x1e")
        assert sample["scores"]["answer"]["value"] == "IC"[row["correct"]]
        assert sample["output"]["usage"]["output_tokens"] == row["tokens"]
        assert len(sample["metadata"]["at_budgets"]) == 20
    right = [float(row["correct"]) for row in rows]
    metrics = log["results"]["scores"][0]["metrics"]
    assert metrics["accuracy"]["value"] == pytest.approx(statistics.mean(right))
    assert metrics["stderr"]["value"] == pytest.approx(statistics.stdev(right) / math.sqrt(len(right)))
    told = log["results"]["metadata"]
    curve = json.loads((one.folder / "curves.json").read_text())["hard"]
    assert told["accuracy_by_budget"] == dict(zip(map(str, curve["budgets"]), curve["accuracy"], strict=True))
    assert told["score"]["reg"] < told["score"]["reg_high"]


def test_inspect_reads_the_logs_and_counts_the_same(logs: Path) -> None:
    inspect_log = pytest.importorskip("inspect_ai.log")
    found = inspect_log.list_eval_logs(str(logs))
    assert len(found) == 12
    log = inspect_log.read_eval_log(found[0])
    before = {name: each.value for name, each in log.results.scores[0].metrics.items()}
    inspect_log.recompute_metrics(log)
    after = {name: each.value for name, each in log.results.scores[0].metrics.items()}
    assert before == pytest.approx(after)
    assert inspect_log.read_eval_log(found[0], header_only=True).eval.model.startswith("quickstart/")


def test_what_is_there_already_is_replaced_whole(study: ExportMaterial, tmp_path: Path) -> None:
    first = {path: path.read_bytes() for path in export(study, tmp_path)}
    assert {path: path.read_bytes() for path in export(study, tmp_path)} == first
    assert set(tmp_path.iterdir()) == set(first)
