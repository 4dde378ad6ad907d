"""Training in the table of kinds: recipes, experiments and stages, with the blocks inside them."""

from __future__ import annotations

from reodsl.language.kinds.types import (
    BETA,
    CHECKPOINT,
    COUNT,
    ENGINE,
    HOURS,
    LR,
    NATURAL,
    POSITIVE,
    PPO,
    QUESTIONS,
    SAMPLING,
    SEQUENCES,
    SHARE,
    SIMPO,
    STEPS,
    STEPS0,
    TOKENS,
)
from reodsl.language.schema import A, Block, Choice, Either, Field, Flag, Kind, Many, Num

TRAINING: dict[str, Field] = {
    "method": Field(
        Choice(("ppo", "sft", "simpo")), "how a stage trains", required=True, example="method = ppo"
    ),
    "base": Field(CHECKPOINT, "the checkpoint to start from", required=True, example="base = qwen3_4b"),
    "data": Field(QUESTIONS, "what to train on", required=True, example="data = areal_boba_7b"),
    "reward": Field(
        A(("reward",)), "what responses earn", required=True, example="reward = outcome", methods=PPO
    ),
    "credit": Field(
        Choice(("causal", "as_printed", "own")),
        "which tokens earn Return_i: `causal` gives y[L_(i-1):L_i] the return from i on, `as_printed` gives it to"
        " y[L_i:L_(i+1)], `own` gives a section its own reward alone",
        default="causal",
        methods=PPO,
    ),
    "advantage": Field(Block("advantage"), "how rewards become advantages", methods=PPO),
    "batch": Field(Block("batch"), "what a step takes"),
    "rollout": Field(Block("rollout"), "how responses are sampled", methods=PPO),
    "max_prompt": Field(
        TOKENS, "longest prompt", required=True, example="max_prompt = 1K tokens", methods=PPO
    ),
    "max_tokens": Field(
        TOKENS, "longest sequence", required=True, example="max_tokens = 32K tokens", methods=SEQUENCES
    ),
    "bucket_by_length": Field(Flag(), "batch sequences of like length", default=True, methods=("sft",)),
    "beta": Field(POSITIVE, "SimPO's beta", required=True, example="beta = 2", methods=SIMPO),
    "gamma": Field(Num(low=0), "SimPO's gamma", required=True, example="gamma = 1.2", methods=SIMPO),
    "minibatches": Field(
        COUNT, "parts of a step's batch", required=True, example="minibatches = 4", methods=PPO
    ),
    "epochs": Field(COUNT, "passes over a step's batch", required=True, example="epochs = 2", methods=PPO),
    "clip": Field(Block("clip"), "bounds of the probability ratio", methods=PPO),
    "loss_mean": Field(
        Choice(("token", "response", "constant")),
        "average the loss over the minibatch's tokens, within each response first, or over responses as if each had"
        " `rollout.max_tokens` tokens, as Dr. GRPO does",
        required=True,
        example="loss_mean = token",
        methods=PPO,
    ),
    "forcing": Field(A(("forcing",)), "how a cut response is made to answer", methods=PPO),
    "reference_samples": Field(
        NATURAL, "samples of the starting model per question, for `ref`", default=0, methods=PPO
    ),
    "kl": Field(
        Num(low=0),
        "weight in the loss of the divergence from the model that the stage began with; 0 trains without",
        default=0.0,
        methods=PPO,
    ),
    "resample": Field(
        Num(whole=True, low=0, high=1000),
        "further draws of questions, at most, to replace those whose responses all earn the same; 10 in DAPO",
        default=0,
        methods=PPO,
    ),
    "old_logprobs": Field(
        Choice(("auto", "engine", "trainer")),
        "whose log-probabilities of a response PPO's ratios divide by; `auto` takes the engine's where they are the"
        " trainer's own numbers",
        default="auto",
        methods=PPO,
    ),
    "importance_cap": Field(
        Num(low=1),
        "weigh each token by the trainer's probability over the engine's, at most this; 2 in Yao et al. 2025, Your"
        " Efficient RL Framework Secretly Brings You Off-Policy RL Training; left out, no weights",
        methods=PPO,
    ),
    "mismatch_limit": Field(
        Num(low=1, above=True),
        "stop where trainer's and engine's probabilities differ by more than this factor, in the median of a step's tokens;"
        " left out, never",
        methods=PPO,
    ),
    "optim": Field(Block("optim"), "the optimizer"),
    "precision": Field(
        Choice(("auto", "float32", "bfloat16")),
        "of forward and backward passes, over float32 weights; `auto` is bfloat16 on GPUs, float32 elsewhere",
        default="auto",
    ),
    "microbatch": Field(
        TOKENS,
        "padded tokens that a process runs at once, or one longer sequence; left out, 32K on GPUs, 2K elsewhere",
    ),
    "checkpointing": Field(
        Choice(("auto", "on", "off")),
        "compute activations again in the backward pass, to hold more tokens; `auto` does on GPUs",
        default="auto",
    ),
    "steps": Field(STEPS, "training steps, at most", required=True, example="steps = 400 steps"),
    "passes": Field(COUNT, "passes over the traces or pairs, if that is fewer steps", methods=SEQUENCES),
    "until": Field(
        A(("until", "plateau"), "`plateau(…)`, `steps(…)`, or both with `or`"),
        "when the stage ends",
        example="until = plateau(train.accuracy, window: 20 steps, within: 0.2%)",
    ),
    "expected_length": Field(
        TOKENS, "mean tokens of a response or trace, for the price alone; a run of the same measures it"
    ),
    "save_every": Field(STEPS0, "steps between checkpoints kept; 0 keeps the last", default=0),
    "eval": Field(A(("suite",)), "how the checkpoint is evaluated", example="eval = math_reg"),
    "score": Field(
        A(("reg",), "`reg(…)`"),
        "the measure against a frontier",
        example="score = reg(against: edge, to: 16K tokens)",
    ),
    "seed": Field(NATURAL, "the run's seed, where no study replicates it", default=1),
    "cluster": Field(A(("cluster",)), "where it trains; left out in a study, where the study runs"),
    "engine": ENGINE,
    "limit": Field(HOURS, "the most that may be spent"),
}

