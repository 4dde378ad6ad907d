"""Find settings that have no effect beside the other settings: checks report them, and results ignore them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Block, Setting
from reodsl.ir.training import TRAINING, UNBOUNDED, WHOLE
from reodsl.language.fitting import make_typed
from reodsl.language.resolve import cap_importance
from reodsl.language.reward.body import TypedReward
from reodsl.language.values import Composite, Items, Record, Slot, TypedCondition, list_records, plain


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The settings of a stage or declaration, which decide whether its other settings have an effect."""

    record: Record
    reward: TypedReward | None = None
    """The reward of a stage, typed; None if it is wrong."""
    on_gpus: bool = False
    """True if servers may sample for the stage."""

    def has(self, path: str, *words: str) -> bool:
        """Return whether a setting's value is one of `words`; also true if the setting has no value.

        Args:
            path: The dotted path of the setting, such as `loss.clip`.
            *words: The words.
        """
        value = self.record.get(path)
        return value is None or str(plain(value)) in words

    def is_known(self, path: str) -> bool:
        """Return whether a setting has a value."""
        return self.record.get(path) is not None

    def is_set(self, path: str) -> bool:
        """Return whether a setting is on: its value is not 0, false or empty; also true if its value is wrong.

        The result is false for a setting without a value.
        """
        return bool(self.record.data(path)) or self.is_wrong(path)

    def is_wrong(self, path: str) -> bool:
        """Return whether a setting was given a wrong value."""
        folder, _, name = path.rpartition(".")
        holder = self.record.sub(folder) if folder else self.record
        return holder is not None and name in holder.invalid

    def uses(self, *names: str) -> bool:
        """Return whether the reward uses one of the names; also true for a reward with errors."""
        return self.reward is None or not self.reward.uses.isdisjoint(names)

    @property
    def is_split(self) -> bool:
        """Return whether the reward divides responses into sections at token positions; also true if it has errors."""
        return self.reward is None or self.reward.split is not None

    @property
    def is_weighed(self) -> bool:
        """Return whether tokens have importance weights: the trainer's probability over the engine's."""
        return cap_importance(self.record, self.on_gpus) is not None or self.is_set("loss.decoupled")

    @property
    def is_taught(self) -> bool:
        """Return whether the loss or the reward reads the teacher."""
        return self.is_set("kl") or self.uses("teacher")

    @property
    def asks_by_start(self) -> bool:
        """Return whether a wording's condition `when` reads samples of the reference model.

        The reference model is a copy of the checkpoint from which a stage starts, hence the name.
        """
        wordings = list_records(self.record.sub("rollout") or self.record, "wordings")
        conditions = [wording.sub("when") for wording in wordings]
        return any("ref" in item.reads for item in conditions if isinstance(item, TypedCondition))

    @property
    def runs_tests(self) -> bool:
        """Return whether a data set grades responses by running programs; also true if its verifier is wrong."""
        verifier = self.record.sub("verifier")
        return self.is_wrong("verifier") or (verifier is not None and verifier.kind == "tests")

    @property
    def updates_once(self) -> bool:
        """Return whether each step is a single update in which the ratio of every token is 1.

        This needs one minibatch and one epoch. The ratio differs from 1 if the old log-probabilities are the
        engine's or of an earlier step (`lag`), or if tokens of a mode are weighted by their share. A wrong
        value among the deciding settings gives false.
        """
        old = self.record.data("old_logprobs") or "auto"
        lags = self.is_set("lag") and not self.is_set("loss.decoupled")
        differs = (
            old == "engine" or (lags and old == "auto") or self.record.data("loss.mode_tokens") == "shares"
        )
        is_unclear = any(map(self.is_wrong, ("old_logprobs", "loss", "loss.mode_tokens")))
        return not (differs or is_unclear) and all(
            self.record.data(name) == 1 for name in ("minibatches", "epochs")
        )

    @property
    def blames(self) -> bool:
        """Return whether an advantage may be negative.

        Advantages that are neither normalised nor rescaled are the rewards. Then the lower bounds of the
        reward's values decide. The result is true if the bounds are unknown, as after an error in the reward.
        """
        reward = self.reward
        is_normalised = self.record.data("advantage.normalise") != "none"
        is_rescaled = any(map(self.is_set, ("advantage.batch", "advantage.own")))
        if is_normalised or is_rescaled or reward is None or not reward.is_sound or reward.parts:
            return True
        return any(value.low < 0 for value, _ in reward.values)

    @property
    def draws(self) -> bool:
        """Return whether a suite samples at random: responses, forced answers, or the wording of a question.

        Also true if a setting that decides this has a wrong value.
        """
        forcing = self.record.sub("forcing") if self.record.data("grid") else None
        wordings = list_records(self.record, "wordings")
        return (
            (self.is_set("temperature") and self.record.data("top_k") != 1)
            or (forcing is not None and Surroundings(forcing).is_set("temperature"))
            or any(
                wording.data("share") not in (None, 1) or "budget" in wording.fields for wording in wordings
            )
            or any(map(self.is_wrong, ("grid", "forcing", "wordings")))
        )

    @property
    def repeats(self) -> bool:
        """Return whether a generated worked solution may have a second pass."""
        return self.is_set("another_pass") and self.record.data("max_passes") != 1


