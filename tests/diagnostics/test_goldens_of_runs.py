"""Diagnostics of data and rewards as a person sees them: a golden file for each code; and none is without, anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Diagnostic, Problem
from reodsl.diagnostics.render import codes, render
from reodsl.ir.data import Columns, Data, DataSource, File, PackageData, TaskData
from reodsl.ir.model import Architecture, WordTokenizer
from reodsl.ir.reward import OracleBudgets, ResponseGroup, Reward, RewardedResponse
from reodsl.ir.task import FoldTask, FoldTraces
from runners.data.load import load_data
from runners.data.table import questions_table
from runners.grade import make_verifier
from runners.models.bounds import check_architecture
from runners.models.tokenizer import encode, require_written, word_tokenizer
from runners.rewards.inputs import budget_places
from runners.rewards.interpret import interpret
from runners.rewards.vectorise import needed_cuts, vectorise
from tests.rewards.expressions import correct, forced, given, length, op, stat
from tests.rewards.reward_groups import arrays

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
CHAIN = json.loads((Path(__file__).resolve().parents[1] / "data" / "fold.json").read_text())
TASK, TRACES = FoldTask.model_validate(CHAIN["task"]), FoldTraces.model_validate(CHAIN["traces"])
ASKED = TaskData(task=TASK, count=4, seed=1)
SOLVED = TaskData(task=TASK, count=4, seed=1, traces=TRACES)
FEW = TASK.model_copy(update={"length": (1, 1)})
FILES = {
    "other.jsonl": '{"problem": "1+1?", "answer": "2"}\n',
    "none.csv": "question,answer\n",
    "hole.csv": "question,answer\n1+1?,2\n1+2?,\n",
    "twice.csv": "question,answer\n1+1?,2\n1+1?,2\n",
    "numbered.csv": "id,question,answer\n1,1+1?,2\n1,1+2?,3\n",
    "torn.jsonl": '{"question": "1+1?", "answer": "2"}\n{"question": \n',
    "bytes.jsonl": "\x00",
}
WORDS = ("so", "answer")


UNEVEN = Architecture(
    family="qwen3", hidden=64, layers=2, heads=8, kv_heads=3, head_dim=8, intermediate=128,
    tokenizer=WordTokenizer(words=WORDS, eos="so", pad="so"),
)  # fmt: skip


def raised(found: Diagnostic | None) -> object:
    if found is not None:
        raise Problem(found)
    return None


def load(*sources: DataSource) -> object:
    return load_data(Data(name="mine", sources=sources), Path.cwd())


def graded(reward: Reward, group: ResponseGroup, *places: int) -> object:
    made = arrays([group], [[places] * len(group.rollouts)])
    return vectorise(reward, made.inputs, made.forced.look_up, made.bare.look_up)


def cut(reward: Reward) -> object:
    return needed_cuts(reward, arrays([WRONG], [[(8,)] * 2]).inputs)


WRONG = ResponseGroup("q1", (RewardedResponse(4, False), RewardedResponse(8, False)))
MEAN_OF_RIGHT = Reward(name="ratio", outcome=op(length(), "/", stat("mean", length("z"), where=correct("z"))))
OF_REFERENCE = Reward(name="against", outcome=stat("mean", length("z"), over="ref"))

CALLS: dict[str, Callable[[], object]] = {
    "E0701": lambda: load(File(path="other.jsonl")),
    "E0701-text": lambda: questions_table(
        pl.DataFrame({"question": ["1+1?"], "answer": [[2]]}), Columns(), "lists.parquet"
    ),
    "E0704-none": lambda: load(File(path="none.csv")),
    "E0704": lambda: load(File(path="hole.csv")),
    "E0705": lambda: load(File(path="twice.csv")),
    "E0706": lambda: load(File(path="nowhere.jsonl")),
    "E0706-row": lambda: load(File(path="torn.jsonl")),
    "E0709": lambda: load(PackageData(package="os", task="system", count=1, seed=0)),
    "E0711": lambda: load(ASKED.model_copy(update={"task": FEW, "count": 200})),
    "E0712": lambda: load(SOLVED, ASKED),
    "E0705-ids": lambda: load(File(path="numbered.csv", columns=Columns(id="id"))),
    "E0314-verifier": lambda: make_verifier("latex"),
    "E0808": lambda: raised(check_architecture(UNEVEN, "mine.model")),
    "E0720-words": lambda: word_tokenizer(["a", "b", "a"]),
    "E0815-word": lambda: encode(word_tokenizer(WORDS), "so times answer"),
    "E0815": lambda: require_written(word_tokenizer(WORDS), "<thought> so", "the model's `think.open`"),
    "E0920": lambda: graded(MEAN_OF_RIGHT, WRONG, 8),
    "E0922": lambda: interpret(
        Reward(name="mine", outcome=given("n_glod")),
        ResponseGroup("q1", (RewardedResponse(3, True, features={"n_gold": 1.0}),)),
        0,
    ),
    "E0505-none": lambda: graded(OF_REFERENCE, WRONG, 8),
    "E0505-cut": lambda: graded(
        Reward(name="against", outcome=stat("mean", forced(8, of="z"), over="ref")),
        ResponseGroup("q1", WRONG.rollouts, (RewardedResponse(9, True),)),
        8,
    ),
    "E0925": lambda: budget_places(OracleBudgets(frontier="edge", n=2, l_max=16), None),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_looks_as_it_did(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem) as caught:
        CALLS[name]()
    assert {each.code for each in caught.value.diagnostics} == {name[:5]}
    golden(f"runs/{name}.txt", render(caught.value.diagnostics, {}).replace(str(tmp_path), "PLACE"))


def test_every_diagnostic_has_a_golden_file() -> None:
    texts = "".join(path.read_text() for path in GOLDENS.rglob("*.txt"))
    shown = set(re.findall(r"^(?:error|warning|note)\[([EWN]\d{4})\]", texts, re.MULTILINE))
    assert set(codes()) - shown == set()
