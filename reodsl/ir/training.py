"""Training: stages of SFT, PPO or preferences from a starting point, and when each stage ends."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from reodsl.ir.base import IR, values_of
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Data, Python
from reodsl.ir.expression import Attribute, TextNumber
from reodsl.ir.model import Forcing, Model
from reodsl.ir.names import TABLE
from reodsl.ir.reward import Reward, Selection
from reodsl.ir.setting import (
    BETA,
    CHECKPOINT,
    COUNT,
    ENGINES,
    HOURS,
    LAG,
    LR,
    NATURAL,
    PAIRS,
    POSITIVE,
    PPO,
    QUESTIONS,
    SEQUENCES,
    SFT,
    SHARE,
    SIMPO,
    STEPS,
    STEPS0,
    TEMPERATURE,
    TOKENS,
    TOP_P,
    WORDS,
    AnyOf,
    Block,
    Flag,
    Kind,
    ListOf,
    Num,
    OfKind,
    OfReward,
    OneOf,
    Setting,
    Text,
    declared_in,
    flatten,
    kind,
    part_of,
    setting,
    settings_below,
    settings_of,
)
from reodsl.ir.wording import Wording

Engine = Literal["embedded", "sglang"]
ENGINE = setting(
    ENGINES,
    "the engine that generates responses; left out, `sglang` with a cluster and `embedded` without",
    default="embedded",
    required=False,
)


class Sampling(IR):
    """The sampling of responses."""

    max_tokens: int = setting(TOKENS, "longest response", "max_tokens = 32K tokens")
    temperature: float = setting(TEMPERATURE, "0 is greedy", default=1.0)
    top_p: float = setting(TOP_P, "nucleus sampling; 1 keeps the full distribution", default=1.0)
    top_k: int = setting(Num(integer=True, low=-1), "most likely tokens kept; -1 keeps all", default=-1)
    solution: int | None = setting(
        TOKENS,
        "tokens of `max_tokens` reserved for the solution: thinking that has used the rest is ended "
        "by force (Elastic Reasoning: Xu et al. 2025); left out, thinking is never ended",
        "solution = 1K tokens",
        default=None,
        later=True,
    )
    ending: str | None = setting(
        Text(),
        "with `solution`, the text that ends the thinking by force and contains the model's "
        "`think.close`; left out, the mark alone (`</think>` if the model names none)",
        'ending = "Time is up.\\n</think>\\n\\n"',
        default=None,
        later=True,
    )


@kind("batch", form="block")
class Batch(IR):
    """The questions and responses of a step."""

    prompts: int = setting(COUNT, "questions a step; traces for SFT, pairs for preferences", "prompts = 128")
    rollouts: int = setting(COUNT, "responses a question", methods=PPO, default=1)


@kind("rest", form="block")
class AdamGroup(IR):
    """AdamW for the parameters that Muon leaves to it: embeddings, norms and biases."""

    lr: float = setting(LR, "learning rate", "lr = 6e-3")
    betas: tuple[float, float] = setting(ListOf(BETA, 2, most=2), "decay of the moments", default=(0.9, 0.95))
    eps: float = setting(POSITIVE, "added to the denominator", default=1e-05)
    weight_decay: float = setting(Num(low=0), "decoupled weight decay", default=0.0)


@kind("optim", form="block")
class Optimizer(IR):
    """The optimizer and its learning-rate curve.

    The rate rises linearly from 0 over `warmup_steps`, or over `warmup_share` of the stage's steps, rounded down; then it is
    constant, or falls linearly to 0 from the fraction `decay_from` of the steps on. Where passes over the sequences end the
    stage before `steps`, shares are of the steps that those take. No result depends on `on`.
    """

    algorithm: Literal["adam", "adamw", "muon"] = setting(WORDS, "the algorithm", "algorithm = adamw")
    lr: float = setting(LR, "learning rate", "lr = 5e-6")
    betas: tuple[float, float] = setting(ListOf(BETA, 2, most=2), "decay of the moments", default=(0.9, 0.95))
    eps: float = setting(POSITIVE, "added to the denominator", default=1e-05)
    weight_decay: float = setting(Num(low=0), "weight decay", default=0.0)
    warmup: ClassVar[Any] = setting(
        AnyOf((STEPS0, SHARE)), "steps of linear warm-up, or a share of all steps, rounded down", default=0
    )
    warmup_steps: int = part_of("warmup", default=0)
    warmup_share: float = part_of("warmup", default=0.0, later=True)
    decay: Literal["constant", "linear"] = setting(WORDS, "after the warm-up", default="constant")
    decay_from: float = setting(SHARE, "when linear decay begins, as a share of the steps", default=0.0)
    grad_norm: float = setting(Num(low=0), "the largest norm of the gradient; 0 does not clip", default=1.0)
    on: Literal["device", "host"] = setting(
        WORDS,
        "whether the optimizer runs on the GPU or on its host, which saves 8 bytes a parameter on the GPU",
        "on = host",
        default="device",
        later=True,
    )
    rest: AdamGroup | None = setting(
        Block("rest"), "AdamW for embeddings, norms and biases, with `muon`", default=None
    )

    def rate_factor(self, step: int, steps: int) -> float:
        """Return the factor by which this optimizer multiplies its learning rate at a step, from 0 to 1.

        Args:
            step: The step, from 0.
            steps: The number of steps of the stage.
        """
        warmup = self.warmup_steps or warmup_steps(self.warmup_share, steps)
        decay_from = self.decay_from if self.decay == "linear" else None
        return learning_rate_factor(step, steps, warmup, decay_from)


def learning_rate_factor(step: int, steps: int, warmup: float, decay_from: float | None) -> float:
    """Return the factor by which the learning rate of a step is multiplied, from 0 to 1.

    Args:
        step: The step, from 0.
        steps: The number of steps of the stage.
        warmup: The number of steps over which the factor rises linearly to 1.
        decay_from: The share of the steps after which the factor falls linearly, to 0 one step after the end; None
            for a constant rate.
    """
    factor = min(1.0, (step + 1) / warmup) if warmup > 0 else 1.0
    if decay_from is not None:
        start = decay_from * steps
        if step > start:
            factor *= max(0.0, (steps - step) / (steps - start))
    return factor


def sum_rate_factors(steps: int, warmup: float, decay_from: float | None) -> float:
    """Return the sum of `learning_rate_factor` over all steps of a stage.

    A loop would be slow, since a spec may have a billion steps. The factor is a + b step in the warm-up, c + d step
    in the decay, and the product of both in steps that belong to both. The sum over each range of steps follows from
    the sums of step and of step squared, which have closed forms.

    Args:
        steps: The number of steps.
        warmup: The number of steps of the warm-up.
        decay_from: The share of the steps after which the factor falls; None for a constant rate.
    """
    rise, start = Fraction(warmup), None if decay_from is None else Fraction(decay_from) * steps
    warmup_end = min(steps, max(0, math.floor(rise)))
    decay_start = steps if start is None else min(steps, math.floor(start) + 1)
    total = Fraction(0)
    for low, high in pairwise(sorted((0, warmup_end, decay_start, steps))):
        a, b = (1 / rise, 1 / rise) if low < warmup_end else (Fraction(1), Fraction(0))
        remaining = steps - start if start is not None and low >= decay_start else None
        c, d = (Fraction(1), Fraction(0)) if not remaining else (steps / remaining, -1 / remaining)
        count, sum_steps = high - low, high * (high - 1) // 2 - low * (low - 1) // 2
        sum_squares = ((high - 1) * high * (2 * high - 1) - (low - 1) * low * (2 * low - 1)) // 6
        total += a * c * count + (a * d + b * c) * sum_steps + b * d * sum_squares
    return float(total)


def warmup_steps(share: float, steps: int) -> int:
    """Return the number of steps of a warm-up that is given as a share, rounded down: 29% of 100 are 29.

    Args:
        share: The share of all steps, from 0 to 1.
        steps: The number of steps of the stage.
    """
    # In binary, 29% of 100 steps is a little less than 29: round to 6 decimals before rounding down.
    return int(round(share * steps, 6))


@kind("lora", form="block")
class Lora(IR):
    """Adapters of low rank, trained in place of the weights. Engines and checkpoints get the sum of both.

    Beside each matrix W of some `layers` they are A [rank, in] and B [out, rank]: W + (`alpha` / `rank`) B A. A is drawn and
    B is 0 where the stage begins.
    """

    rank: int = setting(COUNT, "the adapters' rank", "rank = 32")
    alpha: float = setting(
        POSITIVE, "the adapters' output is multiplied by alpha / rank", "alpha = 64", default=32.0
    )
    layers: Literal["all", "attention", "mlp"] = setting(
        WORDS, "which matrices of each layer have adapters: attention, MLP, or all", default="all"
    )


OWN = OfKind(("python",), '`python("FILE.py:FUNCTION")`')


@kind("advantage", form="block")
class Advantage(IR):
    """The rule that makes advantages from rewards at splits.

    `normalise` z-scores each split over the question's rollouts (`group`; a standard deviation of 0 gives 0), subtracts the
    mean alone (`center`) or the mean of the others (`leave_one_out`), or does neither.
    """

    normalise: Literal["group", "center", "leave_one_out", "none"] = setting(
        WORDS,
        "how rewards are normalised in a group: z-score, centre, leave, or subtract the mean of the "
        "other responses (RLOO: Ahmadian et al. 2024)",
        default="group",
    )
    std: Literal["population", "sample"] = setting(
        WORDS, "which standard deviation: the paper does not say", default="population"
    )
    absent: Literal["left_out", "zero"] = setting(
        WORDS,
        "how a rollout that lacks a split, such as a reasoning step, enters the split's mean and "
        "deviation: left out, or with a return of 0",
        default="left_out",
        later=True,
    )
    batch: bool = setting(Flag(), "z-score once more over all tokens of the step", default=False)
    equal: Literal["left_out", "counted"] = setting(
        WORDS,
        "with `batch`, whether a question without advantages enters the z-score, so that it may get "
        "advantages (REINFORCE++: Hu et al. 2025)",
        "equal = counted",
        default="left_out",
        later=True,
    )
    own: Python | None = setting(
        OWN,
        "your function that computes the advantages of a group from its rewards; `advantage = "
        "python(…)` is the same",
        'own = python("mine.py:advantage")',
        default=None,
        later=True,
    )
    bound: float | None = setting(
        POSITIVE,
        "clip advantages to this size, after every normalisation; left out, advantages are not clipped",
        "bound = 5",
        default=None,
        later=True,
    )
    credit: Literal["causal", "as_printed", "own"] = setting(
        WORDS,
        "which tokens earn Return_i: `causal` gives y[L_(i-1):L_i] the return from i on, `as_printed`"
        " gives it to y[L_i:L_(i+1)], `own` gives a section its own reward alone",
        default="causal",
        methods=PPO,
        spelled="/credit",
    )


WHOLE = ("reverse", "forward", "jsd")
"""The estimators of a divergence that compare whole distributions."""
UNBOUNDED = ("gate", "none")
"""The clips that read no bound of `clip`."""


@kind("loss", form="block")
class Loss(IR):
    """The parts of PPO's loss; its bounds are `clip`, its weights `kl` and `entropy`, its mean `loss_mean`."""

    own: Python | None = setting(
        OWN,
        "your function that computes the loss of each token, including KL and entropy; `loss = "
        "python(…)` is the same. It runs in the trainer's process with that process's rights",
        'own = python("mine.py:loss")',
        default=None,
        later=True,
    )
    ratio: Literal["token", "sequence", "none"] = setting(
        WORDS,
        "the probability ratio: of each token, its geometric mean over a response (GSPO: Zheng et al. "
        "2025), or none, as in a plain policy gradient",
        "ratio = sequence",
        default="token",
        later=True,
    )
    clip: Literal["two_sided", "weight", "dual", "factors", "gate", "none"] = setting(
        WORDS,
        "how `clip` bounds the ratio: PPO's minimum; as a weight of the log-probability that keeps "
        "the gradient (CISPO: MiniMax 2025); with a second bound `cap` for negative advantages (dual "
        "clip: Ye et al. 2020); each token's factor of a sequence ratio (GMPO: Zhao et al. 2025); by "
        "a soft `gate` (SAPO: Gao et al. 2025); or not at all",
        "clip = weight",
        default="two_sided",
        later=True,
    )
    cap: float = setting(
        Num(low=1, above=True),
        "with `clip = dual`, the largest ratio of a token with a negative advantage",
        default=3.0,
        later=True,
    )
    gate_up: float = setting(
        POSITIVE,
        "with `clip = gate`, how sharply the gate closes for positive advantages",
        default=1.0,
        later=True,
    )
    gate_down: float = setting(
        POSITIVE,
        "with `clip = gate`, how sharply the gate closes for negative advantages",
        default=1.05,
        later=True,
    )
    importance: Literal["token", "sequence", "mean"] = setting(
        WORDS,
        "the importance weight: of each token, the product over its response, or the geometric mean "
        "of that product",
        "importance = sequence",
        default="token",
        later=True,
    )
    estimator: Literal["k1", "k2", "k3", "advantage", "reverse", "forward", "jsd"] = setting(
        WORDS,
        "the estimator that `kl` weighs, with d the log-ratio of the policy and the reference model "
        "or teacher at the sampled token: k1 is d, k2 is d^2 / 2, k3 is e^-d - 1 + d (Schulman 2020; "
        "k1 has k2's gradient, since its own is 0 on average); `advantage` subtracts d from the "
        "token's advantage; over the full vocabulary `reverse` is KL(policy, other), `forward` "
        "KL(other, policy), and `jsd` GKD's mixture (Agarwal et al. 2024)",
        "estimator = reverse",
        default="k3",
        later=True,
    )
    jsd_beta: float = setting(
        Num(low=0, high=1, above=True, below=True),
        "with `estimator = jsd`, the share of the other model in the mixture",
        default=0.5,
        later=True,
    )
    decoupled: bool = setting(
        Flag(),
        "take ratios to the policy at the start of the step, and weigh each token by that policy's "
        "probability over the sampling probability (AReaL: Fu et al. 2025); `importance_cap` bounds "
        "the weight",
        "decoupled = true",
        default=False,
        later=True,
    )
    mode_tokens: Literal["rewarded", "policy", "shares"] = setting(
        WORDS,
        "how the tokens of a wording's `prefix` are trained: only by parts of the reward `on: "
        "prefix`; like every token, with ratios to the policy; or with the wording's share as the "
        "sampling probability of the first token (AdaptThink: Zhang et al. 2025)",
        "mode_tokens = shares",
        default="rewarded",
        later=True,
    )

    ending_tokens: Literal["read", "policy"] = setting(
        WORDS,
        "how the tokens that end thinking by force are trained: not at all, since the policy did not "
        "choose them, or like every thinking token, with ratios to the policy (the code of Elastic "
        "Reasoning: Xu et al. 2025)",
        "ending_tokens = policy",
        default="read",
        later=True,
    )
    top_k: int | None = setting(
        COUNT,
        "with `reverse`, `forward` or `jsd`, how many of the other model's most likely tokens are "
        "compared, with the rest of the vocabulary as one more; left out, the full vocabulary",
        "top_k = 64",
        default=None,
        later=True,
    )

    @property
    def compares_all(self) -> bool:
        """Return whether divergences are computed over the vocabulary instead of estimated from sampled tokens."""
        return self.estimator in WHOLE


