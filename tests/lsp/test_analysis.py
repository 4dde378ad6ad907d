"""Findings where an editor shows them: those of the text that it has open, and those of files imported."""

from __future__ import annotations

from pathlib import Path

from reodsl.lsp.analysis import analyse, list_findings
from tests.lsp.quickstart import PATH, TEXT, at, opened


def test_the_quickstart_has_no_findings() -> None:
    assert list_findings(opened()) == ()


def test_the_open_text_counts_and_not_the_file() -> None:
    text = TEXT.replace("rollouts = 8", "rollout = 8")
    (finding,) = (each for each in list_findings(opened(text)) if each.severity == "error")
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == at(text, "rollout = 8")
    assert finding.code.startswith("E02")
    assert "no setting `rollout`" in finding.message


def test_a_finding_keeps_its_other_places() -> None:
    text = TEXT.replace("to: 128 tokens, n: n)", "to: 256 tokens, n: n)")
    finding = next(each for each in list_findings(opened(text)) if each.code == "E0402")
    assert finding.related
    assert finding.related[0].span.path == str(PATH)


def test_an_open_buffer_stands_in_for_an_imported_file(tmp_path: Path) -> None:
    spec, common = tmp_path / "spec.reo", tmp_path / "common.reo"
    spec.write_text("from .common import five\nbudgets all = five\n")
    common.write_text("budgets other = exp(from: 1K tokens, to: 32K tokens, n: 5)\n")
    alone = analyse(spec, {spec: spec.read_text()})
    assert [each.code for each in list_findings(alone)] == ["E0204"]
    draft = "budgets five = exp(from: 1K tokens, to: 32K tokens, n: 5)\n"
    assert list_findings(analyse(spec, {spec: spec.read_text(), common: draft})) == ()


def test_what_is_wrong_in_an_imported_file_stands_at_its_import(tmp_path: Path) -> None:
    spec, common = tmp_path / "spec.reo", tmp_path / "common.reo"
    spec.write_text("# first\nfrom .common import five\nbudgets all = five\n")
    common.write_text("budgets five = exp(from: 1K tokens, to: , n: 5)\n")
    findings = list_findings(analyse(spec, {spec: spec.read_text()}))
    assert findings
    assert all(each.span is not None and each.span.path == str(spec) for each in findings)
    assert findings[0].span is not None
    assert findings[0].span.line == 2
    assert f"{common}:1: " in findings[0].message


def test_a_text_that_is_in_no_file_is_read_from_the_editor_alone(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "untitled.reo"
    assert list_findings(analyse(path, {path: TEXT})) == ()
    (empty,) = list_findings(analyse(path, {path: ""}))
    assert empty.code == "E0101"
    assert empty.span is None