@dataclass(frozen=True, slots=True)
class Need:
    """The condition under which some settings have an effect.

    A setting that is required is only reported if it replaces a setting of the parent, since it cannot be
    left out.
    """

    paths: str
    """The settings, by dotted paths with spaces between."""
    deciders: str
    """The settings that decide the condition."""
    is_met: Callable[[Surroundings], bool]
    """True if the settings are read."""
    remedy: str
    """The text to write so that they are read; empty if there is none, or for an `item`, which gets its default."""
    reason: str
    """The end of the message: why they are not read."""
    is_spare: bool = False
    """True if other heirs of a recipe may use the setting: then an inherited setting is reported only with a decider."""
    item: int | None = None
    """The index of a list's only item that is not read; None if nothing of the setting is read."""


_OPENS = re.compile(r"\\(?:boxed|fbox)\s{0,64}\{[^}]*$")
"""The pattern of a text that ends inside an open box."""
Condition = Callable[[Surroundings], bool]


def _has(path: str, *words: str) -> Condition:
    """Return the condition that a setting's value is one of `words`, or is not known."""
    return lambda settings: settings.has(path, *words)


def _lacks(path: str, *words: str) -> Condition:
    """Return the condition that a setting has no value, or a value that is none of `words`."""
    return lambda settings: not settings.is_known(path) or not settings.has(path, *words)


def _is_set(path: str) -> Condition:
    """Return the condition that a setting is on: it has a value other than 0, false and an empty value."""
    return lambda settings: settings.is_set(path)


def _sampling(block: str) -> tuple[Need, ...]:
    """Return the conditions under which a block's sampling settings have an effect.

    They need a temperature above 0, and more than one token to choose from.

    Args:
        block: The block's path with a dot at its end, such as `rollout.`; empty for a declaration with these
            settings.
    """
    temperature, top_k = f"{block}temperature", f"{block}top_k"
    write = f"{block.removesuffix('.')} {{ %s }}" if block else "%s"
    return (
        Need(
            f"{block}top_p {top_k}",
            temperature,
            _is_set(temperature),
            write % "temperature = 1",
            "limits random sampling, and at temperature 0 nothing is sampled",
        ),
        Need(
            f"{block}top_p {temperature}",
            top_k,
            _lacks(top_k, "1"),
            write % "top_k = -1",
            "is for sampling among several tokens, but `top_k` allows only one",
        ),
    )


