"""Tools of an environment: described to a model, called in confined processes, and paid for what came of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import polars as pl
import psutil
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.data import Grading, Python, Tools
from reodsl.store.consent import read_code
from runners.conversations import require_tools
from runners.engine.sglang.settings import find_interpreter
from runners.own.environment import MOST_SAID, Environment, Unsuited
from runners.own.function import OwnFunction
from runners.sandbox import lacking
from tests.bad_input.commands import Place, Told
from tests.own.library import HERE, install

ROOT = Path(__file__).resolve().parents[2]
(CALCULATOR,) = (
    text
    for text in re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "OWN_CODE.md").read_text(), re.M | re.S)
    if "class Calculator" in text
)
confined = pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
FACTS = {"verifiers": {"prompt": "3 a +4 ?", "answer": "7"}, "tools": []}
SUM = {"name": "add", "arguments": {"a": 3, "b": 4}}


@pytest.fixture
def environment(site: Path) -> Environment:
    install(site, CALCULATOR, library=not HERE)
    return Environment("sums_env")


def asked(*calls: object, state: object = None, turns: tuple[object, ...] = ()) -> dict[str, object]:
    return {"meta": FACTS, "turns": list(turns), "text": "x", "calls": list(calls), "state": state}


def test_questions_describe_their_tools(environment: Environment) -> None:
    (question,) = environment.questions([{"seed": 1, "draw": 0}])
    (tool,) = json.loads(question["meta"])["tools"]
    assert (tool["type"], tool["function"]["name"]) == ("function", "add")
    assert tool["function"]["description"] == "The sum of two numbers, modulo 10."
    assert set(tool["function"]["parameters"]["properties"]) == {"a", "b"}
    assert tool["function"]["parameters"]["required"] == ["a", "b"]


def test_calls_are_made_in_order_and_remembered(environment: Environment) -> None:
    said = environment.reply(asked(SUM, {"name": "add", "arguments": {"a": "8", "b": 4}}))
    assert said is not None
    assert (said["replies"], said["state"]["calls"]) == (["7", "2"], 2)
    again = environment.reply(asked(SUM, state=said["state"]))
    assert again is not None
    assert again["state"]["calls"] == 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"error": "the call is no JSON"}, "Error: the call is no JSON"),
        ({"name": "mul", "arguments": {}}, "Error: there is no tool mul; there are add"),
        ({"name": "add", "arguments": {"a": 1}}, "Error: .*b"),
        ({"name": "add", "arguments": {"a": "x", "b": 1}}, "Error: .*a"),
        ({"name": "add", "arguments": {"a": 1, "b": 2, "c": 3}}, "Error: .*c"),
        ({"name": "add", "arguments": {"self": 1}}, "Error: "),
    ],
)
def test_calls_that_do_not_fit_are_told_to_the_model(
    environment: Environment, call: object, words: str
) -> None:
    said = environment.reply(asked(call, SUM))
    assert said is not None
    assert re.match(words, said["replies"][0], re.S)
    assert said["replies"][1] == "7"


BODIES = {
    "raise ValueError('no such number')": "Error: no such number",
    "return None": "null",
    "return {'sum': a + b}": '{"sum": 7}',
    "return object": "<class",
    "return self": "<sums_env.Calculator",
    "return [float('nan')]": "NaN",
    "return self.add(a, b)": "Error: maximum recursion",
    "return 'x' * 10**7": "x" * MOST_SAID,
    "raise SystemError": "Error: SystemError",
}


@pytest.mark.parametrize("body", BODIES)
def test_whatever_a_tool_does_is_a_text(site: Path, body: str) -> None:
    text = CALCULATOR.replace("b: int) -> int", "b: int)").replace("return (a + b) % 10", body)
    install(site, text, library=not HERE)
    said = Environment("sums_env").reply(asked(SUM))
    assert said is not None
    assert BODIES[body] in said["replies"][0]
    assert len(said["replies"][0]) <= MOST_SAID + 2


def test_a_task_may_end_a_conversation(site: Path) -> None:
    stop = "    @vf.stop\n    async def enough(self, trace: vf.Trace) -> bool: return bool(trace.tool_messages)\n\n"
    install(site, CALCULATOR.replace("    @vf.reward\n", f"{stop}    @vf.reward\n"), library=not HERE)
    environment = Environment("sums_env")
    assert environment.reply(asked(SUM)) is not None
    turn = {"text": "x", "calls": [SUM], "replies": ["7"]}
    assert environment.reply(asked(SUM, turns=(turn,))) is None


def test_rewards_see_the_conversation(environment: Environment) -> None:
    called = '<tool_call>{"name": "add"}</tool_call>'
    turn = {"text": called, "calls": [SUM], "replies": ["7"], "state": {"calls": 1}}
    row = {"meta": FACTS, "text": "</think> 7", "turns": [turn]}
    assert environment.score(row) == 1.25
    assert environment.score({**row, "text": "8"}) == 0.25
    assert environment.score({**row, "turns": [turn, {**turn, "state": {"calls": 2}}]}) == 1.0
    # What is said beside a call counts, and a response that ends with a call has said nothing.
    assert environment.score({**row, "text": f"{called} 7"}) == 1.25
    assert environment.score({**row, "text": called}) == 0.25


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("vf.ToolsetConfig())]", "vf.ToolsetConfig())] * 2"), "two of its tools are called `add`"),
        (
            (
                "return [Calculator(vf.ToolsetConfig())]",
                "c = vf.ToolsetConfig()\n        c.url = 'http://x'\n        return [Calculator(c)]",
            ),
            "served elsewhere",
        ),
    ],
)
def test_tools_that_do_not_fit(site: Path, change: tuple[str, str], words: str) -> None:
    install(site, CALCULATOR.replace(*change), library=not HERE)
    with pytest.raises(Unsuited, match=words):
        Environment("sums_env").questions([{"seed": 1, "draw": 0}])


@pytest.fixture
def tools(site: Path) -> Iterator[OwnFunction]:
    install(site, CALCULATOR, library=not HERE)
    function = OwnFunction(
        read_code("sums_env:verifiers", Path()), "tools", batch=1, seconds=2, memory_mib=2048, workers=2
    )
    yield function
    function.close()


@confined
def test_tools_are_called_in_confined_processes(tools: OwnFunction) -> None:
    said = tools.reply([asked(SUM), asked({"name": "add", "arguments": {"a": 9, "b": 9}}), asked()])
    assert [one and one["replies"] for one in said] == [["7"], ["8"], []]


@pytest.mark.slow
@confined
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("while True: pass", "Error: it took more than 2 s"),
        ("import os; os._exit(1)", "Error: it ended"),
        ("x = bytearray(10**10); return 1", "Error: "),
        ("open('/etc/passwd')", "Error: .*Permission"),
        ("open('/tmp/tool', 'w')", "Error: .*ermi"),
        ("import socket; socket.socket().connect(('127.0.0.1', 9))", "Error: .*ermi"),
        ("import subprocess; subprocess.run(['ls'])", "Error: "),
        ("print('x' * 10**8)", "Error: it printed more"),
        ("self.state.kept = 'x' * 10**5; return 1", "Error: its reply cannot be read"),
    ],
)
def test_what_a_tool_may_not_do_fails_one_answer(site: Path, body: str, words: str) -> None:
    text = CALCULATOR.replace(
        "return (a + b) % 10", f"if a == 3:\n            {body}\n        return (a + b) % 10"
    ).replace("    calls: int = 0", "    calls: int = 0\n    kept: str = ''")
    install(site, text, library=not HERE)
    function = OwnFunction(
        read_code("sums_env:verifiers", Path()), "tools", batch=1, seconds=2, memory_mib=2048
    )
    bad, good = function.reply([asked(SUM, SUM), asked({"name": "add", "arguments": {"a": 4, "b": 4}})])
    function.close()
    assert bad is not None
    assert good is not None
    assert [each for each in bad["replies"] if not re.match(words, each)] == []
    assert len(bad["replies"]) == 2
    assert good["replies"] == ["8"]


@confined
@pytest.mark.parametrize("whom", ["the copy", "the process"])
@pytest.mark.parametrize("kills", [1, 2])
def test_a_process_that_somebody_ends_as_it_calls_a_tool_is_asked_again_once(
    site: Path, whom: str, kills: int
) -> None:
    there = site / "wait"
    there.touch()
    waits = f"import os\n        while os.path.exists({str(there)!r}): pass\n        "
    install(site, CALCULATOR.replace("return (a + b)", f"{waits}return (a + b)"), library=not HERE)
    function = OwnFunction(
        read_code("sums_env:verifiers", Path()), "tools", batch=1, seconds=60, memory_mib=2048
    )
    said: list[object] = []

    def replies() -> None:
        try:
            said.extend(function.reply([asked(SUM), asked({"name": "add", "arguments": {"a": 4, "b": 4}})]))
        except Problem as failure:
            said.append(failure.diagnostics[0])

    thread = threading.Thread(target=replies)
    thread.start()
    ended: set[int] = set()
    # Two answers may have a copy each: killed for good is who is killed as often as it is asked.
    while len(ended) < 1 if kills == 1 else thread.is_alive():
        for pid in function.pids():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                for each in {child.pid for child in psutil.Process(pid).children()} - ended:
                    os.kill(each if whom == "the copy" else pid, signal.SIGKILL)
                    ended.add(each)
        time.sleep(0.01)
    there.unlink()
    thread.join(timeout=60)
    function.close()
    if kills == 1:
        assert [one["replies"] for one in said] == [["7"], ["8"]]  # type: ignore[index]
    else:
        (failure,) = said
        assert (failure.code, failure.message) == (
            "E0744",
            "`sums_env:verifiers` failed: it ended its process",
        )  # type: ignore[attr-defined]


@confined
def test_an_environment_that_fails_ends_the_run(site: Path) -> None:
    install(
        site, CALCULATOR.replace("return [Calc", "raise RuntimeError('lost'); return [Calc"), library=not HERE
    )
    function = OwnFunction(
        read_code("sums_env:verifiers", Path()), "tools", batch=1, seconds=9, memory_mib=2048
    )
    with pytest.raises(Problem, match="lost") as caught:
        function.reply([asked(SUM)])
    function.close()
    assert caught.value.diagnostics[0].code == "E0744"


@confined
def test_a_file_of_ones_own_has_no_tools(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def add(calls): return 7\n")
    function = OwnFunction(read_code("mine.py:add", tmp_path), "tools", batch=1, seconds=9, memory_mib=1024)
    with pytest.raises(Problem, match="those of an environment") as caught:
        function.reply([asked(SUM)])
    function.close()
    assert caught.value.diagnostics[0].code == "E0745"


@confined
@pytest.mark.heavy
@pytest.mark.skipif(not HERE, reason="NOT INSTALLED: verifiers")
def test_an_environment_that_the_library_lays_out_asks_answers_and_pays(site: Path, tmp_path: Path) -> None:
    """A package of several files, made by the library's own command, with what it leaves to its author filled in."""
    scaffold = [
        sys.executable,
        "-m",
        "verifiers.v1.cli.init",
        "sums-env",
        "--path",
        str(tmp_path),
        "--add-tool",
    ]
    subprocess.run(scaffold, check=True, stdout=subprocess.DEVNULL)
    install(site, "", library=False)
    (site / "sums_env.py").unlink()
    (tmp_path / "sums_env" / "sums_env").rename(site / "sums_env")
    taskset = site / "sums_env" / "taskset.py"
    text = re.sub(
        r"raise NotImplementedError\(\s*\"Return.*?\n        \)",
        'return [SumsEnvTask(SumsEnvData(prompt=f"Say {n}"), self.config.task) for n in range(self.config.num_tasks)]',
        taskset.read_text(),
        flags=re.S,
    )
    words = re.compile(r'raise NotImplementedError\("Score.*?"\)')
    taskset.write_text(words.sub("return float(trace.last_reply == self.data.prompt[-1])", text))
    code = read_code("sums_env:verifiers", Path())
    assert code.others == 3
    functions = [
        OwnFunction(code, role, batch=1, seconds=60, memory_mib=2048) for role in ("task", "tools", "reward")
    ]
    task, tools, reward = functions
    (question,) = task.draw(1, range(1))
    meta = json.loads(question["meta"])
    (name,) = (each["function"]["name"] for each in meta["tools"])
    assert name == "sums_env_echo"
    call = {"name": name, "arguments": {"text": "hello"}}
    (said,) = tools.reply([{"meta": meta, "turns": [], "text": "x", "calls": [call], "state": None}])
    assert said is not None
    assert said["replies"] == ["hello"]
    row = {
        **question,
        "meta": meta,
        "reference": "",
        "references": [],
        "answer": "",
        "correct": False,
        "tokens": 1,
    }
    turn = {"text": "x", "calls": [call], "replies": ["hello"]}
    right = {**row, "text": question["question"][-1], "turns": [turn]}
    assert reward.call([right, {**right, "text": "no"}]) == [1.0, 0.0]
    for each in functions:
        each.close()


