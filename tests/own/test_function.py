"""Functions of the user's in their confined processes: what they may do, and one clear message for all that is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import torch

from reodsl.diagnostics import Diagnostic, Problem
from reodsl.ir.data import Python
from reodsl.ir.training import Loss
from reodsl.store.consent import read_code
from runners.own import function as function_module
from runners.own.function import FailedRow, UserFunction, source_problem
from runners.own.worker import ROWS as ROWS_OF
from runners.own.worker import reply_for
from runners.sandbox import lacking
from runners.train.own_loss import UserLoss
from tests.train.test_update import method

confined = pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"question": "2 + 2?", "text": text, "reference": "4", "references": ["4"], "meta": {"hard": 1}}
    for text in ("4", "5", "")
]
Made = Callable[..., UserFunction]
NAMES = {"verifier": "check", "reward": "score", "task": "make", "advantage": "advantage"}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """A function of a file with this text, in one process, with little time."""
    functions = []

    def make(text: str, role: str = "verifier", **limits: float) -> UserFunction:
        (tmp_path / "checks.py").write_text(text)
        code = read_code(f"checks.py:{NAMES[role]}", tmp_path)
        assert source_problem(code, role) is None
        given = {"batch": 2, "seconds": 5.0, "memory_mib": 2048, **limits}
        functions.append(UserFunction(code, role, confined=lacking() is None, **given))  # type: ignore[arg-type]
        return functions[-1]

    yield make
    for each in functions:
        each.close()


ONE = "def check(answer):\n    return answer.text == answer.reference and answer.meta['hard'] == 1\n"
MANY = """import numpy as np
seen = []

def check(answers):
    seen.extend(answers)
    assert len(seen) == len(answers) <= 2, "batches know of each other"
    return np.array([each.text == each.references[0] for each in answers])
"""


@pytest.mark.parametrize("text", [ONE, MANY], ids=["one", "many"])
def test_each_row_gets_its_value(made: Made, text: str) -> None:
    assert made(text).call(ROWS) == [1.0, 0.0, 0.0]


WHOLE = [
    {**row, "text": f"so {row['text']}", "answer": row["text"], "correct": True, "tokens": 2} for row in ROWS
]


def test_a_reward_gives_any_finite_number(made: Made) -> None:
    function = made(
        "def score(response):\n    return response.tokens / 4 if response.correct and response.answer else -1e9\n",
        "reward",
    )
    assert function.call(WHOLE) == [0.5, 0.5, -1e9]


def test_a_reward_that_gives_an_infinity_is_refused(made: Made) -> None:
    with pytest.raises(Problem, match="gave inf for 'so 4'"):
        made("def score(response):\n    return float('inf')\n", "reward").call(WHOLE)


GROUPS = [
    {
        "rewards": [[1.0, 2.0], [0.0, 4.0]],
        "sections": [[3, 2], [4, 0]],
        "lengths": [5, 4],
        "correct": [True, False],
    },
    {"rewards": [[1.0, 2.0]], "sections": [[3, 2]], "lengths": [5], "correct": [True]},
]


@pytest.mark.parametrize(
    "text",
    [
        "def advantage(group):\n    return [sum(each) for each in group.rewards]\n",
        "import numpy as np\n\ndef advantage(groups):\n"
        "    return [np.array(each.rewards).sum(1)[:, None].repeat(2, 1) for each in groups]\n",
    ],
    ids=["one", "many"],
)
def test_advantages_are_of_responses_or_of_their_sections(made: Made, text: str) -> None:
    assert made(text, "advantage").advantages(GROUPS) == [[[3.0, 3.0], [4.0, 4.0]], [[3.0, 3.0]]]


NO_ADVANTAGES = {
    "was given 2 responses and gave 1 values": "return [0.0]",
    "was given 2 sections and gave 3 values": "return [[0.0] * 3 for _ in group.rewards]",
    "gave nan for 'rewards of": "return [float('nan') for _ in group.rewards]",
    "gave 3.0 instead of a list of 2 values": "return 3.0",
    "gave None for": "return [None, None]",
}


@pytest.mark.parametrize("words", NO_ADVANTAGES)
def test_what_are_no_advantages_is_refused(made: Made, words: str) -> None:
    with pytest.raises(Problem, match=words) as caught:
        made(f"def advantage(group):\n    {NO_ADVANTAGES[words]}\n", "advantage").advantages(GROUPS)
    assert caught.value.diagnostics[0].code == "E0744"


TASK = """from random import Random
from reodsl.own import Question

