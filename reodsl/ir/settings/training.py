"""Training: recipes, experiments and stages, with the blocks inside them."""

# Annotations are read as they are: no `from __future__ import annotations` here.

from typing import Annotated, Any, ClassVar, Literal

from reodsl.ir.setting import (
    WORDS,
    A,
    Block,
    Choice,
    Either,
    Field,
    Flag,
    Kind,
    Many,
    Num,
    Setting,
    declared_in,
    kind,
    settings,
    settings_of,
)
from reodsl.ir.settings.types import (
    BETA,
    CHECKPOINT,
    COUNT,
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
    TOKENS,
    UTILISED,
    Engine,
    Temperature,
    TopK,
    TopP,
)


@settings
class Start:
    """What a stage trains, on what, and by which method."""

    method: ClassVar[
        Annotated[
            Any,
            Setting(
                Choice(("ppo", "sft", "simpo", "dpo", "ipo")),
                "how a stage trains",
                "method = ppo",
                required=True,
            ),
        ]
    ]
    base: ClassVar[
        Annotated[Any, Setting(CHECKPOINT, "the checkpoint to start from", "base = qwen3_4b", required=True)]
    ]
    data: ClassVar[
        Annotated[Any, Setting(QUESTIONS, "what to train on", "data = areal_boba_7b", required=True)]
    ]


@settings
class Rewarded:
    """What PPO's responses earn, and whose tokens."""

    reward: ClassVar[
        Annotated[Any, Setting(A(("reward",)), "what responses earn", "reward = outcome", required=True)]
    ]
    credit: ClassVar[
        Annotated[
            Any,
            Setting(
                Choice(("causal", "as_printed", "own")),
                "which tokens earn Return_i: `causal` gives y[L_(i-1):L_i] the return from i on, `as_printed` gives it to"
                " y[L_i:L_(i+1)], `own` gives a section its own reward alone",
                default="causal",
            ),
        ]
    ]
    advantage: ClassVar[Annotated[Any, Setting(Block("advantage"), "how rewards become advantages")]]


@settings
class Step:
    """What every method takes at a step."""

    batch: ClassVar[Annotated[Any, Setting(Block("batch"), "what a step takes")]]


@settings
class Sequences:
    """What SFT and preferences share."""

    max_tokens: Annotated[int, Setting(TOKENS, "longest sequence", "max_tokens = 32K tokens")]


@settings
class Sft(Sequences):
    """Next-token training on traces."""

    bucket_by_length: Annotated[bool, Setting(Flag(), "batch sequences of like length")] = True


@settings
class Preference(Sequences):
    """Preference training on pairs."""

    beta: Annotated[
        float,
        Setting(
            POSITIVE,
            "what multiplies the preferred response's lead over the rejected one; in DPO and IPO, whose tau it is, the"
            " weight of the divergence from the model that the stage began with",
            "beta = 2",
        ),
    ]


@settings
class Simpo(Preference):
    """Preferences without a reference."""

    gamma: Annotated[float, Setting(Num(low=0), "SimPO's gamma", "gamma = 1.2")]