LESSONS = """
from random import Random

from reodsl.own import Question


def make(random: Random) -> Question:
    a, b = random.randrange(10), random.randrange(1, 10)
    asked = f"{a} a +{b} ?"
    call = '<tool_call> {"name":"add","arguments":{"a": %d ,"b": %d }} </tool_call>' % (a, b)
    if random.random() < 0.5:
        return Question(asked, "0", trace=call)
    said = str((a + b) % 10)
    return Question(f"{asked} {call} <eos> says {said} so", said, trace=said)
"""
SPEC = r'''"""A model that learns to call a calculator, and then by what that earns it."""
from std.recipes import ppo, sft

tokenizer spoken {
  words = (
    words("0 1 2 3 4 5 6 7 8 9 +1 +2 +3 +4 +5 +6 +7 +8 +9 a ? says so Error: … <tool_call> </tool_call> }} } \\boxed{")
    + ["{\"name\":\"add\",\"arguments\":{\"a\":", ",\"b\":"]
  )
  eos = "<eos>"
  pad = "<pad>"
}

model mite {
  source = architecture(
    family: qwen3,
    hidden: 32,
    layers: 2,
    heads: 4,
    kv_heads: 2,
    head_dim: 8,
    intermediate: 64,
    tie_embeddings: true,
    tokenizer: spoken,
  )
  context = 64 tokens
  prompt  { reply = " says {reply} so" }
}

data lessons { source = generated(python("lessons.py:make"), count: 130, seed: 1), verifier = exact }

data asked {
  source   = generated(python("sums_env:verifiers", seconds: 60 seconds), count: 48, seed: 1)
  verifier = python("sums_env:verifiers", seconds: 60 seconds)
  tools    = tools(python("sums_env:verifiers"), turns: 3, reply: 8 tokens)
}
data held = asked {
  source = generated(python("sums_env:verifiers", seconds: 60 seconds), count: 8, seed: 1, split: held_out)
}

reward paid { python("sums_env:verifiers", y) }
forcing now { text = "\\boxed{", close = "}", answer_tokens = 1 tokens }
benchmark sums { data = held }

suite quick {
  benchmarks = [sums]
  max_tokens = 12 tokens
  samples    = 2
  grid       = [0 tokens, 4 tokens, 8 tokens, 12 tokens]
  reg_to     = 12 tokens
  forcing    = now
}

experiment caller = sft {
  base       = mite
  data       = lessons
  batch      { prompts = 32 }
  max_tokens = 32 tokens
  steps      = 200 steps
  optim      { algorithm = adamw, lr = 1e-2, weight_decay = 0, warmup = 0 steps }
  eval       = quick
}

experiment spender = ppo {
  base        = checkpoint(caller)
  data        = asked
  reward      = paid
  forcing     = now
  batch       { prompts = 4, rollouts = 4 }
  rollout     { max_tokens = 12 tokens }
  max_prompt  = 16 tokens
  minibatches = 2
  epochs      = 1
  steps       = 3 steps
  save_every  = 1 steps
  optim       { lr = 1e-3 }
  eval        = quick
}
'''