def make(random: Random) -> Question:
    a = random.randrange(12)
    return Question(f"{a} + 1?", str(a + 1), meta={"a": a})
"""


def test_a_draw_depends_on_seed_and_number_alone(made: Made) -> None:
    function = made(TASK, "task")
    whole = function.draw(3, range(6))
    assert whole == function.draw(3, range(4)) + function.draw(3, range(4, 6))
    assert whole != function.draw(4, range(6))
    numbers = [Random(f"3 {draw}").randrange(12) for draw in range(6)]
    assert [each["question"] for each in whole] == [f"{a} + 1?" for a in numbers]
    assert {key: whole[0][key] for key in ("answer", "meta", "trace")} == {
        "answer": str(numbers[0] + 1),
        "meta": f'{{"a": {numbers[0]}}}',
        "trace": "",
    }


NO_QUESTIONS = {
    "which is a str and no `Question`": "return '1 + 1?'",
    "the `answer` of a question is 2": "return Question('1 + 1?', 2)",
    "the `question` of a question is ' '": "return Question(' ', '2')",
    "which cannot be written as JSON": "return Question('1 + 1?', '2', meta={'a': {1}})",
    "and may have 1,048,576": "return Question('1' * 2**20, '2')",
}


@pytest.mark.parametrize("words", NO_QUESTIONS)
def test_what_is_no_question_is_refused(made: Made, words: str) -> None:
    body = NO_QUESTIONS[words]
    with pytest.raises(Problem) as caught:
        made(f"from reodsl.own import Question\ndef make(random):\n    {body}\n", "task").draw(1, range(1))
    assert caught.value.diagnostics[0].code == "E0744"
    assert words in caught.value.diagnostics[0].message


def test_what_is_printed_goes_nowhere(made: Made, capfd: pytest.CaptureFixture[str]) -> None:
    function = made(
        'import os\ndef check(answer):\n    print("1")\n    os.write(1, b"{}\\n")\n    return True\n'
    )
    assert function.call(ROWS) == [1.0] * 3
    assert capfd.readouterr() == ("", "")


# What goes wrong: the code of the message, its line, words in it, and the body of the function.
WRONG = {
    "raises": ("E0744", 2, "ZeroDivisionError: division by zero", "return 1 / 0"),
    "prints": ("E0744", 2, "printed more than 1,048,576 characters", "print('x' * 3_000_000)"),
    "imports": ("E0744", 2, "No module named 'nowhere'", "import nowhere"),
    "leaves": ("E0744", 2, "SystemExit", "raise SystemExit(0)"),
    "ends": ("E0744", None, "ended its process", "import os; os._exit(3)"),
    "crashes": ("E0744", None, "ended its process", "import ctypes; ctypes.string_at(0)"),
    "swells": ("E0744", 2, "more than 2048 MiB of memory", "bytearray(8 << 30)"),
    "nan": ("E0744", None, "gave nan", "return float('nan')"),
    "share": ("E0744", None, "gave 0.5", "return 0.5"),
    "text": ("E0744", None, "a str and no number", "return 'yes'"),
    "nothing": ("E0744", None, "gave None", "pass"),
}
REFUSED = {
    "forks": "import os; os.fork()",
    "starts": "import subprocess; subprocess.run(['true'])",
    "threads": "import threading; threading.Thread(target=print).start()",
    "writes": "open('left.txt', 'w')",
    "reads": "open('/etc/passwd')",
    "connects": "import socket; socket.create_connection(('127.0.0.1', 9))",
    "sleeps": "import time; time.sleep(0.1)",
}
CONFINED = {name: ("E0744", 2, "Error", body) for name, body in REFUSED.items()}


@pytest.mark.parametrize("name", [*WRONG, *(pytest.param(name, marks=confined) for name in CONFINED)])
def test_what_goes_wrong_is_one_message_with_its_line(
    made: Made, tmp_path: Path, name: str, refusal: Callable[..., None]
) -> None:
    code, line, words, body = (WRONG | CONFINED)[name]
    with pytest.raises(Problem) as caught:
        made(f"def check(answer):\n    {body}\n").call(ROWS[:1])
    (found,) = caught.value.diagnostics
    assert (found.code, found.where) == (code, f"{tmp_path / 'checks.py'}{f':{line}' if line else ''}")
    assert words in found.message
    assert found.help
    if name == "ends":
        assert "its exit status was 3: remove code that ends the process" in found.help
    elif name == "crashes":
        assert "it may have run out of its" in found.help
    if name in REFUSED:
        assert (
            found.help
            == "it may only compute and read installed packages: no files, processes, threads or network"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["checks.py"]
    if name in ("raises", "nan"):
        refusal(f"own/{code}{'-gives' * (name == 'nan')}.txt", caught.value)


@confined
def test_a_file_does_nothing_as_it_is_loaded(made: Made) -> None:
    with pytest.raises(Problem, match="PermissionError"):
        made("import os\nos.fork()\n\ndef check(answer):\n    return True\n").call(ROWS)


@confined
def test_a_package_that_cannot_be_loaded_is_named(made: Made) -> None:
    """A file may hold a loss beside an advantage. Half of torch said nonsense of itself when it was imported again."""
    with pytest.raises(Problem, match="`torch` cannot be loaded in the sandbox") as caught:
        made("import torch.nn as nn\n\ndef advantage(group):\n    return [0.0, 0.0]\n", "advantage").call(
            GROUPS
        )
    assert "it may only compute" in str(caught.value.diagnostics[0].help)


STUBBORN = """def check(answer):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""