@kind("monitor", form="block")
class Monitor(IR):
    """Questions of the training data, always the same, that the model answers from time to time for a reward's tracks.

    They are drawn once, and no step learns from their responses.
    """

    questions: int = setting(
        COUNT, "the number of training questions to measure; all, if the data has fewer", "questions = 64"
    )
    samples: int = setting(COUNT, "responses a question", "samples = 8")
    every: int = setting(
        STEPS, "steps between two measurements; the first is before the first step", "every = 20 steps"
    )


@kind("teacher_follows", form="block")
class MovingAverage(IR):
    """The teacher's weights as a moving average of the policy's.

    After every so many steps they are `decay` times themselves and 1 - `decay` times the policy's, in float32.
    """

    decay: float = setting(
        BETA,
        "the share of the old weights that is kept at each update; 0 copies the policy's weights",
        "decay = 0.995",
        default=0.0,
    )
    every: int = setting(STEPS, "steps between two updates", "every = 10 steps")


MOVING: dict[str, Num] = {
    "kl": Num(low=0),
    "entropy": Num(low=0),
    "clip_low": Num(low=0, high=1, above=True),
    "clip_high": Num(low=0, high=10, above=True),
    "temperature": Num(low=0, high=10, above=True),
}
"""The numbers of PPO that may differ from step to step, with their ranges: each is a constant or `reward.NAME`."""


