"""Data: questions, where they come from, generated tasks and their traces."""

# Annotations are read as they are: no `from __future__ import annotations` here.

from typing import Annotated, Any, ClassVar, Literal

from reodsl.ir.names import ADDRESS, DATA_FILE, OWN_CODE, VARIABLE
from reodsl.ir.setting import (
    WORDS,
    A,
    Between,
    Choice,
    Either,
    Flag,
    Many,
    Num,
    Setting,
    Text,
    kind,
)
from reodsl.ir.settings.types import (
    CHECKPOINT,
    COUNT,
    DATA_SOURCES,
    NATURAL,
    POSITIVE,
    READER,
    SHARE,
    TOKENS,
    Temperature,
    TopK,
    TopP,
)


@kind("data", parents=("data",))
class Data:
    """Questions with reference answers."""

    source: ClassVar[
        Annotated[
            Any,
            Setting(
                Many(A(DATA_SOURCES, "`generated(…)`, `file(…)`, `hub(…)` or `package(…)`"), lone=True),
                "one source or a list, read one after another",
                'source = file("questions.jsonl")',
                required=True,
            ),
        ]
    ]
    verifier: Annotated[
        Any,
        Setting(
            Either(
                (
                    Choice(("math", "exact", "package")),
                    A(
                        ("python", "tests", "judge"),
                        '`python("FILE.py:FUNCTION")`, `tests()` or `judge("MODEL", address: "…")`',
                    ),
                ),
            ),
            "how answers are compared; `python(…)` is a function of yours, `tests()` runs programs, `judge(…)` asks a model",
            'verifier = python("checks.py:check")',
            default="math",
            required=False,
        ),
    ]
    answer: Annotated[
        Any,
        Setting(
            Many(READER, lone=True, most=8),
            "where a response's answer is read; of several, the first that finds one; for `tests()` it is `code`",
            'answer = [boxed, after("####")]',
            default="boxed",
            required=False,
        ),
    ]
    tolerance: Annotated[
        float,
        Setting(
            Num(low=0, high=1, below=True, example="0.0001"),
            "how far rounded numbers may be apart, a share of the reference; whole references are exact",
        ),
    ] = 0.0001
    thinking: Annotated[
        Literal["read", "skip"],
        Setting(
            WORDS,
            "whether answers count that stand in a model's thinking; `skip` reads what follows its last closing mark, and"
            " finds nothing in a response whose thinking was cut",
            later=True,
        ),
    ] = "read"
    duplicates: Annotated[Literal["error", "drop"], Setting(WORDS, "what to do with equal questions")] = (
        "error"
    )
    strip: Annotated[
        Any,
        Setting(
            Many(A(("marks",)), lone=True),
            "text that is taken off the beginning and end of questions, one after another",
            'strip = marks(before: "USER:", after: "ASSISTANT:")',
            required=False,
        ),
    ]
    questions: Annotated[int | None, Setting(COUNT, "how many there are, for the price alone")] = None
    tools: Annotated[
        Any,
        Setting(
            A(("tools",), '`tools(python("MODULE:verifiers"))`'),
            "tools that a response may call, in several turns",
            'tools = tools(python("sums_env:verifiers"))',
            required=False,
        ),
    ]


@kind("after", form="call", positional=("marker",))
class After:
    """Reads the line after the last marker as the answer."""

    marker: Annotated[str, Setting(Text(), "what stands before it", 'after("####")')]


@kind("regex", form="call", positional=("pattern",))
class Regex:
    """Reads the first group of the last match as the answer, or the whole match where there is no group."""

    pattern: Annotated[
        str, Setting(Text(), "a regular expression of Rust's dialect", 'regex("Answer: *(.+)")')
    ]


@kind("python", form="call", positional=("function",))
class Python:
    """A function of yours: in a Python file in the spec's folder, or in an installed package that offers it."""

    function: Annotated[
        str,
        Setting(
            Text(form=OWN_CODE),
            "`FILE.py:FUNCTION`, or `MODULE:FUNCTION` of an entry point in the group `reodsl.python`",
            'python("checks.py:check")',
        ),
    ]
    batch: Annotated[int, Setting(Num(whole=True, low=1, high=4096), "answers at a time")] = 64
    seconds: Annotated[
        float,
        Setting(Num("seconds", low=0, high=86400, above=True), "processor time that a batch may take"),
    ] = 10.0
    memory: Annotated[
        float, Setting(Num("GiB", low=0, high=1024, above=True), "that its process may take")
    ] = 2.0


@kind("tools", form="call", positional=("code",))
class Tools:
    """Tools of an environment of `verifiers`. A response that calls one goes on in another turn, after what it said."""

    code: Annotated[
        Any,
        Setting(
            A(("python",), '`python("MODULE:verifiers")`'),
            "the environment; its limits are those of one turn's calls",
            'python("sums_env:verifiers")',
            required=True,
        ),
    ]
    turns: Annotated[int, Setting(Num(whole=True, low=1, high=64), "of the model, at most")] = 8
    reply: Annotated[int, Setting(TOKENS, "that tools may say between two turns; what is longer is cut")] = (
        512
    )


