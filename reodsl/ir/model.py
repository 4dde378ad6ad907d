"""Models: where weights come from, how a question becomes a prompt, and how an answer is forced."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_serializer

from reodsl.ir.base import IR, named, without_unsaid
from reodsl.ir.names import PACKAGE, REPO, REVISION, WEIGHTS


class WordTokenizer(IR):
    """A word-level vocabulary: one token a word, split at spaces."""

    words: tuple[str, ...]
    eos: str
    pad: str


class Architecture(IR):
    """Fresh weights from a configuration; the run's seed draws them."""

    kind: Literal["architecture"] = "architecture"
    family: Literal["qwen3", "llama"]
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    tie_embeddings: bool = True
    rope_theta: float = 10000.0
    tokenizer: WordTokenizer


class Folder(IR):
    """A local folder in the layout of `transformers`, with safetensors weights and a tokenizer."""

    kind: Literal["folder"] = "folder"
    path: str


class Hub(IR):
    """A model of a hub by name, found in the local cache or a local mirror."""

    kind: Literal["hub"] = "hub"
    repo: Annotated[str, named(REPO)]
    revision: Annotated[str, named(REVISION)] | None = None


class Package(IR):
    """Weights that ship inside a Python package, as GGUF."""

    kind: Literal["package"] = "package"
    package: Annotated[str, named(PACKAGE)]
    file: Annotated[str, named(WEIGHTS)]


ModelSource = Annotated[Architecture | Folder | Hub | Package, Field(discriminator="kind")]


class Dimensions(IR):
    """The sizes that pricing needs, for models whose weights are not at hand. Counts, not bytes."""

    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int


class Prompt(IR):
    """How a question becomes the model's input: `{question}` in `template`; `chat` applies the model's chat template.

    `prefix` follows byte for byte, as the beginning of the response.
    """

    kind: Literal["raw", "chat"] = "raw"
    template: str = "{question}"
    system: str | None = None
    prefix: str = ""


class Wording(IR):
    """A way to ask, laid over a model's prompt: `{question}` in `question`, a system message, a response's beginning.

    `{budget}` in any of them is a whole number of tokens, drawn evenly from `budgets` or from `low..high`.
    """

    presentation = frozenset({"name"})
    name: str = ""
    question: str = "{question}"
    system: str | None = None
    prefix: str = ""
    budgets: tuple[int, ...] = ()
    low: int | None = None
    high: int | None = None

    @property
    def draws(self) -> bool:
        """Whether each question is given a budget."""
        return bool(self.budgets) or self.low is not None

    def over(self, prompt: Prompt) -> Prompt:
        """The prompt that asks this way; what the wording does not say stays as it was."""
        changes = {
            "template": prompt.template.replace("{question}", self.question),
            "system": prompt.system if self.system is None else self.system,
            "prefix": prompt.prefix + self.prefix,
        }
        return prompt.model_copy(update=changes)


class Forcing(IR):
    """How a truncated response is made to answer: text appended byte for byte, then at most `answer_tokens` tokens.

    The answer is what comes before `close`. Temperature 0 is greedy.
    """

    presentation = frozenset({"name"})
    name: str = ""
    text: str
    answer_tokens: int
    close: str = "}"
    temperature: float = 0.0
    top_p: float = 1.0


class Model(IR):
    """A model as it enters an experiment: its source, context in tokens, prompt and thinking marks.

    `precision` is that of products, wherever it trains or generates; weights and optimizer state are float32. `auto`
    leaves it to the stage and the engine.
    """

    presentation = frozenset({"name"})
    later = frozenset({"precision"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    name: str
    source: ModelSource
    context: int
    prompt: Prompt = Prompt()
    think_open: str | None = None
    think_close: str | None = None
    dimensions: Dimensions | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
