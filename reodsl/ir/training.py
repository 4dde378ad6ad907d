"""Training: stages of SFT, PPO or preferences from a starting point, and when each stage ends."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_serializer

from reodsl.ir.base import IR, without_unsaid
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Data
from reodsl.ir.model import Forcing, Model, Wording
from reodsl.ir.reward import Reward
from reodsl.ir.selection import Selection
from reodsl.ir.settings import data as data_settings
from reodsl.ir.settings import training as training_settings


class Sampling(training_settings.Sampling, IR):
    """How responses are drawn. `top_k` -1 is off; temperature 0 is greedy; lengths in tokens of the response."""


class Batch(training_settings.Batch, IR):
    """`prompts` questions a step, `rollouts` responses each."""


class AdamGroup(training_settings.Rest, IR):
    """What AdamW uses for the parameters that Muon leaves out."""


class Optimizer(training_settings.Optim, IR):
    """The optimizer and its learning-rate curve.

    `warmup_steps` linear from 0, or `warmup_share` of the stage's steps, rounded down; then constant, or with `decay`
    linear to 0 from the fraction `decay_from` of its steps on. Where passes over the sequences end the stage before
    `steps`, shares are of the steps that those take. `rest` is used by `muon` for embeddings, norms and biases.
    `grad_norm` 0 turns clipping off. `on` the `host` of a GPU are moments and the step; no result depends on it.
    """

    later = frozenset({"warmup_share"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    warmup_steps: int = 0
    warmup_share: float = 0.0
    rest: AdamGroup | None = None


class Lora(training_settings.Lora, IR):
    """Adapters A [rank, in] and B [out, rank] beside each matrix W of some `layers`: W + (`alpha` / `rank`) B A.

    A is drawn and B is 0 where the stage begins; they alone are trained. Checkpoints and engines have the sum.
    """


class Advantage(training_settings.Advantage, IR):
    """How rewards at splits become advantages.

    `credit`: `causal` gives the tokens of section `y[L_{i-1}:L_i]` the return from i on; `as_printed` gives them to
    `y[L_i:L_{i+1}]`; `own` gives a section its own reward alone. `normalise`: `group` z-scores each split over
    the question's rollouts (a standard deviation of 0 gives 0), `center` only subtracts the mean, `none` neither.
    `absent`: a rollout without a split, such as a reasoning step, is `left_out` of that split's mean and deviation, or
    counts there as `zero`. `batch` z-scores once more over all trained tokens of the step. What comes out is cut at
    -`bound` and `bound`.
    """

    _dump = model_serializer(mode="wrap")(without_unsaid)
    credit: Literal["causal", "as_printed", "own"] = "causal"


class Loss(training_settings.Loss, IR):
    """What PPO's loss is made of.

    `ratio`: of each `token`'s probability to that under the policy that sampled, of the geometric mean over a response
    (`sequence`), or `none`. `clip`: the `two_sided` one, a `weight` that is bounded and has no gradient, the `dual` one,
    where `cap` bounds the ratio of negative advantages too, or `none`. `estimator` is of the divergence that `kl`
    weighs. Of a minibatch's tokens `entropy_share` count in the bonus for entropy, and `token_share` are trained by
    their advantages: those with the most entropy. `decoupled` ratios are to the policy at the step's start, and each
    token is weighed by its probability there over the one that it was sampled with. `mode_tokens`: prefixes of wordings are
    trained where the reward has a part of them (`rewarded`), or with the response; by `shares` the first of their tokens
    was sampled with the share of its wording.
    """

    _dump = model_serializer(mode="wrap")(without_unsaid)

    @property
    def sorts(self) -> bool:
        """Whether a token's entropy says if it counts."""
        return self.entropy_share < 1.0 or self.token_share < 1.0


class Monitor(training_settings.Monitor, IR):
    """Before step 1 and after every `every` steps `questions` of the training data are answered `samples` times each.

    The questions are drawn once, and what is sampled is learnt from by no step.
    """


class Ppo(training_settings.Ppo, IR):
    """PPO with clipped ratios and no critic.

    `epochs` passes over each step's batch, in `minibatches` parts; `loss_mean`: over all `token`s of the
    minibatch, over each response's and then over `response`s, or over responses as if each had `rollout.max_tokens`
    (`constant`). Wholly equal groups give no gradient.
    With `wordings` the rollouts of a question take them in turn, or each question one of them (`wordings_per`).

    `old_logprobs`: whose log-probabilities of a response the ratios divide by; `auto` takes the engine's where they are
    the trainer's own numbers (the embedded engine, drawing from the whole distribution). With `importance_cap` each
    token's loss is weighted by the trainer's probability over the engine's, at most that cap. A step stops the run
    where the median over tokens of exp |trainer's - engine's log-probability| is past `mismatch_limit`.

    The responses of step n are sampled by the weights of step n - `lag`, or of the first one before that.

    `kl` weighs the divergence from the model that the stage began with, over all tokens, in the loss.
    `monitor` is what the tracks of the reward are measured on, where they are not of the steps themselves.
    With `resample`, questions whose responses give no gradient are replaced by others, from that many further draws of
    `batch.prompts` questions at most.
    """

    _dump = model_serializer(mode="wrap")(without_unsaid)
    kind: Literal["ppo"] = "ppo"
    rollout: Sampling
    batch: Batch
    clip_low: float
    clip_high: float
    reward: Reward
    advantage: Advantage
    forcing: Forcing | None = None
    wordings: tuple[Wording, ...] = ()
    wordings_per: Literal["rollout", "question"] = "rollout"
    loss: Loss = Loss()
    monitor: Monitor | None = None

    @property
    def frozen(self) -> bool:
        """Whether the model that the stage began with is kept beside the trained one."""
        return self.kl > 0

    @property
    def learns_prefix(self) -> bool:
        """Whether the tokens that a wording puts before a response are trained with it."""
        return self.loss.mode_tokens != "rewarded" or any(part.on == "prefix" for part in self.reward.parts)

    @property
    def weighs(self) -> bool:
        """Whether each token is weighed by the trainer's probability over the engine's."""
        return self.importance_cap is not None or self.loss.decoupled