class Ppo(IR):
    """PPO with clipped ratios and no critic.

    Wholly equal groups give no gradient. The responses of step n are sampled by the weights of step n - `lag`, or of the
    first one before that. The engine's log-probabilities are the trainer's own numbers where the embedded engine draws from
    the whole distribution. `mismatch_limit` bounds the median over tokens of
    exp |trainer's - engine's log-probability|.
    """

    kind: Literal["ppo"] = "ppo"
    reward: Reward = setting(
        OfKind(("reward",)),
        "the reward of a response; may be left out with a teacher",
        "reward = outcome",
        unless=("teacher", "teacher_wording"),
    )
    advantage: Advantage = setting(Block("advantage", "own"), "how rewards become advantages", required=False)
    batch: Batch
    rollout: Sampling = setting(Block("rollout"), "how responses are sampled", required=False)
    wordings: tuple[Wording, ...] = setting(
        ListOf(OfKind(("wording",))),
        "wordings of the prompt; left out, the model's own prompt",
        default=(),
        required=False,
        spelled="rollout.wordings",
    )
    wordings_per: Literal["rollout", "question"] = setting(
        WORDS,
        "whether the rollouts of a question alternate between the wordings, or each question has one wording",
        default="rollout",
        spelled="rollout.wordings_per",
    )
    cut_at: tuple[float, ...] = setting(
        ListOf(Num(low=0, high=1, above=True, below=True)),
        "shares of its tokens at which each complete response is also cut: the cut response gets "
        "`ending` and `solution` more tokens, and is one more rollout of its question (JET: Han et "
        "al. 2025)",
        "cut_at = [25%, 50%, 75%]",
        default=(),
        required=False,
        spelled="rollout.cut_at",
        later=True,
    )
    caches: Literal["auto", "fp8"] = setting(
        WORDS,
        "the precision of the KV cache on GPUs: as the model computes it, or one byte a number "
        "(e4m3), which halves what a decode step reads of it",
        "caches = fp8",
        default="auto",
        spelled="rollout.caches",
        later=True,
    )
    max_prompt: int = setting(TOKENS, "longest prompt", "max_prompt = 1K tokens")
    minibatches: int = setting(COUNT, "parts of a step's batch", "minibatches = 4")
    epochs: int = setting(COUNT, "passes over the batch of a step", "epochs = 2")
    clip: ClassVar[Any] = setting(Block("clip"), "bounds of the probability ratio", required=False)
    clip_low: float | str = setting(
        AnyOf((MOVING["clip_low"], OfReward())), "below 1", "low = 0.2", spelled="clip.low"
    )
    clip_high: float | str = setting(
        AnyOf((MOVING["clip_high"], OfReward())), "above 1", "high = 0.2", spelled="clip.high"
    )
    loss_mean: Literal["token", "response", "constant"] = setting(
        WORDS,
        "average the loss over the minibatch's tokens, within each response first, or over responses as"
        " if each had `rollout.max_tokens` tokens, as Dr. GRPO does",
        "loss_mean = token",
    )
    forcing: Forcing | None = setting(
        OfKind(("forcing",)), "how a cut response is made to answer", default=None
    )
    reference_samples: int = setting(
        NATURAL, "samples of the reference model per question, for `ref`", default=0
    )
    kl: float | str = setting(
        AnyOf((MOVING["kl"], OfReward())),
        "weight in the loss of the KL divergence from the `teacher`, or from the reference model; 0 "
        "trains without KL",
        default=0.0,
        later=True,
    )
    temperature: str | None = part_of("rollout.temperature", default=None, later=True)
    teacher: Start | None = setting(
        CHECKPOINT,
        "the model that `kl` compares the policy with; it has the same tokenizer; left out, the "
        "reference model",
        "teacher = qwen3_8b",
        default=None,
        later=True,
    )
    teacher_wording: Wording | None = setting(
        OfKind(("wording",)),
        "the wording of the prompt under which the teacher scores the policy's responses; left out, "
        "the policy's prompt",
        "teacher_wording = concise",
        default=None,
        later=True,
    )
    teacher_follows: MovingAverage | None = setting(
        Block("teacher_follows"),
        "let the reference model, as `kl` and `under: teacher` read it, follow the policy as a moving "
        "average; left out, it is frozen",
        "teacher_follows { decay = 0.995, every = 10 steps }",
        default=None,
        later=True,
    )
    entropy: float | str = setting(
        AnyOf((MOVING["entropy"], OfReward())),
        "weight of the entropy bonus: the loss is lowered by this times the policy's mean entropy "
        "over all trained tokens; 0 trains without a bonus",
        "entropy = 0.01",
        default=0.0,
        later=True,
    )
    loss: Loss = setting(
        Block("loss", "own"),
        "what the loss is made of",
        required=False,
        default=Loss.model_construct(),
        later=True,
    )
    monitor: Monitor | None = setting(
        Block("monitor"), "questions that a reward's tracks are measured on", default=None, later=True
    )
    resample: int = setting(
        Num(integer=True, low=0, high=1000),
        "how often at most new questions replace the questions whose responses all earn the same; 10 in DAPO",
        default=0,
        later=True,
    )
    lag: int = setting(
        LAG,
        "how many steps the sampling weights are behind; with 1, rollouts are sampled while the step "
        "before trains",
        "lag = 1 step",
        default=0,
        later=True,
    )
    old_logprobs: Literal["auto", "engine", "trainer"] = setting(
        WORDS,
        "whose log-probabilities PPO's ratios divide by; `auto` takes the engine's if they equal the "
        "trainer's, and with `lag`",
        default="auto",
        later=True,
    )
    importance_cap: float | None = setting(
        AnyOf((OneOf(("none",)), Num(low=1))),
        "the largest importance weight, the trainer's probability of a token over the engine's (Yao "
        "et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training), or "
        "`none`; left out, 2 if GPUs sample and train with different kernels and ratios divide by the "
        "trainer's log-probabilities, else none",
        default=None,
        later=True,
    )
    mismatch_limit: float | None = setting(
        Num(low=1, above=True),
        "stop if the trainer's and the engine's probabilities differ by more than this factor, in the "
        "median over the tokens of a step; left out, never",
        default=None,
        later=True,
    )

    @property
    def asks_trainers(self) -> bool:
        """Return whether the reward needs forward passes of the trainers, which score tokens of responses."""
        return any(node.scorers for node in self.reward.tokens)

    @property
    def uses_reference(self) -> bool:
        """Return whether a teacher or the reference model scores the policy's responses, for the loss or reward."""
        return bool(self.kl) or any("teacher" in node.scorers for node in self.reward.tokens)

    @property
    def ema_reference(self) -> bool:
        """Return whether the reference model is a moving average of the policy, which trainers keep in memory."""
        return self.uses_reference and self.teacher_follows is not None

    @property
    def crops(self) -> bool:
        """Return whether a forward pass may leave out the tokens after a response's last nonzero advantage.

        These tokens have no loss. The result is False if something else needs them: a KL divergence, an entropy bonus,
        a user's loss, or a ratio or importance weight of a complete response.
        """
        reads_all = bool(self.kl or self.entropy) or self.loss.own is not None
        weighs_responses = self.weighs and self.loss.importance != "token"
        return not (reads_all or self.loss.ratio == "sequence" or weighs_responses)

    @property
    def counts_thinking(self) -> bool:
        """Return whether training counts the thinking tokens of each response, for phases or the reward."""
        nodes = values_of(self.reward, Attribute)
        read = {node.source if isinstance(node, TextNumber) else node.field for node in nodes}
        return self.rollout.solution is not None or "thinking" in read

    @property
    def learns_prefix(self) -> bool:
        """Return whether the loss includes the prefix, the tokens that a wording puts before a response."""
        return self.loss.mode_tokens != "rewarded" or any(term.on == "prefix" for term in self.reward.parts)

    @property
    def trains_given(self) -> bool:
        """Return whether the loss includes tokens that were not sampled: a prefix, or the text that ends thinking."""
        return self.learns_prefix or self.loss.ending_tokens == "policy"

    @property
    def whole_rollouts(self) -> int:
        """Return how many rollouts of a question are complete responses.

        The other rollouts are these responses, cut at each share of `cut_at`.
        """
        return self.batch.rollouts // (1 + len(self.cut_at))

    @property
    def weighs(self) -> bool:
        """Return whether tokens have importance weights: the trainer's probability over the engine's."""
        return self.importance_cap is not None or self.loss.decoupled