@settings
class Ppo:
    """How PPO samples, and what its loss is."""

    rollout: Annotated[Any, Setting(Block("rollout"), "how responses are sampled", required=False)]
    max_prompt: Annotated[int, Setting(TOKENS, "longest prompt", "max_prompt = 1K tokens")]
    minibatches: Annotated[int, Setting(COUNT, "parts of a step's batch", "minibatches = 4")]
    epochs: Annotated[int, Setting(COUNT, "passes over a step's batch", "epochs = 2")]
    clip: ClassVar[Annotated[Any, Setting(Block("clip"), "bounds of the probability ratio")]]
    loss_mean: Annotated[
        Literal["token", "response", "constant"],
        Setting(
            WORDS,
            "average the loss over the minibatch's tokens, within each response first, or over responses as if each had"
            " `rollout.max_tokens` tokens, as Dr. GRPO does",
            "loss_mean = token",
        ),
    ]
    forcing: Annotated[Any, Setting(A(("forcing",)), "how a cut response is made to answer", required=False)]
    reference_samples: Annotated[
        int, Setting(NATURAL, "samples of the starting model per question, for `ref`")
    ] = 0
    kl: Annotated[
        float,
        Setting(
            Num(low=0),
            "weight in the loss of the divergence from the model that the stage began with; 0 trains without",
            later=True,
        ),
    ] = 0.0
    entropy: Annotated[
        float,
        Setting(
            Num(low=0),
            "bonus for entropy: its weight in the loss, which the mean entropy of the policy over all trained tokens"
            " lowers; 0 trains without",
            "entropy = 0.01",
            later=True,
        ),
    ] = 0.0
    loss: Annotated[Any, Setting(Block("loss"), "what the loss is made of", required=False, later=True)]
    monitor: Annotated[
        Any,
        Setting(
            Block("monitor"), "questions that a reward's tracks are measured on", required=False, later=True
        ),
    ]
    resample: Annotated[
        int,
        Setting(
            Num(whole=True, low=0, high=1000),
            "further draws of questions, at most, to replace those whose responses all earn the same; 10 in DAPO",
            later=True,
        ),
    ] = 0
    lag: Annotated[
        int,
        Setting(
            LAG,
            "how many steps old the weights are that sample a step's responses; 1 samples them while the step before"
            " trains",
            "lag = 1 step",
            later=True,
        ),
    ] = 0
    segment: Annotated[
        int | None,
        Setting(
            TOKENS,
            "tokens that a response may get at one step: it goes on at the next, by newer weights (Kimi k1.5's partial"
            " rollouts); needs `lag`; left out, every response is done at its step",
            "segment = 8K tokens",
            later=True,
        ),
    ] = None
    old_logprobs: Annotated[
        Literal["auto", "engine", "trainer"],
        Setting(
            WORDS,
            "whose log-probabilities of a response PPO's ratios divide by; `auto` takes the engine's where they are the"
            " trainer's own numbers, and with `lag`",
            later=True,
        ),
    ] = "auto"
    importance_cap: Annotated[
        float | None,
        Setting(
            Num(low=1),
            "weigh each token by the trainer's probability over the engine's, at most this; 2 in Yao et al. 2025, Your"
            " Efficient RL Framework Secretly Brings You Off-Policy RL Training; left out, no weights",
            later=True,
        ),
    ] = None
    mismatch_limit: Annotated[
        float | None,
        Setting(
            Num(low=1, above=True),
            "stop where trainer's and engine's probabilities differ by more than this factor, in the median of a step's"
            " tokens; left out, never",
            later=True,
        ),
    ] = None


@settings
class Stage:
    """How a stage computes, and when it ends."""

    optim: Annotated[Any, Setting(Block("optim"), "the optimizer", required=False)]
    lora: Annotated[
        Any,
        Setting(
            Block("lora"),
            "train adapters of low rank beside the weights, and not these (Hu et al. 2021)",
            "lora { rank = 32 }",
            required=False,
            later=True,
        ),
    ]
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Setting(
            WORDS,
            "of forward and backward passes, over float32 weights; `auto` is bfloat16 on GPUs, float32 elsewhere",
            later=True,
        ),
    ] = "auto"
    microbatch: Annotated[
        int | None,
        Setting(
            TOKENS,
            "tokens that a process runs at once with padding, or one longer sequence; left out, 48K on GPUs, 2K elsewhere",
            later=True,
        ),
    ] = None
    checkpointing: Annotated[
        Literal["auto", "on", "off"],
        Setting(
            WORDS,
            "compute activations again in the backward pass, to hold more tokens; `auto` does on GPUs",
            later=True,
        ),
    ] = "auto"
    steps: Annotated[int, Setting(STEPS, "training steps, at most", "steps = 400 steps")]
    passes: Annotated[
        Any,
        Setting(
            COUNT,
            "passes over the traces or pairs, if that is fewer steps",
            methods=SEQUENCES,
            required=False,
        ),
    ]
    until: ClassVar[
        Annotated[
            Any,
            Setting(
                A(("until", "plateau"), "`plateau(…)`, `steps(…)`, or both with `or`"),
                "when the stage ends",
                "until = plateau(train.accuracy, window: 20 steps, within: 0.2%)",
            ),
        ]
    ]
    expected_length: Annotated[
        int | None,
        Setting(
            TOKENS, "mean tokens of a response or trace, for the price alone; a run of the same measures it"
        ),
    ] = None
    save_every: Annotated[int, Setting(STEPS0, "steps between checkpoints kept; 0 keeps the last")] = 0


@settings
class Run:
    """What an experiment says of its evaluation, its seed and its place."""

    eval: ClassVar[
        Annotated[Any, Setting(A(("suite",)), "how the checkpoint is evaluated", "eval = math_reg")]
    ]
    score: ClassVar[
        Annotated[
            Any,
            Setting(
                A(("reg",), "`reg(…)`"),
                "the measure against a frontier",
                "score = reg(against: edge, to: 16K tokens)",
            ),
        ]
    ]
    seed: ClassVar[
        Annotated[Any, Setting(NATURAL, "the run's seed, where no study replicates it", default=1)]
    ]
    cluster: ClassVar[
        Annotated[Any, Setting(A(("cluster",)), "where it trains; left out in a study, where the study runs")]
    ]
    engine: ClassVar[Engine]
    limit: ClassVar[Annotated[Any, Setting(HOURS, "the most that may be spent")]]