@kind("tests", form="call")
class Tests:
    """Answers are programs, run against the tests that are their question's `answer`; all have to pass."""

    seconds: Annotated[
        float,
        Setting(
            Num("seconds", low=0, high=3600, above=True),
            "processor time that an answer may take, with all its tests",
        ),
    ] = 10.0
    memory: Annotated[
        float, Setting(Num("GiB", low=0, high=1024, above=True), "that its process may take")
    ] = 1.0


@kind("judge", form="call", positional=("model",))
class Judge:
    """A model behind an address says whether an answer is right, over OpenAI's interface of chat completions."""

    model: Annotated[
        str, Setting(Text(), "what its server calls it", 'judge("Qwen/Qwen3-32B", address: "…")')
    ]
    address: Annotated[
        str,
        Setting(
            Text(form=ADDRESS),
            "where it is asked, up to the `/v1`; no part of a result",
            'address: "http://127.0.0.1:30000/v1"',
        ),
    ]
    prompt: Annotated[
        str, Setting(Text(), "what makes an answer right", 'prompt: "It names both causes."')
    ] = "An answer is right if it says the same as the reference."
    meta: Annotated[
        tuple[str, ...],
        Setting(
            Many(Text(), lone=True),
            "columns of the data's metadata that it sees too",
            'meta: ["rubric"]',
        ),
    ] = ()
    max_tokens: Annotated[int, Setting(TOKENS, "that it may write for an answer")] = 1024
    key: Annotated[
        Any,
        Setting(
            Text(form=VARIABLE),
            "the environment variable that holds its key",
            'key: "JUDGE_KEY"',
            required=False,
        ),
    ]
    unclear: Annotated[
        Literal["error", "wrong"],
        Setting(WORDS, "what happens where it says neither yes nor no, asked twice"),
    ] = "error"
    seconds: Annotated[
        float,
        Setting(
            Num("seconds", low=0, high=86400, above=True), "that it may take for an answer, by the clock"
        ),
    ] = 120.0
    at_once: Annotated[
        int, Setting(Num(whole=True, low=1, high=1024), "answers that it is asked about at a time")
    ] = 8
    retries: Annotated[
        int,
        Setting(
            Num(whole=True, low=0, high=100),
            "how often it is asked again after a failure, at growing distances",
        ),
    ] = 6
    most_tokens: Annotated[
        int | None,
        Setting(
            Num("tokens", whole=True, low=1, high=10**12),
            "that it may read and write for one task in all; left out, no limit",
            "most_tokens: 5M tokens",
        ),
    ] = None
    expected: Annotated[
        float,
        Setting(
            Num("seconds", low=0, high=86400, above=True), "that it takes for an answer, for the price alone"
        ),
    ] = 2.0


@kind("pool", form="call", positional=("of",))
class Pool:
    """Graded responses of a checkpoint, for a selection to pick from."""

    of: ClassVar[
        Annotated[
            Any,
            Setting(
                A((*CHECKPOINT.kinds, "arm"), CHECKPOINT.of),
                "whose responses",
                "pool(checkpoint(qwen3_4b), data: areal_boba_7b, samples: 16, max_tokens: 32K tokens)",
                required=True,
            ),
        ]
    ]
    data: ClassVar[
        Annotated[Any, Setting(A(("data",)), "the questions", "data: areal_boba_7b", required=True)]
    ]
    samples: Annotated[int, Setting(COUNT, "responses a question, for each wording", "samples: 16")]
    max_tokens: ClassVar[
        Annotated[Any, Setting(TOKENS, "longest response", "max_tokens: 32K tokens", required=True)]
    ]
    temperature: ClassVar[Temperature]
    top_p: ClassVar[TopP]
    top_k: ClassVar[TopK]
    wordings: Annotated[
        Any, Setting(Many(A(("wording",))), "ways to ask; left out, the model's own prompt", required=False)
    ]


@kind("columns", form="call")
class Columns:
    """Which columns hold what the questions table needs."""

    question: Annotated[str, Setting(Text(), "the question")] = "question"
    answer: Annotated[str, Setting(Text(), "the reference answer")] = "answer"
    trace: Annotated[str | None, Setting(Text(), "a worked solution")] = None
    id: Annotated[str | None, Setting(Text(), "a name for the question")] = None
    meta: Annotated[
        tuple[str, ...],
        Setting(
            Many(Text(), lone=True),
            "further columns, for verifiers and rewards",
            'meta: ["entry_point"]',
            later=True,
        ),
    ] = ()


@kind("marks", form="call")
class Marks:
    """Text around a question that is not part of it: marks of a chat, or an instruction that models are given anyway."""

    before: ClassVar[
        Annotated[Any, Setting(Text(), "what questions begin with; white space around it does not count")]
    ]
    after: ClassVar[Annotated[Any, Setting(Text(), "what they end with, likewise")]]


