"""A trained model on its way to a hub: the files of its repository, and sending them with huggingface_hub.

The token is the user's: `HF_TOKEN`, or what `hf auth login` keeps. It goes to huggingface_hub alone and into no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import httpx
import huggingface_hub
from huggingface_hub import ModelCardData
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.ir import Spec
from reodsl.ir.model import Hub, Model
from reodsl.ir.training import Experiment, FromTraining
from reodsl.report import notes, tables
from reodsl.report.curve_chart import curves
from reodsl.report.drawing import pictures
from reodsl.report.main_table import markdown
from reodsl.report.material import Material, bases, title
from reodsl.report.page import spread_note
from reodsl.report.provenance import rerun
from reodsl.report.results import results
from reodsl.share.evaluated import FinishedEvaluation, Shared
from reodsl.store.external import TEMPLATES
from reodsl.store.files import json_bytes

FOLDER = "reodsl"
"""The folder in a model's repository for everything but the model and the card."""
CURVES = f"{FOLDER}/curves.png"
SILENCE = 60.0
"""Seconds without a byte after which the hub counts as gone. huggingface_hub itself would wait for ever."""
CHECKPOINT = (
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    f"{TEMPLATES}/*.jinja",
)
"""Files of a checkpoint that are sent: those that `save_pretrained` writes. Any other stays here."""
_WIDTH = 520