TRAINING: dict[str, Field] = {
    **settings_of(Start),
    **settings_of(Rewarded, PPO),
    **settings_of(Step),
    **settings_of(Sequences, SEQUENCES),
    **declared_in(Sft, SFT),
    **declared_in(Preference, PAIRS),
    **declared_in(Simpo, SIMPO),
    **settings_of(Ppo, PPO),
    **settings_of(Stage),
    **settings_of(Run),
}
"""The settings of recipes, experiments, stages and arms; some of them belong to some methods alone."""


@kind("advantage", form="block")
class Advantage:
    """How rewards at splits become advantages."""

    normalise: Annotated[
        Literal["group", "center", "none"], Setting(WORDS, "z-score, centre, or leave rewards within a group")
    ] = "group"
    std: Annotated[
        Literal["population", "sample"], Setting(WORDS, "which standard deviation; the paper does not say")
    ] = "population"
    absent: Annotated[
        Literal["left_out", "zero"],
        Setting(
            WORDS,
            "a rollout that lacks a split, such as a reasoning step: leave it out of the split's mean and deviation,"
            " or count it with a return of 0",
            later=True,
        ),
    ] = "left_out"
    batch: Annotated[bool, Setting(Flag(), "z-score once more over all tokens of the step")] = False
    bound: Annotated[
        float | None,
        Setting(
            POSITIVE,
            "cut advantages at this size on both sides, after every normalisation; left out, they stay",
            "bound = 5",
            later=True,
        ),
    ] = None


@kind("batch", form="block")
class Batch:
    """What a step takes."""

    prompts: Annotated[
        int, Setting(COUNT, "questions a step; traces for SFT, pairs for preferences", "prompts = 128")
    ]
    rollouts: Annotated[int, Setting(COUNT, "responses a question", methods=PPO)] = 1


@settings
class Sampling:
    """How responses are drawn."""

    max_tokens: Annotated[int, Setting(TOKENS, "longest response", "max_tokens = 32K tokens")]
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = -1


@kind("rollout", form="block")
class Rollout(Sampling):
    """How responses are sampled while training."""

    wordings: ClassVar[
        Annotated[
            Any, Setting(Many(A(("wording",))), "ways to ask, taken in turn; left out, the prompt as it is")
        ]
    ]
    wordings_per: ClassVar[
        Annotated[
            Any,
            Setting(
                Choice(("rollout", "question")),
                "whether a question's rollouts take the wordings in turn, or each question one of them",
                default="rollout",
            ),
        ]
    ]


@kind("clip", form="block")
class Clip:
    """Bounds of PPO's probability ratio: 1 - low to 1 + high."""

    low: ClassVar[
        Annotated[Any, Setting(Num(low=0, high=1, above=True), "below 1", "low = 0.2", required=True)]
    ]
    high: ClassVar[
        Annotated[Any, Setting(Num(low=0, high=10, above=True), "above 1", "high = 0.2", required=True)]
    ]


@kind("monitor", form="block")
class Monitor:
    """Questions of the training data, always the same, that the model answers from time to time for a reward's tracks."""

    questions: Annotated[
        int,
        Setting(
            COUNT, "how many of the training data's questions; all, where it has fewer", "questions = 64"
        ),
    ]
    samples: Annotated[int, Setting(COUNT, "responses a question", "samples = 8")]
    every: Annotated[
        int,
        Setting(
            STEPS, "steps from one time to the next; the first is before the first step", "every = 20 steps"
        ),
    ]