RUN = ("run", "tools.reo", "--local", "--quiet")


def studied(place: Place, name: str, *more: str) -> Told:
    """The run of the study in a store of its own."""
    return place.call(*RUN, "--store", name, "--out", f"{name}.out", *more)


def prepared(site: Path, place: Place) -> None:
    """The environment, and the study that uses it."""
    install(site, CALCULATOR, library=not HERE)
    (place.folder / "lessons.py").write_text(LESSONS)
    place.write(SPEC, "tools.reo")


def product(place: Place, store: str, name: str) -> bytes:
    """A file of the trained arm."""
    (path,) = (path for path in (place.folder / f"{store}.out").rglob(name) if "spender.s1" in path.parts)
    return path.read_bytes()


def train_and_look(site: Path, place: Place, *more: str) -> None:
    """Run the study, and see that lengths and budgets are of the model's own tokens, and that calls were learnt from."""
    prepared(site, place)
    told = studied(place, "whole", "--allow-python", *more)
    assert told.code == 0, told.err
    rollouts = pl.read_parquet(BytesIO(product(place, "whole", "rollouts.parquet")))
    called = rollouts.filter(pl.col("text").str.contains(r"</tool_call> <eos> says \d so"))
    assert called.height > 20
    # `says`, the sum, `so` and the ends of turns stand in the text beside the model's own words.
    words = called["text"].str.count_matches(" ") + 1
    assert (called["tokens"] <= 12).all()
    assert (called["tokens"] == words - 3 + (called["finish"] == "stop").cast(pl.Int64)).all()
    assert set(called["reward"]) <= {0.0, 0.25, 1.0, 1.25}
    assert 1.25 in set(called["reward"])
    metrics = pl.read_parquet(BytesIO(product(place, "whole", "metrics.parquet")))
    # The trainer gives the model's own tokens the probabilities that they were drawn with, all that was said before read.
    assert metrics["mismatch_max"].max() < 1.001
    samples = pl.read_parquet(BytesIO(product(place, "whole", "samples.parquet")))
    forced = pl.read_parquet(BytesIO(product(place, "whole", "forced.parquet")))
    assert samples["response"].str.contains("says").any()
    assert (forced.filter(pl.col("forced"))["budget"] < 12).all()