@kind("generated", form="call", positional=("task",))
class Generated:
    """Questions drawn from a task."""

    task: Annotated[
        Any,
        Setting(
            A(("task", "programs", "python"), 'a task, `programs(…)`, or `python("FILE.py:FUNCTION")`'),
            "what to draw from: a task, or a function of yours",
            "generated(chain, count: 4096, seed: 1)",
            required=True,
        ),
    ]
    count: Annotated[int, Setting(COUNT, "how many", "count: 4096")]
    seed: Annotated[int, Setting(NATURAL, "draws them, apart from the run's seed", "seed: 1")]
    split: Annotated[Literal["train", "held_out"], Setting(WORDS, "which part of all questions")] = "train"
    traces: Annotated[Any, Setting(A(("traces",)), "how their solutions are written", required=False)]


@kind("file", form="call", positional=("path",))
class File:
    """A Parquet, JSONL, JSON or CSV file; a relative path starts at the spec's folder."""

    path: Annotated[str, Setting(Text(form=DATA_FILE), "where it is", 'file("questions.jsonl")')]
    columns: Annotated[Any, Setting(A(("columns",)), "which columns to read", required=False)]


@kind("task", parents=("task",))
class Task:
    """A chain of additions and subtractions, applied left to right."""

    modulus: Annotated[
        int, Setting(Num(whole=True, low=2, high=10**6), "values are modulo this", "modulus = 10")
    ]
    values: Annotated[
        tuple[str, ...], Setting(Many(Text(), 2), "the word of each value", 'values = words("0 1 2")')
    ]
    operations: Annotated[
        tuple[str, ...], Setting(Many(Text()), "signed digits, such as +7", 'operations = words("+1 -1")')
    ]
    labels: Annotated[
        tuple[str, ...], Setting(Many(Text()), "the name of each step", 'labels = words("a b c")')
    ]
    question: Annotated[
        str, Setting(Text(), "a template with {start} and {steps}", 'question = "{start} {steps} ?"')
    ]
    step: Annotated[str, Setting(Text(), "a template with {label} and {op}", 'step = "{label} {op}"')]
    length: Annotated[
        Any,
        Setting(
            Between(Num(whole=True, low=1, high=4096)),
            "how many operations",
            "length = 2..8",
            required=True,
        ),
    ]


@kind("programs", form="call")
class Programs:
    """Questions for a function of one number, with tests and a worked solution: `tests()` verifies their answers."""

    steps: Annotated[
        Any,
        Setting(
            Between(Num(whole=True, low=1, high=16)),
            "how many lines the function needs",
            "steps: 1..3",
            required=True,
        ),
    ]
    largest: Annotated[
        int, Setting(Num(whole=True, low=1, high=10**6), "numbers in questions go up to this")
    ] = 9
    tests: Annotated[int, Setting(Num(whole=True, low=1, high=64), "of each question")] = 4
    question: Annotated[
        str, Setting(Text(), "a template with {name} and {steps}", 'question: "{name}: {steps}"')
    ] = "Write a Python function `{name}(x)` of a whole number x. {steps} Then return x."
    form: Annotated[
        Literal["block", "line"],
        Setting(
            WORDS, "how solutions are written: a `def` between fences, or a `lambda` in one line of words"
        ),
    ] = "block"
    trace: Annotated[
        str, Setting(Text(), "a template with {solution}, for SFT", 'trace: "</think> {solution}"')
    ] = "{solution}"


@kind("traces", parents=("traces",), children=("style",))
class Traces:
    """How a worked solution is written, redundant re-checks and mistakes included."""

    open: Annotated[str, Setting(Text(nonempty=False), "what a pass begins with", 'open = "so"')]
    close: Annotated[
        str, Setting(Text(nonempty=False), "what a pass ends with; holds {value}", 'close = "so {value} ."')
    ]
    again: Annotated[str, Setting(Text(nonempty=False), "what stands between passes", 'again = "wait"')]
    answer: Annotated[str, Setting(Text(), "the end of a trace; holds {value}", 'answer = "answer {value}"')]
    filler: Annotated[tuple[str, ...], Setting(Many(Text(), 0), "words without meaning")] = ()
    filler_probability: Annotated[float, Setting(SHARE, "of a filler before a step")] = 0.0
    error: Annotated[float, Setting(SHARE, "of a step whose result is off by one and carried on")] = 0.0
    restyle: Annotated[float, Setting(SHARE, "of a step that draws its style anew")] = 0.0
    another_pass: Annotated[float, Setting(SHARE, "of a further pass")] = 0.0
    max_passes: Annotated[int, Setting(Num(whole=True, low=1, high=64), "passes at most")] = 1
    until_agree: Annotated[bool, Setting(Flag(), "always another pass while the last two disagree")] = False


@kind("style")
class Style:
    """One way to write a step."""

    template: Annotated[
        str, Setting(Text(), "holds {label}, {value}, {op}, {next}", 'template = "{value} {op} {next} ."')
    ]
    weight: Annotated[float, Setting(POSITIVE, "how often, relative to the other styles")] = 1.0