class Sequences(IR):
    """Training on sequences that exist: `batch` of them a step."""

    max_tokens: int = setting(TOKENS, "longest sequence", "max_tokens = 32K tokens")
    batch: int = part_of("batch.prompts")


class Sft(Sequences):
    """Next-token training on traces; the loss is on the trace, not on the question."""

    uses_reference: ClassVar[bool] = False
    ema_reference: ClassVar[bool] = False
    kind: Literal["sft"] = "sft"
    bucket_by_length: bool = setting(Flag(), "batch sequences of like length", default=True)


class Pairs(Sequences):
    """Training on preferred and rejected responses.

    `uses_reference` methods compare with the reference model, `per_token` ones take the mean of a response's
    log-probabilities and not their sum, and `gamma` is subtracted from the margin.
    """

    uses_reference: ClassVar[bool] = True
    ema_reference: ClassVar[bool] = False
    per_token: ClassVar[bool] = False
    beta: float = setting(
        POSITIVE,
        "multiplies the lead of the preferred over the rejected response; in DPO the weight of the "
        "divergence from the reference model",
        "beta = 2",
    )


class Simpo(Pairs):
    """Reference-free preference training: -log sigmoid(beta (logp_w/|y_w| - logp_l/|y_l|) - gamma)."""

    uses_reference: ClassVar[bool] = False
    per_token: ClassVar[bool] = True
    kind: Literal["simpo"] = "simpo"
    gamma: float = setting(Num(low=0), "SimPO's gamma", "gamma = 1.2")


