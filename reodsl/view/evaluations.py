"""Find the evaluations of a run: the files of responses by arm and seed, finished or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reodsl.graph.identity import parse_role
from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.store.runs import Record, events, kept_spec
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Files of the responses of an arm: one a table where it is evaluated, one a chunk of a task that still goes.

    `tokenizer` is that of the model, where it can be found: it says at which character a token ends.
    """

    arm: str
    seed: int | None
    task: str
    key: str
    samples: tuple[Path, ...]
    forced: tuple[Path, ...]
    examples: tuple[Path, ...]
    tokenizer: Path | None
    whole: bool

    @property
    def name(self) -> str:
        """`vanilla@1`, or the arm alone where no seed changes it."""
        return self.arm if self.seed is None else f"{self.arm}@{self.seed}"


@dataclass(frozen=True, slots=True)
class Studied:
    """A run's study, and its evaluations by their names."""

    spec: Spec
    evaluations: Mapping[str, Evaluation]


def studied(store: Store, record: Record) -> Studied:
    """Return the evaluations of a run that ended or have written anything. Raises E0968 where its spec was not kept.

    Of what ended the files are named as they should be: whether they are there and undamaged is for the reader to see.
    """
    spec = kept_spec(store, record)
    begun = {
        each["task"]: str(each.get("key", "")) for each in events(store, record) if each["kind"] == "started"
    }
    evaluations: dict[str, Evaluation] = {}
    for role, task in lower(spec)["report"].inputs.items():
        place = parse_role(role)
        key = record.tasks.get(task) or begun.get(task, "")
        if place.kind != "evaluate" or not key:
            continue
        whole = task in record.tasks or store.path(key).is_dir()
        folder = store.path(key) if whole else store.root / "work" / key
        evaluation = _evaluation(store, folder, place.name, place.seed, task, key, whole)
        if evaluation.samples:
            evaluations[evaluation.name] = evaluation
    return Studied(spec, evaluations)


def _evaluation(
    store: Store, folder: Path, arm: str, seed: int | None, task: str, key: str, whole: bool
) -> Evaluation:
    parts = [folder] if whole else sorted(path.parent for path in folder.glob("chunks-*/*/samples.parquet"))

    def files(name: str) -> tuple[Path, ...]:
        places = (part / name for part in parts if part.suffix != ".part")
        return tuple(place for place in places if place.is_file() or (whole and name == "samples.parquet"))

    manifest = store.get(key)
    start = manifest.provenance.get("inputs", {}).get("start") if manifest is not None else None
    tokenizer = store.path(start) / "checkpoint" / "tokenizer.json" if isinstance(start, str) else None
    return Evaluation(
        arm=arm,
        seed=seed,
        task=task,
        key=key,
        samples=files("samples.parquet"),
        forced=files("forced.parquet"),
        examples=files("examples.parquet"),
        tokenizer=tokenizer if tokenizer is not None and tokenizer.is_file() else None,
        whole=whole,
    )
