"""Models: where weights come from, how a question becomes a prompt, and how an answer is forced."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from reodsl.ir.base import IR
from reodsl.ir.names import ADDRESS, FOLDER, REPO, REVISION, VARIABLE
from reodsl.ir.setting import (
    COUNT,
    MODEL_SOURCES,
    POSITIVE,
    TEMPERATURE,
    TOKENS,
    TOP_P,
    WORDS,
    Block,
    Flag,
    Kind,
    ListOf,
    Num,
    OfKind,
    Text,
    kind,
    setting,
    settings_below,
)

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
"""The marks around the reasoning of a model that names none."""


@kind("tokenizer", parents=("tokenizer",))
class WordTokenizer(IR):
    """A word-level vocabulary, with a token for each word between spaces."""

    words: tuple[str, ...] = setting(ListOf(Text(), 2), "every word", 'words = words("a b c <eos>")')
    eos: str = setting(Text(), "the word that ends a response", 'eos = "<eos>"')
    pad: str = setting(Text(), "the word that fills up a batch", 'pad = "<pad>"')


@kind("architecture", form="call")
class Architecture(IR):
    """Fresh weights from a configuration; the run's seed draws them."""

    kind: Literal["architecture"] = "architecture"
    family: Literal["qwen3", "llama"] = setting(WORDS, "the architecture", "family: qwen3")
    hidden: int = setting(COUNT, "width of the residual stream", "hidden: 2")
    layers: int = setting(COUNT, "transformer blocks", "layers: 2")
    heads: int = setting(COUNT, "query heads", "heads: 2")
    kv_heads: int = setting(COUNT, "key and value heads", "kv_heads: 2")
    head_dim: int = setting(COUNT, "width of a head", "head_dim: 2")
    intermediate: int = setting(COUNT, "width of the feed-forward layer", "intermediate: 2")
    tie_embeddings: bool = setting(Flag(), "one matrix for input and output", default=True)
    rope_theta: float = setting(POSITIVE, "base of the rotary embedding", default=10000.0)
    tokenizer: WordTokenizer = setting(OfKind(("tokenizer",)), "its vocabulary", "tokenizer: words")


@kind("folder", form="call", positional=("path",))
class Folder(IR):
    """A local folder in the layout of `transformers`, with safetensors weights and a tokenizer."""

    kind: Literal["folder"] = "folder"
    path: str = setting(Text(form=FOLDER), "where it is", 'folder("models/mine")')


class HubSource(IR):
    """A model or a data set of a hub by name, found in the local cache or a local mirror."""

    kind: Literal["hub"] = "hub"
    repo: str = setting(Text(form=REPO), "its name", 'hub("Qwen/Qwen3-4B")')
    revision: str | None = setting(Text(form=REVISION), "a commit or tag", default=None)


class Hub(HubSource):
    """A model of a hub by name, found in the local cache or a local mirror."""


@kind("served", form="call", positional=("model",))
class ServedModel(IR):
    """A model behind an address, asked over OpenAI's interface of completions. It can be evaluated, and not trained.

    No result depends on what `incidental` names: where it is, and how it is asked.
    """

    incidental: ClassVar[frozenset[str]] = frozenset({"address", "key", "seconds", "at_once", "retries"})
    kind: Literal["served"] = "served"
    model: str = setting(
        Text(),
        "what its server calls it",
        'served("Qwen/Qwen3-4B", address: "http://127.0.0.1:8000/v1", tokenizer: hub("Qwen/Qwen3-4B"))',
    )
    address: str = setting(
        Text(form=ADDRESS),
        "the server's address, up to the `/v1`; results do not depend on it",
        'address: "http://127.0.0.1:8000/v1"',
    )
    tokenizer: Annotated[Folder | Hub, Field(discriminator="kind")] = setting(
        OfKind(("hub", "folder"), "`hub(…)` or `folder(…)`"),
        "the model's tokenizer on this machine; weights in the same folder are not read",
        'tokenizer: hub("Qwen/Qwen3-4B")',
    )
    revision: str | None = setting(
        Text(form=REVISION),
        "a name of your choice for the weights that the server has; another name makes another result",
        'revision: "step-400"',
        default=None,
    )
    key: str | None = setting(
        Text(form=VARIABLE),
        "the environment variable that holds the server's key",
        'key: "SERVER_KEY"',
        default=None,
    )
    seconds: float = setting(
        Num("seconds", low=0, high=86400, above=True),
        "the longest time that a response may take",
        default=3600.0,
    )
    at_once: int = setting(Num(integer=True, low=1, high=1024), "responses requested at a time", default=32)
    retries: int = setting(
        Num(integer=True, low=0, high=100),
        "how often a failed request is repeated, with growing pauses",
        default=6,
    )