@pytest.mark.parametrize(
    ("text", "line"), [("def check(answer):\n    while True:\n        pass\n", True), (STUBBORN, False)]
)
def test_a_loop_ends(made: Made, text: str, line: bool) -> None:
    with pytest.raises(Problem) as caught:
        made(text, seconds=0.05).call(ROWS[:1])
    (found,) = caught.value.diagnostics
    assert found.code == "E0744"
    assert "took more than its 0.05 s of processor time" in found.message
    assert re.search(r"checks\.py:[23]$", found.where or "") if line else found.where


QUESTION = "from reodsl.own import Question\n"
BEHAVIOURS = {"forks": "import os; os.fork()", "writes": "open('left.txt', 'w')", "loops": "while True: pass"}


@confined
@pytest.mark.parametrize("role", ["reward", "task"])
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_rewards_and_tasks_are_held_as_verifiers_are(
    made: Made, tmp_path: Path, name: str, role: str
) -> None:
    param = {"reward": "response", "task": "random"}[role]
    text = f"{QUESTION}def {NAMES[role]}({param}):\n    {BEHAVIOURS[name]}\n"
    function = made(text, role, seconds=0.05 if name == "loops" else 5.0)
    with pytest.raises(Problem) as caught:
        function.call(WHOLE[:1]) if role == "reward" else function.draw(1, range(1))
    (found,) = caught.value.diagnostics
    assert (found.code, found.where) == ("E0744", f"{tmp_path / 'checks.py'}:3")
    words = "took more than its 0.05 s of processor time" if name == "loops" else "Error"
    assert words in found.message
    assert [path.name for path in tmp_path.iterdir()] == ["checks.py"]
    if name == "loops":
        response = "y, " if role == "reward" else ""
        assert f'python("checks.py:{NAMES[role]}", {response}batch: 1, seconds: 0.1 seconds)' in found.help


# By role: what is given in place of what is asked, and words of the one message.
UNFIT: dict[str, dict[str, str]] = {
    "verifier": {
        "float('nan')": "gave nan for '4', and a number must be finite",
        "10 ** 400": "and a number must be finite",
        "[True, False]": "which is a list and no number",
        "np.array([True, False])": "which is a ndarray and no number",
        "'right'": "which is a str and no number",
        "0.5": "a verifier returns True or False",
    },
    "reward": {
        "float('nan')": "gave nan for 'so 4', and a number must be finite",
        "-10 ** 400": "and a number must be finite",
        "(1.0, 2.0)": "which is a tuple and no number",
        "np.ones((1, 2))": "which is a ndarray and no number",
        "'0.5'": "which is a str and no number",
        "1j": "which is a complex and no number",
    },
    "task": {
        "float('nan')": "which is a float and no `Question`",
        "[Question('a', 'b')]": "which is a list and no `Question`",
        "('a', 'b')": "which is a tuple and no `Question`",
        "Question('a', float('nan'))": "the `answer` of a question is nan",
        "Question('a', 'b', meta={'x': float('nan')})": "which cannot be written as JSON",
        "Question('a\\ud800', 'b')": "which has half a character",
    },
}
FAILS = {
    "print('x' * 3_000_000)": "it printed more than 1,048,576 characters",
    "import nowhere": "ModuleNotFoundError: No module named 'nowhere'",
    "raise SystemExit(3)": "SystemExit: 3",
    "__import__('nowhere')": "No module named 'nowhere'",
}
WRONG_LISTS = {
    "answers": "which is an Answer and no number",
    "[True]": "was given 3 answers and gave 1 values",
    "[True] * 4": "was given 3 answers and gave 4 values",
    "{1, 2, 3}": "gave {1, 2, 3} instead of a list of 3 values",
    "{'a': 1, 'b': 1, 'c': 1}": "instead of a list of 3 values",
    "(True for each in answers)": "instead of a list of 3 values",
    "np.array(1.0)": "instead of a list of 3 values",
    "np.ones((3, 2))": "which is a ndarray and no number",
    "np.ones((2, 3))": "was given 3 answers and gave 2 values",
    "None": "gave None instead of a list of 3 values",
    "'yes'": "instead of a list of 3 values",
}