@dataclass(frozen=True, slots=True)
class Sent:
    """A file of the repository: its path there, and its bytes or where they are."""

    path: str
    content: bytes | Path

    @property
    def size(self) -> int:
        """Return its bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


def choose(shared: Shared, arm: str, seed: int | None) -> FinishedEvaluation:
    """Return the evaluated model that is meant. Raises E0994 for none, an untrained one, or several seeds."""
    known = [one for one in shared.evaluations if one.arm.name == arm]
    seeds = [one.seed for one in known]
    if not known[0].arm.trained:
        raise problem(
            "E0994",
            f"{arm!r} is a model as it came, and nothing was trained",
            help="name an arm that a training leads to; `reodsl ls RUN` lists the models",
        )
    if seed is None and len(known) > 1:
        raise problem(
            "E0994",
            f"{arm!r} has a model for each of {len(known)} seeds",
            help=f"name one: --seed {seeds[0]}",
        )
    if seed is not None and seed not in seeds:
        raise problem(
            "E0994",
            f"{arm!r} has no evaluated model of seed {seed}",
            help=f"there is {', '.join(map(str, seeds))}",
        )
    one = known[0] if seed is None else known[seeds.index(seed)]
    if one.checkpoint is None:
        raise problem(
            "E0994",
            f"the checkpoint of {arm!r} is not in the store any more",
            help="run the spec again, which makes it anew",
        )
    return one


def write_card(material: Material, one: FinishedEvaluation, name: str, license: str | None) -> str:
    """Return the text of `README.md`, with metadata that the hub reads. `name` is the model's, without its owner."""
    spec, study, experiment = material.spec, material.study, _experiment(one)
    source = experiment.model.source
    data = ModelCardData(
        base_model=source.repo if isinstance(source, Hub) else None,
        license=license,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["reodsl", "reasoning", "reasoning-efficiency"],
        model_name=name,
    )
    seed = "" if one.seed is None else f", seed {one.seed}"
    parts = [
        f"---\n{data.to_yaml().strip()}\n---",
        f"# {name}",
        f"{_code(one.arm.name)} of the study {_code(study.name)}{seed}: trained with "
        "reodsl to reason with fewer tokens, after [the paper on reasoning efficiency](https://arxiv.org/abs/2506.07104).",
        study.doc.strip(),
        "## Results",
        _table(material, one.arm.name),
        f"{spread_note(material)} Tokens are the mean length of a response. REG, the Reasoning Efficiency Gap, is the area "
        f"between the frontier and the curve: lower is better. {notes.approximate(study)}".rstrip(),
        f"![Accuracy at every token budget]({CURVES})",
        "## Use",
        _use(experiment.model, one),
        "## Training",
        f"The spec below says everything that was done. `{FOLDER}/` has it as a file, and compiled as JSON. The same "
        "results come from:",
        _fence_text("bash", rerun(spec.model_copy(update={"path": PurePosixPath(spec.path).name}))),
        f"Made with {', '.join(f'{package} {version}' for package, version in sorted(one.versions.items()))}.",
    ]
    parts += [_fence_text("", text) for text in sources(spec).values()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _experiment(one: FinishedEvaluation) -> Experiment:
    assert isinstance(one.arm.checkpoint, FromTraining)
    return one.arm.checkpoint.experiment


def _table(material: Material, arm: str) -> str:
    """Return the report's numbers of an arm, a row for each benchmark and their average."""
    score = material.study.score
    heads = {"accuracy": "accuracy %", "length": "tokens", "reg": f"{notes.nearly(material.study)}REG"}
    heads["difference"] = f"REG - {score.relative_to}" if score is not None else ""
    cells = results(tables.main(material), (arm,)).rows[arm]
    texts = {(each.place, each.column): f"{each.text} {each.around}".strip() for each in cells}
    columns = [column for column in heads if any(each.column == column for each in cells)]
    # One benchmark is its own average.
    alone = material.benchmarks[0] if len(material.benchmarks) == 1 else None
    body = [
        [alone or title(place), *(texts.get((place, column), "") for column in columns)]
        for place in dict.fromkeys(each.place for each in cells)
    ]
    return markdown(["benchmark", *(heads[column] for column in columns)], body)


def sources(spec: Spec) -> dict[str, str]:
    """Return the spec's source files by their names below its folder, without those of the standard library."""
    folder = os.path.dirname(spec.path)
    files: dict[str, str] = {}
    for path, text in spec.sources.items():
        if path.startswith("std/"):
            continue
        name = PurePosixPath(os.path.relpath(path, folder or "."))
        inside = not name.is_absolute() and ".." not in name.parts
        files[str(name) if inside else name.name] = text
    return files


def _use(model: Model, one: FinishedEvaluation) -> str:
    prompt = model.prompt
    lines = [
        "Prompt the model as training did. "
        + (
            "A question goes through the tokenizer's chat template"
            + (f", after the system message {_code(prompt.system)}" if prompt.system else "")
            + "."
            if prompt.kind == "chat"
            else "A question is put into the template below, without a chat template."
        )
    ]
    forcing = one.arm.suite.forcing
    shown = {
        "the question": prompt.template,
        "how every response begins": prompt.prefix,
        "reasoning begins": model.think_open,
        "reasoning ends": model.think_close,
        "an answer is forced by": forcing.text if forcing is not None else None,
    }
    lines.append(_fence_text("text", "\n".join(f"{name}: {text!r}" for name, text in shown.items() if text)))
    return "\n\n".join(lines)


def _code(text: str) -> str:
    """Quote a name in the middle of a sentence; it cannot end its own marks."""
    plain = re.sub(r"[`\s]+", " ", text).strip()
    return f"`{plain}`"


def _fence_text(language: str, text: str) -> str:
    """Return a block that nothing in the text ends."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.strip()}\n{fence}"


def without_places(spec: Spec) -> Mapping[str, object]:
    """Return the compiled spec as JSON data, without the folders of the machine that it ran on."""
    compiled = spec.model_dump(mode="json")
    return {**compiled, "path": PurePosixPath(spec.path).name, "sources": sources(spec)}


def repository(shared: Shared, one: FinishedEvaluation, name: str, license: str | None) -> list[Sent]:
    """Return the files of a model's repository: the checkpoint, the card, a picture of its curves, and the spec.

    `name` is without its owner.
    """
    assert one.checkpoint is not None
    material = shared.material
    text = write_card(material, one, name, license)
    weights = sorted(
        path
        for pattern in CHECKPOINT
        for path in one.checkpoint.glob(pattern)
        if path.is_file() and not path.is_symlink()
    )
    return [
        *(Sent(path.relative_to(one.checkpoint).as_posix(), path) for path in weights),
        Sent("README.md", text.encode()),
        Sent(CURVES, _picture(shared, one)),
        Sent(f"{FOLDER}/spec.reo.json", json_bytes(without_places(material.spec))),
        *(Sent(f"{FOLDER}/{path}", source.encode()) for path, source in sources(material.spec).items()),
    ]


def _picture(shared: Shared, one: FinishedEvaluation) -> bytes:
    material = shared.material
    score = material.study.score
    beside = {score.relative_to} if score is not None and score.relative_to else set()
    lines = [arm for arm in material.arms if arm in {one.arm.name, *beside, *bases(material.study)}]
    chart = curves(material, lines=lines, width=_WIDTH)
    (picture,) = pictures([{**chart, "background": "white", "padding": 16}])
    return picture.image


def require_name(repo: str) -> None:
    """Refuse what is not a name of a repository: E0992."""
    try:
        validate_repo_id(repo)
        if repo.count("/") != 1:
            raise HFValidationError("it has no owner")
    except HFValidationError as wrong:
        raise problem(
            "E0992",
            f"{repo!r} is not a name of a repository: {first_line(wrong)}",
            help="write OWNER/NAME, as in me/tiny-reo",
        ) from None


def push(repo: str, files: list[Sent], message: str, private: bool) -> str:
    """Make the repository where it is not there, send the files in one commit, and return the model's address.

    Raises E0991 without a token, E0992 where the hub refuses, and E0993 where it does not answer.
    """
    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = huggingface_hub.HfApi(endpoint=endpoint, token=_token())
    hooks = huggingface_hub.get_session().event_hooks
    huggingface_hub.set_client_factory(
        lambda: httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=SILENCE)
    )
    with _telling(repo, api.endpoint):
        api.create_repo(repo, private=private or None, exist_ok=True)
        operations = [
            huggingface_hub.CommitOperationAdd(path_in_repo=each.path, path_or_fileobj=each.content)
            for each in files
        ]
        api.create_commit(repo, operations, commit_message=message)
    return f"{api.endpoint}/{repo}"


def _token() -> str:
    token = huggingface_hub.get_token()
    if not token:
        raise problem(
            "E0991",
            "there is no token for the hub, and nothing was sent",
            help="make one that may write at https://huggingface.co/settings/tokens, then: hf auth login (or set HF_TOKEN)",
        )
    return token


@contextmanager
def _telling(repo: str, endpoint: str) -> Iterator[None]:
    """Turn a failure of the hub in this block into advice for the user."""
    try:
        yield
    except HfHubHTTPError as refused:
        raise _refusal(repo, endpoint, refused) from None
    except (httpx.TransportError, OSError) as gone:
        slow = isinstance(gone, httpx.TimeoutException)
        raise problem(
            "E0993",
            f"the hub said nothing for {SILENCE:g} s"
            if slow
            else f"the hub cannot be reached: {first_line(gone)}",
            where=endpoint,
            notes=["large files that arrived are not sent again"],
            help="look at the network, then give the same command again",
        ) from None
    except (ValueError, RuntimeError) as failure:
        raise problem(
            "E0992",
            f"the hub did not take the model: {first_line(failure)}",
            where=f"{endpoint}/{repo}",
            help="nothing was changed there; mend what it names, and give the same command again",
        ) from None


def _refusal(repo: str, endpoint: str, refused: HfHubHTTPError) -> Problem:
    status = refused.response.status_code
    owner = repo.partition("/")[0]
    message, remedy = {
        401: ("the hub does not know this token", "log in again with a token that is valid: hf auth login"),
        403: (
            f"this token may not write to {repo!r}",
            f"take a token that may write, of an account that belongs to {owner!r}: hf auth login",
        ),
        404: (
            f"the hub has no place for {repo!r}",
            f"look whether {owner!r} is your name or an organisation of yours: hf auth whoami",
        ),
    }.get(status, (f"the hub answered {status}", "give the same command again later"))
    said = refused.server_message or ""
    return problem(
        "E0992",
        message,
        where=f"{endpoint}/{repo}",
        notes=[f"it says: {said.splitlines()[0][:200]}"] if said.strip() else [],
        help=remedy,
    )