@kind("loss", form="block")
class Loss:
    """What PPO's loss is made of; its bounds are `clip`, its weights `kl` and `entropy`, its mean `loss_mean`."""

    ratio: Annotated[
        Literal["token", "sequence", "none"],
        Setting(
            WORDS,
            "what is compared with the policy that sampled: each token's probability, the geometric mean over a response"
            " (GSPO: Zheng et al. 2025), or nothing, as in a plain policy gradient",
            "ratio = sequence",
            later=True,
        ),
    ] = "token"
    clip: Annotated[
        Literal["two_sided", "weight", "dual", "none"],
        Setting(
            WORDS,
            "what `clip` bounds: the ratio, where it would gain more; a weight of the log-probability, which keeps its"
            " gradient (CISPO: MiniMax 2025); the ratio, and by `cap` that of bad responses too (Ye et al. 2020);"
            " or nothing",
            "clip = weight",
            later=True,
        ),
    ] = "two_sided"
    cap: Annotated[
        float,
        Setting(
            Num(low=1, above=True),
            "with `clip = dual`, the largest ratio of a token with a negative advantage",
            later=True,
        ),
    ] = 3.0
    estimator: Annotated[
        Literal["k1", "k2", "k3"],
        Setting(
            WORDS,
            "what `kl` weighs, of the log-ratio d of policy and start (Schulman 2020): d, d^2 / 2, or e^-d - 1 + d; k1"
            " has k2's gradient, since its own is 0 on average",
            later=True,
        ),
    ] = "k3"
    entropy_share: Annotated[
        float,
        Setting(
            UTILISED,
            "share of a minibatch's tokens, those with the most entropy, that the bonus counts",
            "entropy_share = 20%",
            later=True,
        ),
    ] = 1.0
    token_share: Annotated[
        float,
        Setting(
            UTILISED,
            "share of a minibatch's tokens, those with the most entropy, that advantages train; 20% in Wang et al. 2025,"
            " Beyond the 80/20 Rule",
            "token_share = 20%",
            later=True,
        ),
    ] = 1.0
    decoupled: Annotated[
        bool,
        Setting(
            Flag(),
            "divide ratios by the policy at the step's start, and weigh each token by its probability there over the one"
            " that it was sampled with (AReaL: Fu et al. 2025); `importance_cap` bounds that weight",
            "decoupled = true",
            later=True,
        ),
    ] = False
    mode_tokens: Annotated[
        Literal["rewarded", "policy", "shares"],
        Setting(
            WORDS,
            "how the tokens of a wording's `prefix` are trained: where a part of the reward is `on: prefix`; as every token,"
            " with ratios to the policy; or so that the first one, which opens a mode, was sampled with the share of its"
            " wording (AdaptThink: Zhang et al. 2025)",
            "mode_tokens = shares",
            later=True,
        ),
    ] = "rewarded"


@kind("rest", form="block")
class Rest:
    """AdamW for the parameters that Muon leaves out."""

    lr: Annotated[float, Setting(LR, "learning rate", "lr = 6e-3")]
    betas: Annotated[tuple[float, float], Setting(Many(BETA, 2, most=2), "decay of the moments")] = (
        0.9,
        0.95,
    )
    eps: Annotated[float, Setting(POSITIVE, "added to the denominator")] = 1e-05
    weight_decay: Annotated[float, Setting(Num(low=0), "decoupled weight decay")] = 0.0


@kind("optim", form="block")
class Optim:
    """The optimizer and its learning-rate curve."""

    algorithm: Annotated[
        Literal["adam", "adamw", "muon"], Setting(WORDS, "the algorithm", "algorithm = adamw")
    ]
    lr: Annotated[float, Setting(LR, "learning rate", "lr = 5e-6")]
    betas: Annotated[tuple[float, float], Setting(Many(BETA, 2, most=2), "decay of the moments")] = (
        0.9,
        0.95,
    )
    eps: Annotated[float, Setting(POSITIVE, "added to the denominator")] = 1e-05
    weight_decay: Annotated[float, Setting(Num(low=0), "weight decay")] = 0.0
    warmup: ClassVar[
        Annotated[
            Any,
            Setting(
                Either((STEPS0, SHARE)), "steps of linear warm-up, or their share, rounded down", default=0
            ),
        ]
    ]
    decay: Annotated[Literal["constant", "linear"], Setting(WORDS, "after the warm-up")] = "constant"
    decay_from: Annotated[float, Setting(SHARE, "where linear decay begins, as a share of the steps")] = 0.0
    grad_norm: Annotated[float, Setting(Num(low=0), "clip the gradient's norm; 0 does not")] = 1.0
    on: Annotated[
        Literal["device", "host"],
        Setting(
            WORDS,
            "where the moments are and the step is taken: on the GPU, or on its host, which saves 8 bytes a parameter there",
            "on = host",
            later=True,
        ),
    ] = "device"
    rest: Annotated[
        Any, Setting(Block("rest"), "AdamW for embeddings, norms and biases, with `muon`", required=False)
    ]


@kind("lora", form="block")
class Lora:
    """Adapters of low rank, trained in place of the weights. Engines and checkpoints get the sum of both."""

    rank: Annotated[int, Setting(COUNT, "the adapters' rank", "rank = 32")]
    alpha: Annotated[
        float, Setting(POSITIVE, "what adapters add is multiplied by this over their rank", "alpha = 64")
    ] = 32.0
    layers: Annotated[
        Literal["all", "attention", "mlp"],
        Setting(WORDS, "which matrices of each layer have adapters: attention's, the gated ones, or all"),
    ] = "all"


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


@kind("plateau", form="call", positional=("metric",))
class Plateau:
    """Ends a stage once a metric no longer rises."""

    metric: Annotated[
        Any,
        Setting(
            A(("metric",), "a metric such as train.accuracy"),
            "what to watch",
            "train.accuracy",
            required=True,
        ),
    ]
    window: Annotated[int, Setting(STEPS, "steps averaged over", "window: 20 steps")]
    within: Annotated[float, Setting(Num(low=0), "the rise that still counts as none", "within: 0.2%")]