STAGE = (
    Need(
        "loss.cap",
        "loss.clip",
        _has("loss.clip", "dual"),
        "loss { clip = dual }",
        "bounds the ratio of negative advantages only with `clip = dual`",
    ),
    Need(
        "loss.cap",
        "advantage.normalise reward",
        lambda around: around.blames,
        "advantage { normalise = group }",
        "bounds the ratio of negative advantages, but here advantages are rewards of at least 0",
    ),
    Need(
        "loss.gate_up loss.gate_down",
        "loss.clip",
        _has("loss.clip", "gate"),
        "loss { clip = gate }",
        "belongs to the soft gate, which this loss does not use",
    ),
    Need(
        "clip.low clip.high",
        "loss.clip",
        _lacks("loss.clip", *UNBOUNDED),
        "loss { clip = two_sided }",
        "of `clip` is a bound, but this loss does not clip",
    ),
    Need(
        "clip.low clip.high loss.cap",
        "minibatches epochs",
        lambda around: not around.updates_once,
        "minibatches = 2",
        "bounds the ratio to the policy at the step's start, which is 1 if a step has one update",
    ),
    Need(
        "forcing",
        "reward",
        lambda around: around.uses("forced", "truth"),
        "reward = reo(at: …)",
        "is appended to cut responses, but the reward cuts none",
        is_spare=True,
    ),
    Need(
        "loss.estimator", "kl", _is_set("kl"), "kl = 1e-3", "estimates the divergence, whose weight `kl` is 0"
    ),
    Need(
        "loss.jsd_beta",
        "loss.estimator",
        _has("loss.estimator", "jsd"),
        "loss { estimator = jsd }",
        "belongs to the `jsd` estimator, but the loss uses another one",
    ),
    Need(
        "loss.top_k",
        "loss.estimator",
        _has("loss.estimator", *WHOLE),
        "loss { estimator = reverse }",
        "is for divergences of full distributions, but this one compares sampled tokens",
    ),
    *(
        Need(path, "kl reward", lambda around: around.is_taught, f"kl = {weight}", reason)
        for path, weight, reason in (
            ("teacher", "1", "attracts the policy with the weight `kl`, which is 0"),
            ("teacher_wording", "1", "is the prompt of the teacher, whose weight `kl` is 0"),
            ("teacher_follows", "1e-3", "moves the reference of `kl`, whose weight is 0"),
        )
    ),
    Need(
        "loss.ending_tokens",
        "rollout.solution",
        _is_set("rollout.solution"),
        "rollout { solution = 1K tokens }",
        "is for text that ends thinking by force, but nothing ends thinking",
    ),
    Need(
        "loss.decoupled",
        "lag importance_cap",
        lambda around: around.is_set("lag") or cap_importance(around.record, around.on_gpus) is None,
        "lag = 1 step",
        "adds importance weights of tokens, which `importance_cap` does already without a lag",
    ),
    Need(
        "loss.importance",
        "importance_cap",
        lambda around: around.is_weighed,
        "importance_cap = 2",
        "is for importance weights, but this stage has none",
    ),
    Need(
        "rollout.caches",
        "cluster",
        lambda around: around.on_gpus or around.has("rollout.caches", "auto"),
        "cluster = std.clusters.h100_1x8",
        "is for servers on GPUs, but no server generates these responses",
    ),
    Need(
        "resample",
        "reward",
        lambda around: around.is_set("reward") or not around.is_set("resample"),
        "reward = outcome",
        "replaces questions with equal rewards, but this stage has no reward",
    ),
    Need(
        "reference_samples",
        "reward",
        lambda around: around.uses("ref") or around.asks_by_start or not around.is_set("reference_samples"),
        "let usual = mean(len(z) for z in ref)",
        "samples the reference model, but neither the reward nor a wording uses `ref`",
    ),
    Need(
        "monitor",
        "reward",
        lambda around: around.uses("monitor"),
        "track usual = mean(len(z) for z in monitor)",
        "is evaluated from time to time, but no track of the reward uses it",
    ),
    Need(
        "advantage.equal",
        "advantage.batch",
        _is_set("advantage.batch"),
        "advantage { batch = true }",
        "is for z-scores over the step, but none are computed",
    ),
    Need(
        "advantage.std",
        "advantage.normalise",
        _has("advantage.normalise", "group"),
        "advantage { normalise = group }",
        "is for z-scores within a group, but no standard deviation divides these advantages",
    ),
    Need(
        "advantage.absent",
        "advantage.normalise",
        _lacks("advantage.normalise", "none"),
        "advantage { normalise = group }",
        "is for the mean and deviation of a group, but neither is computed",
    ),
    Need(
        "advantage.absent",
        "reward",
        lambda around: around.is_split,
        "reward = reo(at: …)",
        "is for responses that end before a split, but the reward has no splits",
    ),
    Need(
        "credit",
        "reward",
        lambda around: around.is_split,
        "reward = reo(at: …)",
        "chooses the tokens that get the reward of a split, but the reward has no splits",
    ),
    Need(
        "optim.decay_from",
        "optim.decay",
        _has("optim.decay", "linear"),
        "optim { decay = linear }",
        "is when the learning rate begins to fall, but the learning rate is constant",
    ),
    Need(
        "optim.rest",
        "optim.algorithm",
        _has("optim.algorithm", "muon"),
        "optim { algorithm = muon }",
        "is for parameters that `muon` leaves to AdamW, but the algorithm is another one",
    ),
    Need(
        "optim.eps",
        "optim.algorithm",
        _lacks("optim.algorithm", "muon"),
        "rest { eps = … }",
        "is added to Adam's denominator, but `muon` has no such denominator",
    ),
    Need(
        "optim.betas",
        "optim.algorithm",
        _lacks("optim.algorithm", "muon"),
        "",
        "has a second number for Adam, but `muon` reads only the first, its momentum",
        item=1,
    ),
    Need(
        "rollout.wordings_per",
        "rollout.wordings",
        lambda around: len(list_records(around.record.sub("rollout"), "wordings")) > 1,
        "rollout { wordings = [ONE, ANOTHER] }",
        "says how several wordings alternate, but there are fewer than two",
    ),
    *_sampling("rollout."),
    *(
        Need(
            paths,
            f"{block}.own",
            lambda around, block=block: not around.is_set(f"{block}.own"),  # type: ignore[misc]
            "",
            f"belongs to the built-in {block}, which your function replaces",
        )
        for block, paths in (
            ("loss", "loss.ratio loss.clip loss.cap loss.gate_up loss.gate_down"),
            ("advantage", "advantage.normalise advantage.std advantage.absent credit"),
        )
    ),
)
NEEDS: dict[str, tuple[Need, ...]] = {
    "stage": STAGE,
    "suite": (
        *_sampling(""),
        Need(
            "reference reference_samples",
            "wordings",
            lambda around: around.asks_by_start,
            "words { when = mean(len(z) for z in ref) < 1K tokens }",
            "is what a `when` of the suite's `wordings` reads as `ref`, but no `when` does",
        ),
        Need(
            "seed",
            "temperature top_k",
            lambda around: around.draws,
            "temperature = 1",
            "is for random sampling, but every token is the most likely one",
        ),
    ),
    "forcing": (
        *_sampling(""),
        Need(
            "close",
            "text",
            lambda around: around.is_wrong("text") or not _OPENS.search(around.record.data("text") or ""),
            'text = "The answer is "',
            "ends the answer, but an answer in the box that `text` opens ends with the box",
        ),
    ),
    "pool": _sampling(""),
    "data": (
        Need(
            "tolerance",
            "verifier",
            lambda around: around.has("verifier", "math") or around.runs_tests,
            "verifier = math",
            "is for rounded numbers, which only `math` and `tests()` compare",
        ),
    ),
    "cluster": (
        Need(
            "rollout_share",
            "placement",
            _has("placement", "apart"),
            "placement = apart",
            "is the share of GPUs that only generate, but here all GPUs generate and train in turn",
        ),
    ),
    "traces": (
        Need(
            "filler",
            "filler_probability",
            _is_set("filler_probability"),
            "filler_probability = 5%",
            "is inserted before steps with `filler_probability`, which is 0",
            is_spare=True,
        ),
        Need(
            "restyle",
            "style",
            lambda around: not isinstance(around.record, Composite) or len(around.record.parts) != 1,
            "style another { template = … }",
            "changes the style, but there is only one style",
        ),
        Need(
            "max_passes until_agree",
            "another_pass",
            _is_set("another_pass"),
            "another_pass = 50%",
            "is for further passes, whose probability `another_pass` is 0",
        ),
        Need(
            "another_pass until_agree",
            "max_passes",
            lambda around: around.record.data("max_passes") != 1,
            "max_passes = 2",
            "is for further passes, but `max_passes` allows only one",
        ),
        Need(
            "again",
            "another_pass max_passes",
            lambda around: around.repeats,
            "another_pass = 50%",
            "is written between passes, but there is only one pass",
        ),
        Need(
            "until_agree",
            "error",
            _is_set("error"),
            "error = 5%",
            "repeats passes that disagree, but without an `error` all passes agree",
        ),
    ),
}
"""The conditions under which settings have an effect, by kind; `stage` is a stage of training."""