class Sft(training_settings.Sft, IR):
    """Next-token training on traces: `batch` sequences a step; the loss is on the trace, not on the question."""

    frozen: ClassVar[bool] = False
    kind: Literal["sft"] = "sft"
    batch: int


class Simpo(training_settings.Simpo, IR):
    """Reference-free preference training: -log sigmoid(beta (logp_w/|y_w| - logp_l/|y_l|) - gamma)."""

    frozen: ClassVar[bool] = False
    per_token: ClassVar[bool] = True
    link: ClassVar[Literal["logistic", "square"]] = "logistic"
    kind: Literal["simpo"] = "simpo"
    batch: int


class Dpo(training_settings.Preference, IR):
    """Preference training against the start: -log sigmoid(beta (log p_w/ref_w - log p_l/ref_l)) (Rafailov et al. 2023)."""

    frozen: ClassVar[bool] = True
    per_token: ClassVar[bool] = False
    link: ClassVar[Literal["logistic", "square"]] = "logistic"
    gamma: ClassVar[float] = 0.0
    kind: Literal["dpo"] = "dpo"
    batch: int


class Ipo(training_settings.Preference, IR):
    """Preference training against the start: (log p_w/ref_w - log p_l/ref_l - 1 / (2 beta))^2 (Azar et al. 2024)."""

    frozen: ClassVar[bool] = True
    per_token: ClassVar[bool] = False
    link: ClassVar[Literal["logistic", "square"]] = "square"
    gamma: ClassVar[float] = 0.0
    kind: Literal["ipo"] = "ipo"
    batch: int


Preference = Simpo | Dpo | Ipo
"""What trains on pairs. `frozen` ones compare with the model that the stage began with, `per_token` ones have the mean of a
response's log-probabilities and not their sum, and `link` is what the margin goes into; `gamma` is taken from it."""
Method = Annotated[Ppo | Sft | Simpo | Dpo | Ipo, Field(discriminator="kind")]


class Plateau(training_settings.Plateau, IR):
    """Ends a stage when the mean of `metric` over the last `window` steps rose by at most `within` (absolute)
    over the `window` before."""

    metric: str


class Stage(training_settings.Stage, IR):
    """One stage: a method on data for at most `steps` steps, or until a plateau. Ends in a checkpoint.

    With `selected` it trains on what a selection picks of responses to `data`'s questions; `passes` ends it after so
    many passes over its sequences (all methods but PPO).
    `expected_length`, the mean tokens of a response or trace, is for pricing alone.

    With `lora` adapters are trained, and the weights themselves are not.

    `precision`: of the forward and backward passes (weights and their optimizer stay in float32); `auto` is bfloat16
    on GPUs. `microbatch`: tokens that one process runs at once, padding and all, at most, unless one sequence is longer.
    `checkpointing` keeps one number a layer for the backward pass and computes the rest again; `auto` does on GPUs.
    """

    presentation = frozenset({"name"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    name: str
    method: Method
    data: Data
    optim: Optimizer
    lora: Lora | None = None
    plateau: Plateau | None = None
    selected: Selected | None = None
    passes: int | None = None


class Pool(data_settings.Pool, IR):
    """Graded responses of a checkpoint to the stage's questions: `samples` for each wording, or of the bare prompt."""

    start: Start
    rollout: Sampling
    wordings: tuple[Wording, ...] = ()


class Selected(IR):
    """What a selection picks of a pool."""

    selection: Selection
    pool: Pool


class FromModel(IR):
    """The model as it comes."""

    kind: Literal["model"] = "model"
    model: Model

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Return no experiment, as none leads here."""
        return ()


class FromTraining(IR):
    """The checkpoint at the end of stage `stage` of an experiment, counted from 0."""

    kind: Literal["training"] = "training"
    experiment: Experiment
    stage: int

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Return the experiments that lead here, the last one first. A chain may be longer than the stack."""
        chain = [self.experiment]
        while isinstance(start := chain[-1].start, FromTraining):
            chain.append(start.experiment)
        return tuple(chain)

    @property
    def model(self) -> Model:
        """Return the model at the root of the chain of starting points."""
        return self.experiments[-1].start.model


Start = Annotated[FromModel | FromTraining, Field(discriminator="kind")]


class Experiment(IR):
    """Training from a starting point, stage after stage.

    `cluster` is what it trains and samples on where that is not the study's; no result depends on it. The first `shared`
    stages, and all that they start from, are trained once for all seeds of a study, with the first of these.
    """

    presentation = frozenset({"name", "doc"})
    later = frozenset({"cluster", "shared"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    name: str
    doc: str = ""
    start: Start
    stages: tuple[Stage, ...]
    cluster: Cluster | None = None
    shared: Annotated[int, Field(ge=0)] = 0

    @property
    def model(self) -> Model:
        """Return the model at the root of the chain of starting points."""
        return self.start.model


for _model in (FromTraining, Pool, Selected, Stage, Experiment):
    _model.model_rebuild()