@confined
@pytest.mark.heavy
def test_a_model_is_trained_with_tools(site: Path, place: Place) -> None:
    train_and_look(site, place)


@confined
@pytest.mark.heavy
@pytest.mark.sglang
@pytest.mark.skipif(find_interpreter() is None, reason="SGLang is not installed here: run `make sglang`")
def test_a_model_is_trained_with_tools_on_a_server(site: Path, place: Place) -> None:
    train_and_look(site, place, "--amend", "spender.engine=sglang", "--amend", "caller.engine=sglang")


KILLS = """
import json, os, signal, sys
from pathlib import Path

from reodsl.cli.main import entry
from runners.sandbox.workers import Worker
from tests.undrawn import undraw

ask, asked, at, whom = Worker.ask_line, [], int(sys.argv.pop(1)), sys.argv.pop(1)


def killing(process, line, seconds):
    if "calls" in json.loads(line).get("rows", [{}])[0]:
        asked.append(process.process.pid)
        if len(asked) == at:
            os.write(process.process.stdin.fileno(), line)
            Path("asked").write_text(json.dumps(sorted({*asked})))
            os.kill(os.getpid() if whom == "run" else asked[-1], signal.SIGKILL)
    return ask(process, line, seconds)


Worker.ask_line = killing
undraw(setattr)
entry()
"""
"""A run of which something is killed while a tool is asked for the n-th time: the run itself, or the tool's process."""