class Dpo(Pairs):
    """Preference training against the start: -log sigmoid(beta (log p_w/ref_w - log p_l/ref_l)) (Rafailov et al. 2023)."""

    gamma: ClassVar[float] = 0.0
    kind: Literal["dpo"] = "dpo"


Preference = Simpo | Dpo
Method = Annotated[Ppo | Sft | Simpo | Dpo, Field(discriminator="kind")]


@kind("plateau", form="call", positional=("metric",))
class Plateau(IR):
    """Ends a stage once a metric no longer rises.

    That is when its mean over the last `window` steps is at most `within` (absolute) above the mean over the `window`
    before.
    """

    metric: str = setting(
        OfKind(("metric",), "a metric such as train.accuracy"), "what to watch", "train.accuracy"
    )
    window: int = setting(STEPS, "steps averaged over", "window: 20 steps")
    within: float = setting(Num(low=0), "the largest rise that still counts as a plateau", "within: 0.2%")


class Stage(IR):
    """A stage of training: a method on data, for at most `steps` steps or until a plateau. A stage ends in a checkpoint.

    With `selected` it trains on what a selection picks of responses to `data`'s questions. Adapters of `lora` are trained
    in place of the weights. The weights and their optimizer stay in float32.
    """

    presentation = frozenset({"name"})
    name: str
    method: Method = setting(OneOf(("ppo", "sft", "simpo", "dpo")), "how a stage trains", "method = ppo")
    data: Data = setting(QUESTIONS, "what to train on", "data = areal_boba_7b")
    selected: PoolPicks | None = part_of("data", default=None)
    batch: ClassVar[Any] = setting(Block("batch"), "what a step takes", required=False)
    optim: Optimizer = setting(Block("optim"), "the optimizer", required=False)
    lora: Lora | None = setting(
        Block("lora"),
        "train low-rank adapters and keep the weights frozen (Hu et al. 2021)",
        "lora { rank = 32 }",
        default=None,
        later=True,
    )
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        WORDS,
        "precision of forward and backward passes, over float32 weights; `auto` is bfloat16 on GPUs, "
        "float32 elsewhere",
        default="auto",
        later=True,
    )
    microbatch: int | None = setting(
        TOKENS,
        "tokens in a micro-batch of a process, with padding; a longer sequence has one of its own; "
        "left out, 48K on GPUs, 2K elsewhere",
        default=None,
        later=True,
    )
    checkpointing: Literal["auto", "on", "off"] = setting(
        WORDS,
        "recompute activations in the backward pass, to save memory; `auto` does on GPUs",
        default="auto",
        later=True,
    )
    steps: int = setting(STEPS, "training steps, at most", "steps = 400 steps")
    passes: int | None = setting(
        COUNT,
        "passes over the traces or pairs; training ends here if `steps` would be more",
        methods=SEQUENCES,
        default=None,
    )
    until: ClassVar[Any] = setting(
        OfKind(("until", "plateau"), "`plateau(…)`, `steps(…)`, or both with `or`"),
        "when the stage ends",
        "until = plateau(train.accuracy, window: 20 steps, within: 0.2%)",
        required=False,
    )
    plateau: Plateau | None = part_of("until", default=None)
    expected_length: int | None = setting(
        TOKENS,
        "mean tokens of a response or trace, for the price alone; an earlier run measures it",
        default=None,
    )
    save_every: int = setting(
        STEPS0, "steps between saved states; states are saved every few seconds or minutes too", default=0
    )

    @property
    def others(self) -> tuple[Start, ...]:
        """Return the checkpoints that the stage needs besides its start: those of its pool and of its teacher."""
        pool = None if self.selected is None else self.selected.pool.start
        teacher = self.method.teacher if isinstance(self.method, Ppo) else None
        return tuple(start for start in (pool, teacher) if start is not None)


