"""Models: where weights come from, how a question becomes a prompt, and how an answer is forced."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_serializer

from reodsl.ir.base import IR, named, without_unsaid
from reodsl.ir.names import PACKAGE, REPO, REVISION, WEIGHTS
from reodsl.ir.settings import models as models_settings


class WordTokenizer(models_settings.Tokenizer, IR):
    """A word-level vocabulary: one token a word, split at spaces."""


class Architecture(models_settings.Architecture, IR):
    """Fresh weights from a configuration; the run's seed draws them."""

    kind: Literal["architecture"] = "architecture"
    tokenizer: WordTokenizer


class Folder(models_settings.Folder, IR):
    """A local folder in the layout of `transformers`, with safetensors weights and a tokenizer."""

    kind: Literal["folder"] = "folder"


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


class Dimensions(models_settings.Dimensions, IR):
    """The sizes that pricing needs, for models whose weights are not at hand. Counts, not bytes."""


class Prompt(models_settings.Prompt, IR):
    """How a question becomes the model's input: `{question}` in `template`; `chat` applies the model's chat template.

    `prefix` follows byte for byte, as the beginning of the response. `reply` stands around what tools say, `{reply}`, where
    no chat template says how.
    """

    _dump = model_serializer(mode="wrap")(without_unsaid)


class Wording(models_settings.Wording, IR):
    """A way to ask, laid over a model's prompt: `{question}` in `question`, a system message, a response's beginning.

    `{budget}` in any of them is a whole number of tokens, drawn evenly from `budgets` or from `low..high`.
    """

    presentation = frozenset({"name"})
    name: str = ""
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


class Forcing(models_settings.Forcing, IR):
    """How a truncated response is made to answer: text appended byte for byte, then at most `answer_tokens` tokens.

    The answer is what comes before `close`. Temperature 0 is greedy.
    """

    presentation = frozenset({"name"})
    name: str = ""


class Model(models_settings.Model, IR):
    """A model as it enters an experiment: its source, context in tokens, prompt and thinking marks.

    `precision` is that of products, wherever it trains or generates; weights and optimizer state are float32. `auto`
    leaves it to the stage and the engine.
    """

    presentation = frozenset({"name"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    name: str
    source: ModelSource
    prompt: Prompt = Prompt()
    think_open: str | None = None
    think_close: str | None = None
    dimensions: Dimensions | None = None
