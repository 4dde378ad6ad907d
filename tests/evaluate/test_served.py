"""A model behind an address is evaluated as the same model here is: token by token, resumed, and with nothing unsound."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render
from reodsl.doubts import find_inexact
from reodsl.graph.job import Job, Resources
from reodsl.ir.model import Folder, ServedModel
from runners.engine import served as engine
from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import Request, TokenSampling
from runners.evaluate import run
from runners.models.folder import load_config, load_tokenizer
from tests.evaluate.conftest import MakeJob, payload
from tests.serving import Served as Server
from tests.serving import served

Reply = dict[str, Any]
GREEDY = {"rollout": {"max_tokens": 20, "temperature": 0.0, "top_p": 1.0, "top_k": -1}, "samples": 1}
KEY = "s3cret-of-the-server"


class Vllm:
    """A model that replies as vLLM 0.20's `/v1/completions` does, read from its source; one request at a time."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = load_tokenizer(folder)
        self.engine = EmbeddedEngine(load_config(folder), folder)
        self.lock = threading.Lock()
        self.replies: dict[tuple[object, ...], str] = {}

    def __call__(self, asked: dict[str, Any]) -> Reply:
        key = (*asked["prompt"], asked["max_tokens"], asked["temperature"] or "greedy")
        if key not in self.replies:
            self.replies[key] = json.dumps(self.reply(asked))
        reply: Reply = json.loads(self.replies[key])
        return reply

    def reply(self, asked: dict[str, Any]) -> Reply:
        stop = tuple(asked["stop_token_ids"]) or (1,)
        rule = TokenSampling(asked["max_tokens"], asked["temperature"], asked["top_p"], -1, stop, False)
        prompt = tuple(asked["prompt"])
        with self.lock:
            (made,) = self.engine.generate([Request(prompt, asked["seed"])], rule)
        ended = made.finish == "stop"
        choice = {
            "index": 0,
            "text": self.tokenizer.decode(made.tokens[:-1] if ended else made.tokens),
            "logprobs": None,
            "finish_reason": made.finish,
            "stop_reason": made.tokens[-1] if ended else None,
            "token_ids": list(made.tokens),
            "prompt_logprobs": None,
            "prompt_token_ids": list(prompt),
        }
        counts = {"prompt_tokens": len(prompt), "completion_tokens": len(made.tokens)}
        return {"object": "text_completion", "choices": [choice], "usage": counts}


@pytest.fixture(scope="module")
def vllm(checkpoint: Path) -> Vllm:
    return Vllm(checkpoint / "checkpoint")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.engine.remote.FIRST_PAUSE_SECONDS", 0.001)


MODELS = {"data": [{"id": "tiny", "object": "model", "max_model_len": 64}]}


@contextmanager
def there(says: Callable[[dict[str, Any]], Any], models: Any = MODELS) -> Iterator[Server]:
    with served(says, models=json.dumps(models).encode()) as server:
        yield server


def changed(vllm: Vllm, change: Callable[[Reply], object]) -> Callable[[dict[str, Any]], Reply]:
    """The server with every reply changed."""

    def says(asked: dict[str, Any]) -> Reply:
        reply = vllm(asked)
        change(reply)
        return reply

    return says


def asking(
    job: MakeJob, folders: tuple[Path, Path], server: Server, name: str = "asked", **changes: Any
) -> Job:
    checkpoint, questions = folders
    source = ServedModel(
        model="tiny",
        address=server.address,
        tokenizer=Folder(path="tok"),
        retries=1,
        **changes.pop("source", {}),
    )
    whole = payload(**{**GREEDY, **changes})
    whole["model"]["source"] = source.model_dump(mode="json")
    made = job("evaluate", whole, {"start": checkpoint, "data:one": questions, "data:two": questions}, name)
    return replace(made, resources=Resources(engine="served"))


@pytest.fixture(scope="module")
def folders(checkpoint: Path, questions: Path) -> tuple[Path, Path]:
    return checkpoint, questions