ModelSource = Annotated[Architecture | Folder | Hub | ServedModel, Field(discriminator="kind")]


@kind("dimensions", form="block")
class Dimensions(IR):
    """The sizes that pricing needs, as counts, for a model whose weights are not on this machine."""

    parameters: int = setting(Num(integer=True, low=1), "all weights", "parameters = 4.02G")
    layers: int = setting(COUNT, "transformer blocks", "layers = 36")
    hidden: int = setting(COUNT, "width of the residual stream", "hidden = 2560")
    heads: int = setting(COUNT, "query heads", "heads = 32")
    kv_heads: int = setting(COUNT, "key and value heads", "kv_heads = 8")
    head_dim: int = setting(COUNT, "width of a head", "head_dim = 128")
    intermediate: int = setting(COUNT, "width of the feed-forward layer", "intermediate = 9728")
    vocabulary: int = setting(COUNT, "rows of the embedding", "vocabulary = 151936")


@kind("prompt", form="block")
class Prompt(IR):
    """A model's input, as it is made from a question."""

    kind: Literal["raw", "chat"] = setting(WORDS, "plain text, or the model's chat template", default="raw")
    template: str = setting(Text(), "the text around `{question}`", default="{question}")
    system: str | None = setting(Text(nonempty=False), "a system message, for chat", default=None)
    prefix: str = setting(Text(nonempty=False), "the text that every response begins with", default="")


@kind("forcing", parents=("forcing",))
class Forcing(IR):
    """The text that makes a cut response answer, in at most `answer_tokens` tokens up to `close`."""

    presentation = frozenset({"name"})
    name: str = ""
    text: str = setting(Text(), "appended byte for byte", 'text = "**Final Answer**"')
    answer_tokens: int = setting(TOKENS, "tokens of the answer, at most", "answer_tokens = 20 tokens")
    close: str = setting(
        Text(blank=True), "the text that ends the answer; `\\n` is the end of the line", default="}"
    )
    temperature: float = setting(TEMPERATURE, "0 is greedy", default=0.0)
    top_p: float = setting(TOP_P, "nucleus sampling; 1 keeps the full distribution", default=1.0)


@kind("model", parents=("model",), example='model mine { source = folder("…"), context = 32K tokens }')
class Model(IR):
    """A model as it enters an experiment."""

    presentation = frozenset({"name"})
    name: str
    source: ModelSource = setting(
        OfKind(MODEL_SOURCES, "`hub(…)`, `folder(…)`, `architecture(…)` or `served(…)`"),
        "where the weights come from",
        'source = hub("Qwen/Qwen3-4B")',
    )
    base: ClassVar[Any] = setting(
        OfKind(("model",)),
        "the published model that the weights descend from, if they were not trained here: frontiers "
        "of the base model score it",
        "base = qwen3_4b",
        required=False,
    )
    context: int = setting(TOKENS, "the longest sequence", "context = 40K tokens")
    prompt: Prompt = setting(
        Block("prompt"), "how a question becomes the model's prompt", default=Prompt.model_construct()
    )
    think: ClassVar[Any] = setting(Block("think"), "the marks around the model's thinking", required=False)
    think_open: str | None = setting(
        Text(), "where it begins", 'open = "<think>"', default=None, spelled="think.open"
    )
    think_close: str | None = setting(
        Text(), "where it ends", 'close = "</think>"', default=None, spelled="think.close"
    )
    dimensions: Dimensions | None = setting(
        Block("dimensions"), "the sizes of the model; pricing needs them", default=None
    )
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        WORDS,
        "precision of matrix products in training and generation, over float32 weights; `auto` leaves "
        "it to the stage and the engine: float32 on a processor",
        default="auto",
        later=True,
    )


THINK = Kind("think", "The marks around a model's reasoning.", settings_below(Model, "think."), form="block")