KINDS_OF_TRAINING: tuple[Kind, ...] = (
    Kind(
        "advantage",
        "How rewards at splits become advantages.",
        {
            "normalise": Field(
                Choice(("group", "center", "none")),
                "z-score, centre, or leave rewards within a group",
                default="group",
            ),
            "std": Field(
                Choice(("population", "sample")),
                "which standard deviation; the paper does not say",
                default="population",
            ),
            "absent": Field(
                Choice(("left_out", "zero")),
                "a rollout that lacks a split, such as a reasoning step: leave it out of the split's mean and deviation,"
                " or count it with a return of 0",
                default="left_out",
            ),
            "batch": Field(Flag(), "z-score once more over all tokens of the step", default=False),
        },
        form="block",
    ),
    Kind(
        "batch",
        "What a step takes.",
        {
            "prompts": Field(
                COUNT,
                "questions a step; traces for SFT, pairs for SimPO",
                required=True,
                example="prompts = 128",
            ),
            "rollouts": Field(COUNT, "responses a question", default=1, methods=PPO),
        },
        form="block",
    ),
    Kind(
        "rollout",
        "How responses are sampled while training.",
        {
            "max_tokens": Field(TOKENS, "longest response", required=True, example="max_tokens = 32K tokens"),
            **SAMPLING,
            "wordings": Field(
                Many(A(("wording",))), "ways to ask, taken in turn; left out, the prompt as it is"
            ),
            "wordings_per": Field(
                Choice(("rollout", "question")),
                "whether a question's rollouts take the wordings in turn, or each question one of them",
                default="rollout",
            ),
        },
        form="block",
    ),
    Kind(
        "clip",
        "Bounds of PPO's probability ratio: 1 - low to 1 + high.",
        {
            "low": Field(Num(low=0, high=1, above=True), "below 1", required=True, example="low = 0.2"),
            "high": Field(Num(low=0, high=10, above=True), "above 1", required=True, example="high = 0.2"),
        },
        form="block",
    ),
    Kind(
        "rest",
        "AdamW for the parameters that Muon leaves out.",
        {
            "lr": Field(LR, "learning rate", required=True, example="lr = 6e-3"),
            "betas": Field(Many(BETA, 2, most=2), "decay of the moments", default=(0.9, 0.95)),
            "eps": Field(POSITIVE, "added to the denominator", default=1e-5),
            "weight_decay": Field(Num(low=0), "decoupled weight decay", default=0.0),
        },
        form="block",
    ),
    Kind(
        "optim",
        "The optimizer and its learning-rate curve.",
        {
            "algorithm": Field(
                Choice(("adam", "adamw", "muon")), "the algorithm", required=True, example="algorithm = adamw"
            ),
            "lr": Field(LR, "learning rate", required=True, example="lr = 5e-6"),
            "betas": Field(Many(BETA, 2, most=2), "decay of the moments", default=(0.9, 0.95)),
            "eps": Field(POSITIVE, "added to the denominator", default=1e-5),
            "weight_decay": Field(Num(low=0), "weight decay", default=0.0),
            "warmup": Field(
                Either((STEPS0, SHARE)), "steps of linear warm-up, or their share, rounded down", default=0
            ),
            "decay": Field(Choice(("constant", "linear")), "after the warm-up", default="constant"),
            "decay_from": Field(SHARE, "where linear decay begins, as a share of the steps", default=0.0),
            "grad_norm": Field(Num(low=0), "clip the gradient's norm; 0 does not", default=1.0),
            "rest": Field(Block("rest"), "AdamW for embeddings, norms and biases, with `muon`"),
        },
        form="block",
    ),
    Kind(
        "recipe",
        "Settings that experiments share.",
        TRAINING,
        parents=("recipe",),
        children=("stage",),
        partial=True,
        example="recipe mine = ppo { optim { lr = 1e-6 } }",
    ),
    Kind(
        "experiment",
        "Training from a starting point, or the evaluation of one.",
        TRAINING,
        parents=("recipe", "experiment", "checkpoint", "model"),
        children=("stage",),
        example="experiment mine = ppo { base = qwen3_4b … }",
    ),
    Kind("stage", "One stage of training: what differs from its experiment.", TRAINING, partial=True),
    Kind(
        "plateau",
        "Ends a stage once a metric no longer rises.",
        {
            "metric": Field(
                A(("metric",), "a metric such as train.accuracy"),
                "what to watch",
                required=True,
                example="train.accuracy",
            ),
            "window": Field(STEPS, "steps averaged over", required=True, example="window: 20 steps"),
            "within": Field(
                Num(low=0), "the rise that still counts as none", required=True, example="within: 0.2%"
            ),
        },
        form="call",
        positional=("metric",),
    ),
)