def table(made: Job, name: str) -> pl.DataFrame:
    return pl.read_parquet(made.out / f"{name}.parquet")


def inexact(made: Job) -> list[str]:
    """What the curves say of themselves, and the warning of it."""
    curves = json.loads((made.out / "curves.json").read_text())
    assert len({json.dumps(curve["inexact"]) for curve in curves.values()}) == 1
    (told,) = find_inexact(made.task, made.out)
    assert told.code == "W0809"
    words: list[str] = curves["one"]["inexact"]
    return words


def test_it_has_the_results_of_the_same_model_here(
    job: MakeJob, folders: tuple[Path, Path], vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Responses, forced answers and curves; what is asked of it, how often, and with which key."""
    monkeypatch.setenv("TINY_KEY", KEY)
    checkpoint, questions = folders
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    here = job("evaluate", payload(**GREEDY), inputs, "here")
    run.evaluate(here)
    with there(vllm) as server:
        made = asking(job, folders, server, source={"key": "TINY_KEY", "at_once": 4})
        run.evaluate(made)
    for name in ("samples", "forced", "examples"):
        assert table(made, name).equals(table(here, name), null_equal=True), name
    for name in ("curves.json", "summary.json"):
        assert (made.out / name).read_text() == (here.out / name).read_text()
    forced = table(here, "forced")["forced"].sum()
    assert len(server.requests) == 2 + 14 + forced
    assert {each["Authorization"] for each in server.headers} == {f"Bearer {KEY}"}
    assert 1 < server.together <= 4
    last = server.requests[-1]
    assert last["temperature"] == 0.0
    assert last["max_tokens"] == 1
    assert not [each for each in made.work.rglob("*") if each.is_file() and KEY.encode() in each.read_bytes()]


def test_what_had_ended_is_asked_for_no_more(
    job: MakeJob, folders: tuple[Path, Path], vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that fails in the middle: what it replied until then is kept, and the same task goes on with the rest."""
    monkeypatch.setattr(run, "SERVED_CHUNK", 2)
    count = [0]

    def fails(asked: dict[str, Any]) -> Any:
        count[0] += 1
        return (503, "down") if count[0] > 40 else vllm(asked)

    with there(fails) as server:
        made = asking(job, folders, server, source={"at_once": 1})
        with pytest.raises(Problem, match=r"cannot be asked: it fails \(HTTP 503") as caught:
            run.evaluate(made)
        assert caught.value.diagnostics[0].code == "E0833"
        assert caught.value.diagnostics[0].where == server.address
    kept = len(list((made.work / "chunks-2").iterdir()))
    assert 0 < kept < 7
    with there(vllm) as server:
        again = asking(job, folders, server, name="again")
        whole = replace(again, out=made.out, work=made.work)
        run.evaluate(whole)
        prompts = [each for each in server.requests if each["max_tokens"] == 20]
        assert len(prompts) == 14 - 2 * kept
        assert table(whole, "samples").height == 14


def test_texts_alone_are_tokenised_again_and_said_to_be(
    job: MakeJob, folders: tuple[Path, Path], vllm: Vllm
) -> None:
    def texts(reply: Reply) -> None:
        del reply["choices"][0]["token_ids"]

    with there(changed(vllm, texts)) as server:
        made = asking(job, folders, server)
        run.evaluate(made)
        exact = asking(job, folders, server, name="exact")
    with there(vllm) as server:
        run.evaluate(asking(job, folders, server, name="exact"))
    assert table(made, "samples").equals(table(exact, "samples"), null_equal=True)
    assert inexact(made) == [engine.RETOKENISED]


def test_a_server_of_texts_alone_is_asked_by_texts_and_labelled(
    job: MakeJob, folders: tuple[Path, Path], vllm: Vllm
) -> None:
    """It refuses ids, and reads its prompts with the same tokenizer: the results are those of ids, with the label."""

    def says(asked: dict[str, Any]) -> Any:
        if not isinstance(asked["prompt"], str):
            return 400, {"error": {"message": "prompt must be a string"}}
        assert asked.pop("add_special_tokens") is False
        return vllm(asked | {"prompt": vllm.tokenizer.encode(asked["prompt"], add_special_tokens=False)})

    with there(says) as server:
        made = asking(job, folders, server)
        run.evaluate(made)
        assert [isinstance(each["prompt"], str) for each in server.requests[:3]] == [False, True, True]
    with there(vllm) as server:
        exact = asking(job, folders, server, name="exact")
        run.evaluate(exact)
    assert table(made, "samples").equals(table(exact, "samples"), null_equal=True)
    assert table(made, "forced").equals(table(exact, "forced"), null_equal=True)
    assert inexact(made) == [engine.ASKED_AS_TEXT]

    def adds_a_mark(asked: dict[str, Any]) -> Any:
        reply = says(asked)
        if isinstance(reply, dict):
            reply["usage"]["prompt_tokens"] += 2
        return reply

    with there(adds_a_mark) as server, pytest.raises(Problem, match="it read 6 tokens, and 4 were sent"):
        run.evaluate(asking(job, folders, server, name="more"))


def cut(reply: Reply) -> None:
    reply["choices"][0].update(finish_reason="length", token_ids=[3])
    reply["usage"]["completion_tokens"] = 1


def lose(reply: Reply) -> None:
    del reply["choices"][0]["token_ids"]
    reply["choices"][0]["text"] = ""


def longer(words: int, every: int = 1) -> Callable[[Reply], None]:
    """A server whose texts have more tokens here than it counts: all, or those of some lengths."""

    def change(reply: Reply) -> None:
        del reply["choices"][0]["token_ids"]
        if reply["usage"]["completion_tokens"] % every == 0:
            reply["choices"][0]["text"] += " 5" * words

    return change


def counts(**numbers: int) -> Callable[[Reply], None]:
    return lambda reply: reply["usage"].update(numbers)


def stranger(reply: Reply) -> None:
    reply["choices"][0]["token_ids"] = [999] * reply["usage"]["completion_tokens"]


def more(reply: Reply) -> None:
    reply["choices"][0]["token_ids"] += [3, 3]


REFUSED: dict[str, tuple[Callable[[Reply], object], str]] = {
    "a mark before prompts": (lambda reply: reply["usage"].update(prompt_tokens=6), "it read 6 tokens, and 4"),
    "no counts": (lambda reply: reply.pop("usage"), "not a completion with counts"),
    "a number for a text": (lambda reply: reply["choices"][0].update(text=1), "not a completion with counts"),
    "an abort": (lambda reply: reply["choices"][0].update(finish_reason="abort"), "not a completion with counts"),
    "a list": (lambda reply: reply.update(choices=[]), "not a completion with counts"),
    "cut too early": (cut, "it cut a response at 1 tokens"),
    "lost marks": (lose, "one of its texts has 0 tokens by the tokenizer, and it counts"),
    "a text of more tokens": (longer(40), "one of its texts has 5"),
    "more tokens in sum": (longer(4), "its texts have"),
    "a prompt of thousands of digits": (counts(prompt_tokens=10**4299), "not a completion with counts"),
    "a prompt of fewer than no tokens": (counts(prompt_tokens=-4), "not a completion with counts"),
    "another vocabulary": (stranger, "outside the tokenizer's vocabulary of 33"),
    "too many": (more, "tokens, and counts"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_numbers_unsound_is_refused(
    what: str, job: MakeJob, folders: tuple[Path, Path], vllm: Vllm
) -> None:
    change, words = REFUSED[what]
    with there(changed(vllm, change)) as server, pytest.raises(Problem) as caught:
        run.evaluate(asking(job, folders, server))
    (told,) = caught.value.diagnostics
    assert told.code == "E0834"
    assert words in told.message
    assert len(told.message) < 500


def test_texts_that_are_cut_again_are_told(job: MakeJob, folders: tuple[Path, Path], vllm: Vllm) -> None:
    """A response of 20 tokens that has 21 here."""

    def change(reply: Reply) -> None:
        del reply["choices"][0]["token_ids"]
        # Halves of characters are none.
        reply["choices"][0]["text"] = reply["choices"][0]["text"].replace("?", "\ud800")
        if reply["usage"]["completion_tokens"] == 20:
            reply["choices"][0]["text"] += " 5"
            reply["choices"][0]["finish_reason"] = "length"

    # What cannot be a longest sequence is none.
    models = {"data": [{"id": "tiny", "max_model_len": -(10**4299)}]}
    with there(changed(vllm, change), models) as server:
        made = asking(job, folders, server)
        run.evaluate(made)
    curves = json.loads((made.out / "curves.json").read_text())
    assert set(curves["one"]["inexact"]) >= {engine.RETOKENISED, engine.CUT_AGAIN}
    told = find_inexact(made.task, made.out)
    assert any("were cut at `max_tokens`" in each.message for each in told)
    assert table(made, "samples")["tokens"].max() == 20


def test_a_key_that_a_server_says_in_its_texts_is_not_shown(
    job: MakeJob, folders: tuple[Path, Path], vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_KEY", KEY)

    def echo(reply: Reply) -> None:
        reply["choices"][0].update(text=f"key {KEY}", token_ids=None)

    with there(changed(vllm, echo)) as server, pytest.raises(Problem) as caught:
        run.evaluate(asking(job, folders, server, source={"key": "TINY_KEY"}))
    (told,) = caught.value.diagnostics
    assert told.code == "E0834"
    assert "the tokenizer cannot encode its text: … (its words may hold the key)" in told.message
    assert KEY not in render([told], {})


def test_a_server_is_looked_at_before_it_is_asked(
    job: MakeJob,
    folders: tuple[Path, Path],
    vllm: Vllm,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Callable[..., None],
) -> None:
    """Its models, its longest sequence, its key, and whether it takes prompts of token ids."""
    for models, code, words in (
        ({"data": [{"id": "other"}]}, "E0833", "no model `tiny`, only `other`"),
        ({"data": [{"id": "tiny", "max_model_len": 16}]}, "E0834", "its context is 16 tokens"),
    ):
        with there(vllm, models) as server, pytest.raises(Problem, match=words) as caught:
            run.evaluate(asking(job, folders, server))
        assert caught.value.diagnostics[0].code == code
        assert not server.requests
        where = caught.value.diagnostics[0].where or ""
        refusal(f"engine/{code}.txt", caught.value, (where, "ADDRESS"))
    with there(lambda asked: (400, {"error": {"message": "no prompt"}})) as server:
        with pytest.raises(Problem, match="HTTP 400: no prompt") as caught:
            run.evaluate(asking(job, folders, server))
        assert "completions accept prompts" in (caught.value.diagnostics[0].help or "")
        assert len(server.requests) == 2
    monkeypatch.delenv("TINY_KEY", raising=False)
    with there(lambda asked: (401, f"bad key {KEY}")) as server:
        source = {"key": "TINY_KEY"}
        with pytest.raises(Problem, match="TINY_KEY` is not set"):
            run.evaluate(asking(job, folders, server, source=source))
        monkeypatch.setenv("TINY_KEY", KEY)
        with pytest.raises(Problem, match="refuses the key") as caught:
            run.evaluate(asking(job, folders, server, source=source))
        assert KEY not in str(caught.value)


def test_two_answers_to_one_greedy_request_are_noted(
    job: MakeJob, folders: tuple[Path, Path], vllm: Vllm, golden: Callable[[str, str], None]
) -> None:
    count = [0]

    def drifts(reply: Reply) -> None:
        count[0] += 1
        reply["choices"][0]["token_ids"][0] = 2 + count[0] % 2

    with there(changed(vllm, drifts)) as server:
        made = asking(job, folders, server)
        run.evaluate(made)
    assert inexact(made) == [engine.UNREPEATABLE]
    (told,) = find_inexact(made.task, made.out)
    golden("evaluate/W0809.txt", render([told], {}))
