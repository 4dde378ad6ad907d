"""Names that reodsl had once, and what serves instead (E0299), and codes that are parts of others now."""

from __future__ import annotations

from types import MappingProxyType

from reodsl.diagnostics.model import Diagnostic, Span, error

SINCE = "0.9.0"
"""The version that first lacks all of them."""

_LOSS = 'write `loss = python("losses.py:{}")` with specs/own/losses.py of the repository, which does that in a few lines'

DROPPED = MappingProxyType(
    {
        "reodsl run --allow-judge": 'ask the model in a function of yours: `verifier = python("checks.py:check")`',
        "judge()": 'ask the model in a function of yours: `verifier = python("checks.py:check")`',
        "tools": "a response is one turn of the model; prime-rl and verl train models that call tools",
        "reply": "a response is one turn of the model, so a tool cannot reply in the middle of it",
        "reodsl run --allow-weights": "training starts servers of its own; "
        '`served("MODEL", address: "…")` evaluates a model that a running server has',
        "final": 'write `answer = [boxed, after("answer is"), last_number]`, or `regex("…")` for the form that '
        "the responses have",
        "teacher_on": "trainers have the teacher, in shards over all their GPUs: a larger one takes more of them; take "
        "`teacher_on` out",
        "segment": "every response is done at its step: take `segment` out; `lag` alone generates beside training",
        "programs()": "take tests of a published set by `file(…)` or `hub(…)`, as `specs/code/tasks.reo` does, or draw "
        'questions by `generated(python("FILE.py:FUNCTION"), …)`',
        "replicate_from": "every seed trains all stages; to share one training, train it in a run of its own, and start "
        "from its checkpoint by `folder(…)`",
        "skew": _LOSS.format("skewed"),
        "token_share": _LOSS.format("forking"),
        "entropy_share": _LOSS.format("fork_bonus"),
        "past_cap": _LOSS.format("masked"),
        "importance_floor": _LOSS.format("masked"),
        "ipo": "write `method = dpo`, which compares with the start too",
        "reodsl report --compare": "name both arms in one study: its run reuses their stored results and costs nothing; "
        "`reodsl diff` compares settings",
        "reodsl plan --out": "write `reodsl plan SPEC --json > FILE`; `reodsl run SPEC` does what its plan says",
        "reodsl push": "write `hf upload OWNER/NAME runs/RUN/arms/ARM/checkpoint`, and for the card that a report has "
        "`hf upload OWNER/NAME runs/RUN/cards/ARM.md README.md`",
        "reodsl run --notify": "write `reodsl run SPEC; your-command`, or set an alert in a tracker (`--track`)",
        **dict.fromkeys(
            (f"reodsl reward --{option}" for option in ("run", "task", "step", "question")),
            "write the responses to try into a file, and name it: `--group FILE`; `reodsl view` shows those of a run",
        ),
        "package(file: …)": 'take the model as safetensors, by `hub("OWNER/NAME")` or `folder("models/mine")`; of SmolLM2 '
        "`make smollm2` writes such a folder in the checkout",
        "reodsl run --track mlflow": "write `--track wandb`, `--track trackio` or `--track tensorboard`",
    }
)
"""The help for each name: a command, an option behind its command, a name of a spec, or a call's argument in the call."""

_PARTS = """
E0101 E0102 E0103 E0104 E0105 E0106 E0107 E0108 E0112;
E0114 E0110 E0111 E0115 E0116 E0117 E0428 E0983; E0118 E0113 E0120; E0121 E0964 E0972 E0984;
E0123 E0124; E0131 E0132; E0136 E0137; E0201 E0213; E0204 E0205; E0209 E0690; E0211 E0210;
E0303 E0430; E0314 E0315 E0740 E0813 E0929; E0316 E0934; E0404 E0407 E0427; E0405 E0429 E0932;
E0408 E0409 E0414; E0410 E0411 E0412 E0413; E0421 E0420 E0422 E0423; E0424 E0426; E0431 E0432;
E0436 E0437; E0505 E0923 E0924 E0930; E0507 E0532; E0510 E0508 E0928; E0513 E0935; E0516 E0527;
E0606 E0611; E0607 E0608; E0609 E0614; E0701 E0702; E0704 E0703; E0705 E0713; E0706 E0707;
E0720 E0710 E0809; E0744 E0745; E0803 E0804 E0805 E0806 E0814 E0817 E0818 E0832; E0812 E0819;
E0815 E0810; E0821 E0822 E0829; E0824 E0825; E0850 E0708; E0937 E0816 E0823; E0938 E0961;
E0950 E0951 E0958; E0952 E0953; E0954 E0955 E0969 E0994; E0967 E0968; E0973 E0974; E0977 E0963;
E0990 E0960 E0965; W0201 W0202 W0203; W0523 W0518 W0522
"""

MERGED = MappingProxyType(
    {old: code for code, *earlier in map(str.split, _PARTS.split(";")) for old in earlier}
)
"""The code that has the messages of each earlier code."""


def refuse_dropped(name: str, span: Span | None = None) -> Diagnostic | None:
    """Return the error for a name that was removed (E0299), with what to write instead; None for other names."""
    if name not in DROPPED:
        return None
    return error("E0299", f"`{name}` was removed in {SINCE}", span, "removed", help=DROPPED[name])
