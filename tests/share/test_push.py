"""`push` against a hub on the loopback: what arrives, and what is told where there is no token or no hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import polars as pl
import pytest
import yaml
from huggingface_hub import constants

from reodsl.diagnostics import Problem
from reodsl.ir import Spec
from reodsl.ir.training import FromTraining
from reodsl.report.formats import number
from reodsl.report.material import read
from reodsl.report.run import write_report
from reodsl.share import hub as share_hub
from reodsl.share.evaluated import Shared
from reodsl.share.hub import Sent, choose, push, repository, require_name
from tests.report.synthetic import world
from tests.share.evaluations import shared
from tests.share.hub_on_loopback import TOKEN, Hub, hub_on_loopback


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return shared(tmp_path_factory.mktemp("study"), doc="A story.\n```\nthat ends blocks ` and --- more.")


@pytest.fixture(scope="module")
def files(study: Shared) -> list[Sent]:
    return repository(study, choose(study_of(study, "reo_exp"), "reo_exp", None), "tiny", "apache-2.0")


def study_of(study: Shared, arm: str) -> Shared:
    return replace(study, evaluations=tuple(each for each in study.evaluations if each.arm.name == arm))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub for the command, with the user logged in; the store of large files is its own, and not Xet."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    for name in ("HF_OIDC_RESOURCE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub_on_loopback() as there:
        monkeypatch.setenv("HF_ENDPOINT", there.url)
        yield there


def test_model_card_curves_and_spec_arrive(hub: Hub, files: list[Sent], study: Shared) -> None:
    assert push("me/tiny", files, "a message", True) == f"{hub.url}/me/tiny"
    assert set(hub.files) == {
        "config.json", "model.safetensors", "README.md",
        "reodsl/curves.png", "reodsl/quickstart.reo", "reodsl/spec.reo.json",
    }  # fmt: skip
    assert hub.files["model.safetensors"] == bytes(range(256)) * 8
    assert (hub.private, hub.messages) == (True, ["a message"])
    assert hub.files["reodsl/curves.png"].startswith(b"\x89PNG")
    spec = Spec.model_validate(json.loads(hub.files["reodsl/spec.reo.json"]))
    assert spec.study == study.material.spec.study
    assert "/" not in spec.path


def test_files_that_no_checkpoint_has_stay_here(study: Shared, tmp_path: Path) -> None:
    one = choose(study_of(study, "reo_exp"), "reo_exp", None)
    known = {
        "config.json", "generation_config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "additional_chat_templates/tools.jinja",
    }  # fmt: skip
    for name in (
        *known,
        "notes.txt",
        "credentials.json",
        "optimizer.safetensors",
        ".env",
        "more/config.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "special_tokens_map.json").symlink_to("/etc/passwd")
    sent = repository(study, replace(one, checkpoint=tmp_path), "tiny", None)
    assert {each.path for each in sent if isinstance(each.content, Path)} == known


@pytest.mark.slow
def test_no_path_of_this_machine_is_sent_or_in_the_report(study: Shared, tmp_path: Path) -> None:
    place = "/mnt/secret disk/of me"
    made = world(tmp_path / "made", benchmarks=("easy", "hard"))
    text = made.spec.model_dump_json().replace('"path":"tiny"', f'"path":"{place}/tiny"')
    text = text.replace("specs/quickstart.reo", f"{place}/quickstart.reo")
    spec = Spec.model_validate_json(text)
    source = f'model tiny {{ source = folder("{place}/tiny") }}\n# of {place}/quickstart.reo'
    spec = spec.model_copy(update={"sources": {spec.path: source}, "folder": place})
    material = read(spec, made.inputs)
    other = replace(study_of(study, "reo_exp"), material=material)
    sent = repository(other, choose(other, "reo_exp", None), "tiny", None)
    texts = {each.path: each.content for each in sent if isinstance(each.content, bytes)}
    assert not [path for path, content in texts.items() if b"secret disk" in content]
    assert b'folder("tiny")' in texts["README.md"]
    assert b'folder("tiny")' in texts["reodsl/quickstart.reo"]
    assert Spec.model_validate_json(texts["reodsl/spec.reo.json"]).study == material.study
    report = tmp_path / "report"
    report.mkdir()
    write_report(material, report)
    assert "reodsl run quickstart.reo" in (report / "report.html").read_text()
    written = (path for path in report.rglob("*") if path.is_file())
    assert not [path for path in written if b"secret disk" in path.read_bytes()]


def test_a_token_in_the_users_file_does(hub: Hub, files: list[Sent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    Path(constants.HF_TOKEN_PATH).write_text(TOKEN + "\n")
    push("me/tiny", files, "m", False)
    assert hub.files


def test_the_card_has_the_numbers_of_the_report(files: list[Sent], study: Shared) -> None:
    (text,) = (
        each.content.decode()
        for each in files
        if each.path == "README.md" and isinstance(each.content, bytes)
    )
    _, metadata, body = text.split("---\n", 2)
    told = yaml.safe_load(metadata)
    assert (told["license"], told["library_name"]) == ("apache-2.0", "transformers")
    assert "base_model" not in told
    scores = study.material.scores.filter((pl.col("arm") == "reo_exp") & pl.col("seed").is_null())
    for benchmark in ("easy", "hard"):
        (reg,) = scores.filter(pl.col("benchmark") == benchmark)["reg"]
        (row,) = (line for line in body.splitlines() if line.startswith(f"| {benchmark} |"))
        assert f"| {number(reg)} [" in row.replace("\\", "")
    assert body.count("\n| ") == 5  # a head, a rule and three places
    assert "REG - vanilla" in body
    assert "from std.recipes import ppo" in body
    # The spec's fence is longer than any in it.
    assert "````\n" in body
    huggingface_hub.ModelCard(text)


def test_the_card_says_that_reg_is_approximate(study: Shared) -> None:
    score = study.material.study.score
    assert score is not None
    changed = study.material.study.model_copy(
        update={"score": score.model_copy(update={"misfits": ("it is of another model",)})}
    )
    spec = study.material.spec.model_copy(update={"study": changed})
    other = replace(study_of(study, "reo_exp"), material=replace(study.material, spec=spec))
    (text,) = (
        each.content.decode()
        for each in repository(other, choose(other, "reo_exp", None), "tiny", "apache-2.0")
        if each.path == "README.md" and isinstance(each.content, bytes)
    )
    assert "REG is approximate (~): it is of another model." in text
    assert "| ~REG " in text


def test_without_a_token_nothing_is_asked(
    hub: Hub, files: list[Sent], monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    hub.gone = ""
    with pytest.raises(Problem) as caught:
        push("me/tiny", files, "m", False)
    refusal("share/E0991.txt", caught.value)


@pytest.mark.parametrize(
    ("page", "repo", "token"),
    [
        ("E0992.txt", "me/tiny", "hf_old"),
        ("E0992-403.txt", "theirs/tiny", TOKEN),
        ("E0992-404.txt", "nobody/tiny", TOKEN),
    ],
)
def test_a_hub_that_refuses_is_told(
    hub: Hub,
    files: list[Sent],
    monkeypatch: pytest.MonkeyPatch,
    refusal: Callable[..., None],
    page: str,
    repo: str,
    token: str,
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(Problem) as caught:
        push(repo, files, "m", False)
    refusal(f"share/{page}", caught.value, (hub.url, "HUB"))
    assert token not in str(caught.value.diagnostics)


@pytest.mark.parametrize("stops_at", ["/api/repos/create", "/api/validate-yaml"])
def test_a_hub_that_stops_answering_is_told(
    hub: Hub,
    files: list[Sent],
    monkeypatch: pytest.MonkeyPatch,
    refusal: Callable[..., None],
    stops_at: str,
) -> None:
    monkeypatch.setattr(share_hub, "SILENCE", 0.1)
    hub.gone = stops_at
    with pytest.raises(Problem) as caught:
        push("me/tiny", files, "m", False)
    refusal("share/E0993.txt", caught.value, (hub.url, "HUB"))


def test_no_hub_at_all(files: list[Sent], hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Problem, match="the hub cannot be reached"):
        push("me/tiny", files, "m", False)


def test_what_is_meant_is_one_trained_model(
    study: Shared, tmp_path: Path, refusal: Callable[..., None]
) -> None:
    start = study.evaluations[0].arm.checkpoint
    assert isinstance(start, FromTraining)
    one = study.evaluations[0]
    as_it_came = replace(one, arm=one.arm.model_copy(update={"checkpoint": start.experiment.start}))
    with pytest.raises(Problem, match="nothing was trained"):
        choose(replace(study, evaluations=(as_it_came,)), "base", None)
    several = shared(tmp_path, seeds=(1, 2))
    with pytest.raises(Problem) as caught:
        choose(study_of(several, "vanilla"), "vanilla", None)
    refusal("share/E0994.txt", caught.value)
    assert choose(study_of(several, "vanilla"), "vanilla", 2).seed == 2
    with pytest.raises(Problem, match="no evaluated model of seed 3"):
        choose(study_of(several, "vanilla"), "vanilla", 3)
    gone = study_of(study, "vanilla")
    gone = replace(gone, evaluations=tuple(replace(each, checkpoint=None) for each in gone.evaluations))
    with pytest.raises(Problem, match="not in the store any more"):
        choose(gone, "vanilla", None)


@pytest.mark.parametrize("name", ["tiny", "a/b/c", "me/ti ny", "me/-tiny", "me/tiny.git", ""])
def test_a_name_that_is_none_is_refused_before_anything_is_read(name: str) -> None:
    with pytest.raises(Problem, match="not a name of a repository"):
        require_name(name)