def problem_of(tmp_path: Path, text: str, role: str, monkeypatch: pytest.MonkeyPatch) -> Diagnostic:
    """What is told of a file, run in this process, which no process of its own is needed for."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    (tmp_path / "checks.py").write_text(text)
    code = read_code(f"checks.py:{NAMES[role]}", tmp_path)
    function = UserFunction(code, role, batch=8, seconds=5.0, memory_mib=2048)
    rows = {"verifier": ROWS, "reward": WHOLE, "task": [{"seed": 1, "draw": 0}], "advantage": GROUPS}[role]
    said = json.loads(reply_for(json.loads(function._pool._settings), rows))
    with pytest.raises(Problem) as caught:
        function._read_values(said, len(rows), lambda value: True)
    (found,) = caught.value.diagnostics
    return found


@pytest.mark.parametrize(
    ("role", "value"), [(role, value) for role, values in UNFIT.items() for value in values]
)
def test_a_value_that_is_not_what_is_asked_is_one_message(
    tmp_path: Path, role: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    param = ROWS_OF[role][0]
    text = f"import numpy as np\n{QUESTION}def {NAMES[role]}({param}):\n    return {value}\n"
    found = problem_of(tmp_path, text, role, monkeypatch)
    assert found.code == "E0744"
    assert UNFIT[role][value] in found.message


SAID = {
    "401 digits": '{"status": "done", "values": [1%s]}' % ("0" * 400),
    "5,000 digits": '{"status": "done", "values": [%s]}' % ("9" * 5000),
    "nested": '{"status": "done", "values": %s}' % ("[" * 990 + "]" * 990),
    "no number": '{"status": "done", "values": [NaN]}',
    "a list": "[]",
}


@confined
@pytest.mark.parametrize("said", SAID)
def test_a_reply_that_is_none_is_one_message(made: Made, said: str) -> None:
    line = (
        "    import os\n    for n in range(64):\n"
        f"        try: os.write(n, {SAID[said].encode()!r})\n        except OSError: pass\n    os._exit(0)\n"
    )
    with pytest.raises(Problem, match="its reply cannot be read") as caught:
        made(f"def score(response):\n{line}", "reward").call(WHOLE[:1])
    assert caught.value.diagnostics[0].code == "E0744"


EVALUATES = "def check(answer):\n    exec(answer.text, {})\n    return answer.text == ''\n"
PAYS = "def score(response):\n    exec(response.text, {})\n    return response.text == ''\n"
WRITES = "import os\nfor n in range(64):\n    try: os.write(n, %s)\n    except OSError: pass\nos._exit(0)"
EACH = b'{"status": "each", "rows": [%s]}' % b", ".join([b'{"status": "done", "values": [true]}'] * 4)
HOSTILE = {
    "ends": ("import os; os._exit(1)", "failed"),
    "ends well": ("import os; os._exit(0)", "failed"),
    "leaves": ("raise SystemExit", "failed"),
    "raises": ("1 / 0", "failed"),
    "waits": ("import threading; threading.Event().wait()", "failed"),
    "waits a while": ("import threading; threading.Event().wait(1e6)", "failed"),
    "loops": ("while True: pass", "timeout"),
    "ignores its limits": (
        "import signal\nfor n in (signal.SIGPROF, signal.SIGXCPU): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        "timeout",
    ),
    "recurses": ("def f(): f()\nf()", "failed"),
    "recurses deeper": (
        "import sys; sys.setrecursionlimit(10**9)\ndef f(): [*map(lambda n: f(), [1])]\nf()",
        "failed",
    ),
    "swells": ("[0] * 10**12", "failed"),
    "aborts": ("import os; os.abort()", "failed"),
    "says much": (WRITES % "b'1' * 2**21", "failed"),
    "says nothing that is read": (WRITES % "b'[' * 990", "failed"),
    "says what is right for all": (WRITES % b'{"status": "done", "values": [1, 1, 1, 1]}', "failed"),
    "says what its process says": (WRITES % EACH, "failed"),
    "says that all are lost": (WRITES % b'{"status": "error", "message": 7}', "failed"),
    "lowers its limit": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
        "failed",
    ),
    "raises half a letter": ("raise ValueError('\\ud800\\n\\x1b[2J')", "failed"),
}
# What the report says of some of them.
WHY = {
    "raises": "ZeroDivisionError: division by zero, line 2$",
    "raises half a letter": r"ValueError, line 2$|ValueError: ?(\[2J)?",
    "loops": r"took more than its 0\.5 s of processor time",
    "ends": "it ended its process$",
    "says much": "cannot be read: it has [0-9,]+ bytes|ended its process",
    "says nothing that is read": "cannot be read: it is nested deeper than 400",
    "recurses": "RecursionError",
}
REWRITES = """
import gc, sys
frame = sys._getframe()
while frame:
    for each in list(frame.f_locals.values()):
        if isinstance(each, list):
            each[:] = [True] * len(each)
        if isinstance(each, dict) and "text" in each:
            each["text"] = ""
    frame = frame.f_back