def list_idle(settings: Surroundings, kind: str = "stage") -> Iterator[tuple[str, Slot, Need, Slot | None]]:
    """Yield settings of the user that have no effect, each with the condition (`Need`) that is not met.

    A setting that equals its default is skipped, because the user could as well leave it out. A setting of
    a training method other than the stage's is skipped too.

    Args:
        settings: All settings of the stage or declaration.
        kind: The kind of the declaration; `stage` for a stage of training.

    Yields:
        The setting's dotted path, the setting, its first condition that is not met, and what it may be replaced by: its
        default, or None if it has none.
    """
    method, seen = settings.record.data("method"), set[str]()
    for unmet in NEEDS[kind]:
        for path in unmet.paths.split():
            slot = settings.record.at(path)
            if slot is None or slot.span is None or path in seen or unmet.is_met(settings):
                continue
            methods = TRAINING[path.partition(".")[0]].methods if kind == "stage" else ()
            default = _make_default(slot, find_setting(path, kind), unmet.item)
            is_default = default is not None and bool(plain(default.value) == plain(slot.value))
            if (not methods or method in methods) and not is_default:
                seen.add(path)
                yield path, slot, unmet, default


def find_setting(path: str, kind: str = "stage") -> Setting:
    """Return the declaration of a setting from its dotted path in a kind."""
    block, _, name = path.rpartition(".")
    fields = KINDS[kind].fields
    if block:
        holder = fields[block].type
        fields = KINDS[holder.kind if isinstance(holder, Block) else block].fields
    return fields[name]