@kind("pool", form="call", positional=("of",))
class Pool(IR):
    """Graded responses of a checkpoint, for a selection to pick from."""

    start: Start = setting(
        OfKind((*CHECKPOINT.kinds, "arm"), CHECKPOINT.of),
        "whose responses",
        "pool(checkpoint(qwen3_4b), data: areal_boba_7b, samples: 16, max_tokens: 32K tokens)",
        spelled="of",
    )
    data: ClassVar[Any] = setting(OfKind(("data",)), "the questions", "data: areal_boba_7b")
    samples: int = setting(COUNT, "responses a question, for each wording", "samples: 16")
    rollout: Sampling = flatten(Sampling)
    wordings: tuple[Wording, ...] = setting(
        ListOf(OfKind(("wording",))),
        "wordings of the prompt; left out, the model's own prompt",
        default=(),
        required=False,
    )


class PoolPicks(IR):
    """A selection and the pool that it picks from."""

    selection: Selection
    pool: Pool


class FromModel(IR):
    """The model as it comes."""

    kind: Literal["model"] = "model"
    model: Model

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Return an empty tuple, since an untrained model is not the result of an experiment."""
        return ()


class FromTraining(IR):
    """The checkpoint at the end of stage `stage` of an experiment, counted from 0."""

    kind: Literal["training"] = "training"
    experiment: Experiment
    stage: int

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Return the experiments whose trainings lead to the checkpoint, the last training first."""
        chain = [self.experiment]
        while isinstance(start := chain[-1].start, FromTraining):
            chain.append(start.experiment)
        return tuple(chain)

    @property
    def model(self) -> Model:
        """Return the model from which the first of these trainings starts."""
        return self.experiments[-1].start.model


