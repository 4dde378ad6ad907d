"""Evaluation against plain transformers: the same answers, forced where they should be, whatever the chunks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.graph.job import Progress, Resources
from reodsl.ir import canonical
from reodsl.ir.expression import Aggregate, Constant, Infix, Length
from reodsl.ir.model import Forcing, Model, Prompt
from reodsl.ir.wording import Wording
from runners.evaluate import run
from runners.evaluate.tables import Chunks
from runners.grade import Verdict
from runners.models.folder import load, load_tokenizer
from runners.rollout.grader import forced_length
from runners.rollout.prompts import render_prompt
from runners.rollout.questions import PromptedQuestion
from tests.devices.module import NAME
from tests.devices.simulated import simulated, waits
from tests.evaluate.conftest import FORCING, MakeJob, payload

KEYS = ["benchmark", "question", "sample"]


def done(job: MakeJob, checkpoint: Path, questions: Path, name: str = "one", **changes: Any) -> Path:
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    made = job("evaluate", payload(**changes), inputs, name)
    run.evaluate(made)
    return made.out


def done_as(job: MakeJob, checkpoint: Path, questions: Path, name: str, model: dict[str, Any]) -> Path:
    """The same with another model, or another prompt of it."""
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    made = job("evaluate", payload() | {"model": model}, inputs, name)
    run.evaluate(made)
    return made.out


def test_every_sample_has_an_answer_at_every_budget(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    out = done(job, checkpoint, questions)
    samples = pl.read_parquet(out / "samples.parquet")
    forced = pl.read_parquet(out / "forced.parquet")
    assert samples.height == 2 * 7 * 3
    assert samples["benchmark"].unique(maintain_order=True).to_list() == ["one", "two"]
    assert forced.height == samples.height * 5
    assert samples["tokens"].max() == 20
    both = forced.join(samples, on=KEYS, suffix="_whole")
    assert (both["forced"] == (both["budget"] < both["tokens"])).all()
    whole = both.filter(~pl.col("forced"))
    assert whole["correct"].equals(whole["correct_whole"])
    assert whole["answer"].equals(whole["answer_whole"].alias("answer"), null_equal=True)


def test_without_a_forcing_whole_responses_alone_are_graded(
    job: MakeJob, checkpoint: Path, questions: Path
) -> None:
    """The same responses and grades as of a suite that also forces answers."""
    whole = done(job, checkpoint, questions, "whole", forcing=None, grid=[20])
    forced = pl.read_parquet(whole / "forced.parquet")
    samples = pl.read_parquet(whole / "samples.parquet")
    assert samples.equals(
        pl.read_parquet(done(job, checkpoint, questions) / "samples.parquet"), null_equal=True
    )
    assert forced.height == samples.height
    assert not forced["forced"].any()
    told = json.loads((whole / "summary.json").read_text())
    assert told["one"]["accuracy"] == samples.filter(benchmark="one")["correct"].mean()


def test_forced_answers_are_those_of_transformers(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    out = done(job, checkpoint, questions, samples=1)
    samples = pl.read_parquet(out / "samples.parquet")
    forced = pl.read_parquet(out / "forced.parquet").filter(pl.col("forced"))
    loaded = load(checkpoint / "checkpoint")
    prompts = {row["id"]: row for row in pl.read_parquet(questions / "questions.parquet").to_dicts()}
    responses = {(row["benchmark"], row["question"]): row["response"] for row in samples.to_dicts()}
    golds = {name: row["answer"] for name, row in prompts.items()}
    for row in forced.to_dicts():
        words = responses[row["benchmark"], row["question"]].split(" ")[: row["budget"]]
        text = " ".join(["<q>", prompts[row["question"]]["question"], "?", *words, FORCING])
        ids = torch.tensor([loaded.tokenizer.encode(text)])
        with torch.inference_mode():
            best = int(loaded.model(ids).logits[0, -1].argmax())
        # A single token is the answer, unless it closes the box or ends the text at once.
        said = "" if best == 1 else loaded.tokenizer.decode([best])
        wanted = said.split("}")[0].strip()
        assert (row["answer"] or "") == wanted
        assert row["correct"] == (wanted == golds[row["question"]])


@pytest.mark.usefixtures("plain_cpu")
def test_another_device_gives_the_same_tables_to_the_byte(
    job: MakeJob, checkpoint: Path, questions: Path
) -> None:
    want = done(job, checkpoint, questions)
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    made = replace(job("evaluate", payload(), inputs, "there"), resources=Resources(device=NAME))
    with simulated():
        run.evaluate(made)
        assert waits["copy to the CPU"] > 0
    for name in ("samples.parquet", "forced.parquet", "curves.json", "summary.json"):
        assert (made.out / name).read_bytes() == (want / name).read_bytes()


def test_draws_do_not_depend_on_order_or_chunks(
    job: MakeJob, checkpoint: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = pl.read_parquet(done(job, checkpoint, questions) / "samples.parquet")
    turned = tmp_path / "turned"
    turned.mkdir()
    pl.read_parquet(questions / "questions.parquet").reverse().write_parquet(turned / "questions.parquet")
    monkeypatch.setattr(run, "CHUNK", 6)
    other = pl.read_parquet(done(job, checkpoint, turned, "two") / "samples.parquet")
    assert usual["question"].to_list() != other["question"].to_list()
    assert usual.sort(KEYS).equals(other.sort(KEYS), null_equal=True)


def test_each_question_is_asked_in_the_first_wording_that_is_for_it(
    job: MakeJob, checkpoint: Path, questions: Path, tmp_path: Path
) -> None:
    """Each response and forced answer is that of a suite which asks all questions in the same one wording."""
    levelled = tmp_path / "levelled"
    levelled.mkdir()
    table = pl.read_parquet(questions / "questions.parquet")
    metas = [json.dumps({"level": level}) for level in (1, 5, 2, 5, 1, 3, 5)]
    table.with_columns(meta=pl.Series(metas)).write_parquet(levelled / "questions.parquet")
    easy: dict[str, Any] = {"question": "{question} so", "prefix": "wait"}
    level = {"op": "given", "of": "y", "field": "level"}
    when = {"op": "binary", "fn": "<", "left": level, "right": {"op": "number", "value": 3.0}}
    ways = [
        payload()["model"] | {"prompt": Wording(**each).over(Prompt(**payload()["model"]["prompt"]))}
        for each in (easy, {})
    ]
    alone = [done_as(job, checkpoint, levelled, f"way {at}", model) for at, model in enumerate(ways)]
    both = done(job, checkpoint, levelled, "both", wordings=[easy | {"when": when}, {}])
    modes = {f"q{at}": int(value) for at, value in enumerate((0, 1, 0, 1, 0, 1, 1))}
    samples = pl.read_parquet(both / "samples.parquet")
    assert {row["question"]: row["mode"] for row in samples.to_dicts()} == modes
    assert not pl.read_parquet(alone[0] / "samples.parquet").equals(
        pl.read_parquet(alone[1] / "samples.parquet")
    )
    for name in ("samples", "forced"):
        got = pl.read_parquet(both / f"{name}.parquet").sort(KEYS)
        for mode, folder in enumerate(alone):
            here = pl.col("question").is_in([question for question, each in modes.items() if each == mode])
            want = pl.read_parquet(folder / f"{name}.parquet").sort(KEYS).filter(here)
            assert want.height
            assert got.filter(here).select(want.columns).equals(want, null_equal=True)


def test_a_benchmark_is_asked_by_what_the_reference_responded_to_it(
    job: MakeJob, checkpoint: Path, questions: Path, tmp_path: Path
) -> None:
    """The same questions in two benchmarks have responses of their own there, of which the suite reads the first two."""
    lengths = {"one": (1, 4, 9, 5, 3, 8, 8), "two": (9, 4, 1, 6, 8, 3, 1)}
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    for name, means in lengths.items():
        folder = inputs[f"reference:{name}"] = tmp_path / f"reference {name}"
        folder.mkdir()
        rows = [
            {"question": f"q{at}", "tokens": tokens, "correct": True}
            for at, mean in reversed([*enumerate(means)])
            for tokens in (mean - 1, mean + 1, 99)
        ]
        pl.DataFrame(rows).write_parquet(folder / "samples.parquet")
    mean = Aggregate(fn="mean", var="z", over="ref", value=Length(of="z"))
    when = canonical(Infix(fn="<", left=mean, right=Constant(value=5)))
    suite = payload(wordings=[{"prefix": "wait", "when": when}, {}], reference_samples=2)
    made = job("evaluate", suite, inputs)
    run.evaluate(made)
    samples = pl.read_parquet(made.out / "samples.parquet")
    for name, means in lengths.items():
        asked = samples.filter(pl.col("benchmark") == name).select("question", "mode").unique()
        assert dict(asked.iter_rows()) == {f"q{at}": int(mean >= 5) for at, mean in enumerate(means)}


def test_a_question_without_the_number_ends_the_evaluation_before_the_model_is_loaded(
    job: MakeJob, questions: Path, tmp_path: Path
) -> None:
    level = {"op": "given", "of": "y", "field": "level"}
    when = {"op": "binary", "fn": "<", "left": level, "right": {"op": "number", "value": 3.0}}
    with pytest.raises(Problem, match=r"^wording 1 reads `x.level`, which no question has$"):
        done(job, tmp_path / "no model", questions, wordings=[{"when": when}, {}])


def test_every_response_has_a_stream_of_its_own(checkpoint: Path) -> None:
    model = Model.model_validate(payload()["model"])
    generator = SimpleNamespace(tokenizer=load(checkpoint / "checkpoint").tokenizer)
    responder: Any = SimpleNamespace(model=model, generator=generator, wordings=())
    asked = [
        request.seed
        for seed in (1, 2)
        for name in ("one", "two")
        for number in range(3)
        for request in run.requests_of(
            responder, PromptedQuestion(f"q{number}", "1 +2", "3", benchmark=name), 4, seed
        )
    ]
    assert len(set(asked)) == len(asked) == 2 * 2 * 3 * 4


def test_each_seed_of_a_study_draws_other_responses(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    """One checkpoint, so that nothing but the streams can differ."""
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    drawn = {}
    for replicate in (None, 0, 1, 5, 1 << 40):
        more = {} if replicate is None else {"replicate": replicate}
        made = job("evaluate", payload(1) | more, inputs, f"by {replicate}")
        run.evaluate(made)
        drawn[replicate] = tuple(pl.read_parquet(made.out / "samples.parquet")["response"])
    assert len(set(drawn.values())) == len(drawn)
    assert run.evaluation_seed(payload(1)) == 5


def interrupt_call(monkeypatch: pytest.MonkeyPatch, index: int) -> list[int]:
    """Interrupt a call of `respond`, counted from 1, and return the questions of each call as calls come."""
    calls: list[int] = []
    original = run.respond

    def respond(responder: run.Responder, part: Any, *rest: Any) -> Any:
        calls.append(len(part))
        if len(calls) == index:
            raise KeyboardInterrupt
        return original(responder, part, *rest)

    monkeypatch.setattr(run, "respond", respond)
    return calls


def test_an_interrupted_evaluation_goes_on_and_ends_the_same(
    job: MakeJob, checkpoint: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CHUNK", 6)
    whole = done(job, checkpoint, questions)
    calls = interrupt_call(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        done(job, checkpoint, questions, "two")
    again = done(job, checkpoint, questions, "two")
    assert len(calls) == 4 + 4, "three of seven chunks were kept"
    for name in ("samples.parquet", "forced.parquet", "examples.parquet", "curves.json", "summary.json"):
        assert (whole / name).read_bytes() == (again / name).read_bytes(), name


def test_responses_are_graded_while_the_engine_works_on_the_next(
    job: MakeJob, checkpoint: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk's grading ends only once the second chunk is asked for: one after the other would wait for ever."""
    monkeypatch.setattr(run, "CHUNK", 6)
    asked, original, graded = threading.Event(), run.respond, run.grade
    calls: list[int] = []

    def asking(responder: run.Responder, part: Any, *rest: Any) -> Any:
        calls.append(len(part))
        if len(calls) == 2:
            asked.set()
        return original(responder, part, *rest)

    def grading(*arguments: Any) -> Any:
        assert asked.wait(60)
        return graded(*arguments)

    monkeypatch.setattr(run, "respond", asking)
    monkeypatch.setattr(run, "grade", grading)
    done(job, checkpoint, questions)
    assert len(calls) > 2