def killed(place: Place, name: str, at: int, whom: str) -> tuple[int, str]:
    """The exit code of such a run, and what it said; the processes that it asked are gone."""
    (place.folder / "asked").unlink(missing_ok=True)
    words = (*RUN, "--store", name, "--out", f"{name}.out")
    paths = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    told = subprocess.run(
        [sys.executable, "-c", KILLS, str(at), whom, *words],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    until = time.monotonic() + 60
    for pid in json.loads((place.folder / "asked").read_text()):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until, f"{pid} outlives the run"
            time.sleep(0.05)
    return told.returncode, told.stderr


@confined
@pytest.mark.heavy
def test_whatever_is_killed_while_a_tool_is_called_the_bytes_stay_the_same(site: Path, place: Place) -> None:
    prepared(site, place)
    assert studied(place, "whole", "--allow-python").code == 0
    for at in (5, 20, 1, 40):
        assert killed(place, "again", at, "run") == (-signal.SIGKILL, "")
    assert studied(place, "again").code == 0
    assert killed(place, "alone", 30, "environment") == (0, "")
    for store in ("again", "alone"):
        for name in ("rollouts.parquet", "samples.parquet", "forced.parquet", "curves.json"):
            assert product(place, store, name) == product(place, "whole", name), (store, name)


@confined
def test_questions_with_tools_are_refused_where_no_response_may_call_them(
    site: Path, refusal: Callable[..., None]
) -> None:
    install(site, CALCULATOR, library=not HERE)
    questions = Environment("sums_env").questions([{"seed": 1, "draw": 0}])
    with pytest.raises(Problem) as caught:
        require_tools(Grading(), [each["meta"] for each in questions])
    refusal("own/E0750.txt", caught.value)
    code = Tools(code=Python(function="sums_env:verifiers"))
    require_tools(Grading(tools=code), [each["meta"] for each in questions])
    require_tools(Grading(), ["", "{}", '{"tools": 7}', "no JSON", '["tools"]'])