Start = Annotated[FromModel | FromTraining, Field(discriminator="kind")]


FORCED = Kind(
    "forced",
    "The model, best the one that wrote the texts, that forces answers out of a table's responses.",
    {"of": Setting(CHECKPOINT, "the checkpoint or served model", required=True, example="forced(behind)")},
    "call",
    positional=("of",),
)


@kind("results", form="call", positional=("path",))
class FromResults(IR):
    """Responses of a model elsewhere, in a table that `reodsl import` wrote. No weights are behind them.

    With `at`, that checkpoint forces answers out of them, and the arm is one of forced answers.
    """

    kind: Literal["results"] = "results"
    path: str = setting(
        Text(form=TABLE),
        "the path of the file, relative to the spec's folder",
        'results("theirs.parquet", model: "mine")',
    )
    of: str = setting(Text(), "the model's name in it", 'model: "mine"', spelled="model")
    base: ClassVar[Any] = setting(
        OfKind(("model",)),
        "the published model that it was trained from: frontiers of the base model score it",
        "base: qwen3_4b",
        required=False,
    )
    at: Start | None = setting(
        OfKind(("forced",), "`forced(MODEL)`"),
        "the model that forces answers from the table's texts; left out, the table's own forced "
        "answers count",
        "at: forced(qwen3_4b)",
        default=None,
        later=True,
    )

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Return the experiments whose trainings lead to the checkpoint that forces answers, the last one first."""
        return self.at.experiments if self.at is not None else ()


Source = FromModel | FromTraining | FromResults
"""The origins of an arm's responses."""