for each in gc.get_objects():
    if type(each).__name__ == "Answer":
        object.__setattr__(each, "text", "")
"""


@pytest.mark.slow
@confined
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("role", ["verifier", "reward"])
def test_what_an_answer_makes_of_the_function_is_its_own_failure(made: Made, name: str, role: str) -> None:
    body, status = HOSTILE[name]
    given, text = (ROWS[0], EVALUATES) if role == "verifier" else (WHOLE[0], PAYS)
    rows = [{**given, "text": text} for text in ("", body, "", "pass")]
    function = made(text, role, batch=4, seconds=1.5 if name == "lowers its limit" else 0.5)
    first, failed, third, last = function.call(rows)
    assert (first, third, last) == (1.0, 1.0, 0.0)
    assert isinstance(failed, FailedRow)
    assert failed.status == status
    assert re.search(WHY.get(name, "."), failed.why)
    assert "/" not in failed.why
    # Nobody had to be started anew.
    assert function._pool.started == 1


def test_a_list_whose_process_ends_says_that_its_answers_share_it(made: Made) -> None:
    text = "import os\ndef check(answers):\n    os._exit(0)\n"
    with pytest.raises(Problem, match="a batch of 2 rows"):
        made(text).call(ROWS[:2])


@confined
def test_an_answer_reaches_no_other(made: Made) -> None:
    rows = [{**ROWS[0], "text": text} for text in ("pass", REWRITES, "pass", "")]
    graded = made(EVALUATES, batch=4).call(rows)
    assert (graded[0], graded[2], graded[3]) == (0.0, 0.0, 1.0)


@confined
def test_a_function_that_grades_nothing_is_the_users_mistake(made: Made) -> None:
    function = made("def check(answer):\n    return answer.nowhere\n")
    with pytest.raises(Problem, match="AttributeError"):
        function.call(ROWS)


@confined
def test_an_answers_time_is_its_own(made: Made) -> None:
    text = "import time\ndef check(answer):\n    end = time.process_time() + 0.3\n"
    function = made(
        text + "    while time.process_time() < end: pass\n    return True\n", batch=8, seconds=1.0
    )
    assert function.call(ROWS * 2) == [1.0] * 6


@pytest.mark.parametrize("role", NAMES)
@pytest.mark.parametrize("body", FAILS)
def test_what_fails_is_one_message_with_its_line_in_every_role(
    tmp_path: Path, role: str, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    param = ROWS_OF[role][0]
    found = problem_of(tmp_path, f"def {NAMES[role]}({param}):\n    {body}\n", role, monkeypatch)
    assert (found.code, found.where) == ("E0744", f"{tmp_path / 'checks.py'}:2")
    assert FAILS[body] in found.message


@pytest.mark.parametrize("value", WRONG_LISTS)
def test_a_list_of_another_shape_is_one_message(
    tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"import numpy as np\ndef check(answers):\n    return {value}\n"
    found = problem_of(tmp_path, text, "verifier", monkeypatch)
    assert found.code == "E0744"
    assert WRONG_LISTS[value] in found.message


def test_a_list_of_another_length_is_refused(made: Made) -> None:
    with pytest.raises(Problem, match="was given 2 answers and gave 1 values"):
        made("def check(answers):\n    return [True]\n").call(ROWS[:2])


def test_a_process_that_somebody_ends_is_replaced(made: Made) -> None:
    function = made(ONE)
    assert function.call(ROWS[:1]) == [1.0]
    (process,) = function.pids()
    os.kill(process, signal.SIGKILL)
    assert function.call(ROWS) == [1.0, 0.0, 0.0]
    assert function.pids() != [process]


def test_a_process_that_somebody_ends_as_it_starts_is_started_once_more(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, script = tmp_path / "died", tmp_path / "dying.py"
    script.write_text(
        "import os, pathlib, runpy\n"
        f"mark = pathlib.Path({str(mark)!r})\n"
        "if not mark.exists():\n"
        "    mark.touch()\n"
        "    os.kill(os.getpid(), 9)\n"
        f"runpy.run_path({str(function_module.WORKER)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(function_module, "WORKER", script)
    assert made(ONE).call(ROWS) == [1.0, 0.0, 0.0]
    assert mark.exists()


SOURCES = {
    "does not parse": ("def check(answer:\n    pass\n", 1),
    "no top-level function `check`; it has `grade`": ("def grade(answer):\n    pass\n", None),
    "takes nothing": ("def check():\n    pass\n", 1),
    "takes `text`": ("\ndef check(text):\n    pass\n", 2),
    "takes `answer, reference`": ("def check(answer, reference):\n    pass\n", 1),
    "it is not awaited": ("async def check(answer):\n    pass\n", 1),
}


@pytest.mark.parametrize("words", SOURCES)
def test_a_file_that_cannot_be_used_is_told_without_running_it(tmp_path: Path, words: str) -> None:
    text, line = SOURCES[words]
    (tmp_path / "checks.py").write_text(f"{text}raise RuntimeError\n")
    found = source_problem(read_code("checks.py:check", tmp_path), "verifier")
    assert found is not None
    assert found.code == "E0743"
    assert words.split(";")[0].removesuffix(" `check`") in found.message
    assert (found.where or "").endswith(f"checks.py:{line}" if line else "checks.py")


EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "OWN_CODE.md").read_text(), re.M | re.S)


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "def check" in text])
def test_the_documents_verifiers_run(made: Made, text: str) -> None:
    assert made(text).call(ROWS[::2]) == [1.0, 0.0]


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "def score" in text])
def test_the_documents_rewards_run(made: Made, text: str) -> None:
    assert made(text, "reward").call([{**WHOLE[0], "text": "a b a a"}]) == [0.5]


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "def advantage" in text])
def test_the_documents_advantages_run(made: Made, text: str) -> None:
    (pair, alone) = made(text, "advantage").advantages(GROUPS)
    assert (pair, alone) == ([[-1.0, -1.0], [1.0, 1.0]], [[0.0, 0.0]])


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "def loss" in text])
def test_the_documents_losses_can_be_tried(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    ours = method(kl=0.1, loss=Loss(own=Python(function="mine.py:loss")))
    code = read_code("mine.py:loss", tmp_path)
    assert source_problem(code, "loss") is None
    UserLoss(code, ours).try_it(torch.device("cpu"))


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "def make" in text])
def test_the_documents_tasks_run(made: Made, text: str) -> None:
    drawn = made(text, "task").draw(1, range(2))
    assert [eval(each["question"][8:-1]) for each in drawn] == [int(each["answer"]) for each in drawn]


def test_the_pages_right_examples_run(made: Made) -> None:
    for code in ("E0743", "E0744"):
        page = (ROOT / "reodsl" / "diagnostics" / "pages" / f"{code}.md").read_text()
        assert made(re.findall(r"```python\n(.*?)```", page, re.S)[1]).call(ROWS) == [1.0, 0.0, 0.0]