def _make_default(slot: Slot, setting: Setting, item: int | None) -> Slot | None:
    """Return the default of a setting, at the span of the value that it replaces; None without a default.

    If `item` is the index of an item of a list, only this item is that of the default.
    """
    if setting.default is None:
        return None
    default = make_typed(setting.default, setting.type, slot.value.span)
    if item is not None and isinstance(slot.value.data, Items) and isinstance(default.data, Items):
        values = list(slot.value.data.values)
        values[item] = default.data.values[item]
        default = replace(default, data=Items(tuple(values)))
    return Slot(default, None)


def drop_idle(settings: Surroundings, kind: str = "stage") -> Record:
    """Return a record in which settings without effect have their defaults, or are left out if they have none.

    Specs that do the same work then have the same canonical JSON and share stored results. Required settings
    and settings that other heirs of a recipe may use (`is_spare`) stay.

    Args:
        settings: All settings of the stage or declaration.
        kind: The kind of the declaration; `stage` for a stage of training.
    """
    stage = settings.record
    for path, _, need, default in list_idle(settings, kind):
        block, _, name = path.rpartition(".")
        setting = find_setting(path, kind)
        if setting.required or need.is_spare:
            continue
        holder = stage.part(block) if block else stage
        fields = {key: field_slot for key, field_slot in holder.fields.items() if key != name}
        cleaned = replace(holder, fields=fields if default is None else {**fields, name: default})
        if block:
            old = stage.fields[block]
            cleaned = stage.with_field(block, replace(old, value=replace(old.value, data=cleaned)))
        stage = cleaned
    return stage