class Experiment(IR):
    """Training from a starting point, stage after stage. No result depends on `cluster`."""

    presentation = frozenset({"name", "doc"})
    name: str
    doc: str = ""
    start: Start = setting(CHECKPOINT, "the checkpoint to start from", "base = qwen3_4b", spelled="base")
    stages: tuple[Stage, ...]  # in the order of training
    eval: ClassVar[Any] = setting(
        OfKind(("suite",)), "how the checkpoint is evaluated", "eval = math_reg", required=False
    )
    score: ClassVar[Any] = setting(
        OfKind(("reg",), "`reg(…)`"),
        "the score of an arm against a frontier",
        "score = reg(against: edge, to: 16K tokens)",
        required=False,
    )
    seed: ClassVar[Any] = setting(NATURAL, "the seed of the run, if no study replicates it", default=1)
    cluster: Cluster | None = setting(
        OfKind(("cluster",)),
        "the cluster to train on; left out, the study's cluster",
        default=None,
        later=True,
    )
    engine: ClassVar[Any] = ENGINE
    limit: ClassVar[Any] = setting(HOURS, "the most that may be spent", required=False)

    @property
    def model(self) -> Model:
        """Return the model from which the first training of the chain starts."""
        return self.start.model


_FIRST = ("method", "base", "data", "reward", "credit", "advantage", "batch")
_SETTINGS = {
    **settings_of(Sequences, SEQUENCES),
    **declared_in(Sft, SFT),
    **declared_in(Pairs, PAIRS),
    **declared_in(Simpo, SIMPO),
    **settings_of(Ppo, PPO),
    **settings_below(Advantage, "/"),
    **settings_of(Stage),
    **settings_of(Experiment),
}
TRAINING: dict[str, Setting] = {name: _SETTINGS[name] for name in dict.fromkeys((*_FIRST, *_SETTINGS))}
"""The settings of recipes, experiments, stages and arms; some of them belong to some methods alone."""
_TEMPERATURE = settings_of(Sampling)["temperature"]
ROLLOUT = Kind(
    "rollout",
    "How responses are sampled while training.",
    settings_of(Sampling)
    | settings_below(Ppo, "rollout.")
    | {"temperature": replace(_TEMPERATURE, type=AnyOf((_TEMPERATURE.type, OfReward())))},
    form="block",
)
CLIP = Kind(
    "clip",
    "Bounds of PPO's probability ratio: 1 - low to 1 + high.",
    settings_below(Ppo, "clip."),
    form="block",
)
RECIPE = Kind(
    "recipe",
    "Settings that experiments share.",
    TRAINING,
    parents=("recipe",),
    children=("stage",),
    partial=True,
    example="recipe mine = ppo { optim { lr = 1e-6 } }",
)
EXPERIMENT = Kind(
    "experiment",
    "Training from a starting point, or the evaluation of one.",
    TRAINING,
    parents=("recipe", "experiment", "checkpoint", "model"),
    children=("stage",),
    example="experiment mine = ppo { base = qwen3_4b … }",
)
STAGE = Kind("stage", "One stage of training: what differs from its experiment.", TRAINING, partial=True)
ARM = Kind(
    "arm",
    "A checkpoint with a name.",
    TRAINING,
    parents=("experiment", "checkpoint", "model", "recipe"),
    children=("stage",),
)