class Telling:
    """An engine that tells of its responses as they end, the last first, and is done when all those are graded.

    `lost` of them it does not tell of: the server that was asked for their answers died.
    """

    def __init__(self, engine: Any, graded: threading.Semaphore, lost: int = 0) -> None:
        self._engine, self._graded, self._lost = engine, graded, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, requests: Any, sampling: Any, ahead: Any = None, ended: Any = None) -> Any:
        responses = self._engine.generate(requests, sampling)
        cuts = [ahead.cuts(index, response) for index, response in enumerate(responses)]
        forced = self._engine.force(requests, responses, cuts, ahead.forcing, ahead.sampling)
        for index in reversed(range(self._lost, len(responses))):
            ended(index, responses[index], {answer.cut: answer.tokens for answer in forced[index]})
        for _ in responses[self._lost :]:
            assert self._graded.acquire(timeout=60)
        return responses


@pytest.mark.parametrize("lost", [0, 2])
def test_responses_are_graded_as_they_end_and_rows_stay_where_they_were(
    job: MakeJob, checkpoint: Path, questions: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Whoever graded after the end of a call alone would wait for ever here."""
    monkeypatch.setattr(run, "CHUNK", 6)
    monkeypatch.setattr(run, "chunks_at_once", lambda resources: 3)
    usual = done(job, checkpoint, questions)
    graded = threading.Semaphore(0)
    opened, grading = run.open_engine, run.grade

    def counted(rollouts: Any, grader_of: Any) -> Any:
        found = grading(rollouts, grader_of)
        graded.release(len(rollouts))
        return found

    monkeypatch.setattr(run, "open_engine", lambda *given: Telling(opened(*given), graded, lost))
    monkeypatch.setattr(run, "grade", counted)
    soon = done(job, checkpoint, questions, "soon")
    for name in ("samples.parquet", "forced.parquet", "examples.parquet", "curves.json", "summary.json"):
        assert (usual / name).read_bytes() == (soon / name).read_bytes(), name


def test_the_rate_is_that_of_the_time_until_a_chunk_was_graded(tmp_path: Path) -> None:
    told = list[Progress]()
    chunks = Chunks(tmp_path)
    samples = {"correct": [True, False], "tokens": [4, 6], "unsettled": [None, "timeout"]}
    forced = ["failed: its reply cannot be read: too deep", None, "failed"]
    chunks.put(0, {"samples": pl.DataFrame(samples), "forced": pl.DataFrame({"unsettled": forced})})
    graded = Future[float]()
    graded.set_result(102.0)
    made: Any = SimpleNamespace(progress=told.append)
    # Far from now, when it is reported.
    run.ProgressReporter(made, chunks, 1, frozenset({0}), True, {0: graded}, began=100.0).report()
    numbers = {"accuracy": 0.5, "length": 5.0, "tokens_per_second": 5.0}
    # Answers that were not judged are counted by what stopped the verifier.
    numbers |= {"verifier_timeouts": 1.0, "verifier_failures": 2.0}
    assert told == [Progress(1, 1, numbers)]


def test_a_fault_while_grading_ends_the_evaluation(
    job: MakeJob, checkpoint: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ArithmeticError("no verdict")

    monkeypatch.setattr(run, "grade", broken)
    with pytest.raises(ArithmeticError, match="no verdict"):
        done(job, checkpoint, questions)


def test_servers_are_asked_several_chunks_at_once_and_answer_the_same(
    job: MakeJob, checkpoint: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.chunks_at_once(Resources(trainers=16, engines=1)) == 1
    assert run.chunks_at_once(Resources(engine="sglang", engines=16)) == 16 * run.chunks_at_once(
        Resources(engine="sglang")
    )
    usual = done(job, checkpoint, questions)
    monkeypatch.setattr(run, "CHUNK", 6)
    monkeypatch.setattr(run, "chunks_at_once", lambda resources: 3)
    calls = interrupt_call(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        done(job, checkpoint, questions, "two")
    together = done(job, checkpoint, questions, "two")
    assert calls == [6, 6, 6, 2], "seven chunks of two questions: three, three that were lost, and the rest"
    for name in ("samples.parquet", "forced.parquet", "examples.parquet"):
        one, other = pl.read_parquet(usual / name), pl.read_parquet(together / name)
        keys = [*KEYS, *(key for key in ("budget", "cut") if key in one.columns)]
        assert one.sort(keys).equals(other.sort(keys), null_equal=True), name
    assert (usual / "curves.json").read_bytes() == (together / "curves.json").read_bytes()


def test_curves_and_summary_are_the_means(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    out = done(job, checkpoint, questions)
    samples = pl.read_parquet(out / "samples.parquet").to_dicts()
    forced = pl.read_parquet(out / "forced.parquet").to_dicts()
    curves = json.loads((out / "curves.json").read_text())
    summary = json.loads((out / "summary.json").read_text())
    for name in ("one", "two"):
        assert curves[name]["budgets"] == [0, 1, 4, 9, 20]
        for budget, accuracy in zip(*curves[name].values(), strict=True):
            right = [r["correct"] for r in forced if (r["benchmark"], r["budget"]) == (name, budget)]
            assert accuracy == pytest.approx(sum(right) / len(right))
        own = [r for r in samples if r["benchmark"] == name]
        assert summary[name]["accuracy"] == pytest.approx(sum(r["correct"] for r in own) / len(own))
        assert summary[name]["length"] == pytest.approx(sum(r["tokens"] for r in own) / len(own))
        assert summary[name]["unfinished"] == pytest.approx(
            sum(r["finish"] == "length" for r in own) / len(own)
        )
        assert (summary[name]["questions"], summary[name]["samples"]) == (7, 3)
    assert summary["mean"]["length"] == pytest.approx(
        (summary["one"]["length"] + summary["two"]["length"]) / 2
    )


def test_examples_show_where_the_cuts_fall(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    out = done(job, checkpoint, questions)
    examples = pl.read_parquet(out / "examples.parquet").join(
        pl.read_parquet(out / "samples.parquet"), on=KEYS, suffix="_whole"
    )
    assert examples.height == 2 * 7 * 5
    for row in examples.to_dicts():
        shown = row["response"][: row["characters"]]
        assert len(shown.split()) == min(row["budget"], len(row["response"].split()))


def test_progress_reaches_the_end(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    made = job("evaluate", payload(), inputs)
    run.evaluate(made)
    told = made.progress.told  # type: ignore[attr-defined]
    assert (told[-1].done, told[-1].total) == (told[-1].total, len(told))
    assert set(told[-1].numbers) == {"accuracy", "length", "tokens_per_second"}


def test_no_questions_is_one_clear_error(job: MakeJob, checkpoint: Path, tmp_path: Path) -> None:
    pl.DataFrame(schema={"id": pl.String, "question": pl.String, "answer": pl.String}).write_parquet(
        tmp_path / "questions.parquet"
    )
    with pytest.raises(Problem) as caught:
        done(job, checkpoint, tmp_path)
    assert caught.value.diagnostics[0].code == "E0704"


def test_a_benchmark_asks_each_question_once(
    job: MakeJob, checkpoint: Path, questions: Path, tmp_path: Path
) -> None:
    """Data with worked solutions may have a question in several rows, which curves and scores would weigh unlike."""
    rows = pl.read_parquet(questions / "questions.parquet")
    pl.concat([rows, rows.head(2)]).write_parquet(tmp_path / "questions.parquet")
    made = job("evaluate", payload(), {"start": checkpoint, "data:one": questions, "data:two": tmp_path})
    with pytest.raises(Problem) as caught:
        run.evaluate(made)
    (found,) = caught.value.diagnostics
    assert (found.code, found.where) == ("E0705", "two")
    assert found.message == "2 of 9 questions of a benchmark are duplicates"


def test_chunks_hold_whole_questions_and_all_of_them() -> None:
    questions = [PromptedQuestion("b", str(i), "", "") for i in range(10)]
    parts = run.chunked(questions, 100)
    assert [len(part) for part in parts] == [2] * 5
    assert [q for part in parts for q in part] == questions
    assert [len(part) for part in run.chunked(questions, 1000)] == [1] * 10
    assert [len(part) for part in run.chunked(questions * 30, 1)] == [256, 44]


def test_examples_are_of_eight_questions_of_each_benchmark(
    job: MakeJob, checkpoint: Path, tmp_path: Path
) -> None:
    rows = [{"id": f"q{i}", "question": f"{i} +1", "answer": "1"} for i in range(9)]
    pl.DataFrame(rows).write_parquet(tmp_path / "questions.parquet")
    out = done(job, checkpoint, tmp_path, samples=1)
    examples = (
        pl.read_parquet(out / "examples.parquet").group_by("benchmark").agg(pl.col("question").n_unique())
    )
    assert dict(examples.iter_rows()) == {"one": 8, "two": 8}


def test_a_server_is_asked_for_the_longest_prompt_response_and_forced_answer(
    job: MakeJob, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts have `<q>`, at most three words and `?`, responses 20 tokens, and what forces an answer comes after them."""
    rows = [{"id": f"q{i}", "question": "1 " * (i + 1), "answer": "1"} for i in range(3)]
    pl.DataFrame(rows).write_parquet(tmp_path / "questions.parquet")

    class Asked(Exception):
        pass

    def asked(folder: Path, resources: Resources, longest: int | None, *rest: object) -> None:
        raise Asked(longest)

    monkeypatch.setattr(run, "open_engine", asked)
    made = job("evaluate", payload(), {"start": checkpoint, "data:one": tmp_path, "data:two": tmp_path})
    forced = forced_length(
        Forcing.model_validate(payload()["suite"]["forcing"]), load_tokenizer(checkpoint / "checkpoint")
    )
    with pytest.raises(Asked) as caught:
        run.evaluate(replace(made, resources=Resources(engine="sglang")))
    assert caught.value.args == (2 + 3 + 20 + forced,)


def test_a_text_that_forces_answers_has_to_be_in_the_vocabulary(
    job: MakeJob, checkpoint: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is found before an engine opens, which may take minutes."""
    monkeypatch.setattr(run, "open_engine", lambda *given: pytest.fail("an engine was opened"))
    unknown = payload()["suite"]["forcing"] | {"text": "no such words"}
    with pytest.raises(Problem) as caught:
        done(job, checkpoint, questions, forcing=unknown)
    assert caught.value.diagnostics[0].message.startswith("the tokenizer does not know ")


def test_prompts_fill_their_template_once(checkpoint: Path, refusal: Callable[..., None]) -> None:
    tokenizer = load(checkpoint / "checkpoint").tokenizer
    ids = render_prompt(Prompt(template="<q> {question} ?"), "1 +2", tokenizer)
    assert tokenizer.decode(list(ids)) == "<q> 1 +2 ?"
    with pytest.raises(Problem) as caught:
        render_prompt(Prompt(kind="chat"), "1 +2", tokenizer)
    refusal("models/E0812.txt", caught.value, task="base.eval")


def test_chat_prompts_go_through_the_template(checkpoint: Path) -> None:
    tokenizer = load(checkpoint / "checkpoint").tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}{{ 'so ' if m.role == 'system' else '<q> ' }}{{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}answer{% endif %}"
    )
    ids = render_prompt(Prompt(kind="chat", template="{question} ?", system="wait"), "1 +2", tokenizer)
    assert tokenizer.decode(list(ids)) == "so wait <q> 1 +2 ? answer"


class Stopping:
    """A verifier that is stopped at every even answer, and fails on an empty one."""

    def grade(self, answers):
        status = ["failed" if not a.text else "timeout" if a.text in "02468" else "checked" for a in answers]
        return [Verdict(False, each, "it is empty" * (each == "failed")) for each in status]

    def close(self):
        pass


def test_answers_that_were_never_judged_are_counted_apart(
    job: MakeJob, checkpoint: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "open_verifier", lambda *settings: Stopping())
    out = done(job, checkpoint, questions)
    samples, forced = pl.read_parquet(out / "samples.parquet"), pl.read_parquet(out / "forced.parquet")
    summary = json.loads((out / "summary.json").read_text())
    assert (
        forced.filter(~pl.col("forced"))["unsettled"].null_count() == forced.filter(~pl.col("forced")).height
    )
    for key, why in (("verifier_timeouts", "timeout"), ("verifier_failures", "failed")):
        counts = {
            name: sum(
                f.filter(pl.col("benchmark") == name, pl.col("unsettled").str.starts_with(why)).height
                for f in (samples, forced)
            )
            for name in ("one", "two")
        }
        assert {name: summary[name][key] for name in counts} == counts
        assert summary["mean"][key] == sum(counts.values()) > 0
    assert samples.filter(pl.col("answer").is_null())["unsettled"].unique().to_list() == [
        "failed: it is empty"
    ]
