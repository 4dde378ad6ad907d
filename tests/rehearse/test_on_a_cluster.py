"""`rehearse --address`: on nodes whose GPUs are only declared, all that a run on a cluster goes through is reached."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from tests.called import call
from tests.rehearse.declared import declared_gpus

pytestmark = pytest.mark.heavy

SPEC = """
from std.miniature import chain_model, chain_train, chain_suite, chain_forcing
from std.rewards   import reo
from std.recipes   import ppo

cluster far {
  nodes         = NODES
  gpus_per_node = 8
  gpu           = "H800"
  memory        = 80 GiB
  SETTINGS
}
experiment small = ppo {
  base        = chain_model
  data        = chain_train
  forcing     = chain_forcing
  reward      = reo(at: exp(from: 4 tokens, to: 128 tokens, n: 5))
  batch       { prompts = 8, rollouts = 4 }
  rollout     { max_tokens = 128 tokens }
  max_prompt  = 32 tokens
  minibatches = 2
  epochs      = 1
  steps       = 30 steps
  LAG
  optim       { algorithm = adamw, lr = 1e-4 }
  eval        = chain_suite
}
study far_study {
  cluster = far
  arm small = small
}
"""
APART = ("placement = apart\n  rollout_share = 50%", "lag = 1 step")
TOGETHER = ("placement = colocated\n  tensor_parallel = 2", "")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(nodes: int, settings: str, lag: str) -> None:
    text = SPEC.replace("NODES", str(nodes)).replace("SETTINGS", settings).replace("LAG", lag)
    Path("spec.reo").write_text(text)


@pytest.mark.parametrize("settings", [APART, TOGETHER])
def test_a_declared_cluster_reaches_every_part_of_a_run(
    settings: tuple[str, str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trainers beside engines with a lag; and an engine over two GPUs in turn with their trainers."""
    write(16, *settings)
    code = call("rehearse", "spec.reo", "--address", "local", "--json")
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert code == 0, (said, err)
    found = {phase["name"]: phase for phase in said["reached"]}
    assert {name: phase["reached"] for name, phase in found.items()} == {
        "placement": True,
        "weights": True,
        "lag": True if settings is APART else None,
    }
    layouts = " ".join(found["placement"]["words"])
    assert {"node-1", "node-2"} <= set(layouts.replace(",", "").split())
    assert found["weights"]["words"][0].startswith("responses were sampled by the weights of step")
    assert {task["status"] for task in said["tasks"]} == {"done"}
    assert [path.name for path in place.iterdir()] == ["spec.reo"]
    assert not [child for child in psutil.Process().children(recursive=True) if "raylet" in child.name()]


def test_a_cluster_at_an_address_keeps_its_nodes_and_says_what_it_lacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with declared_gpus() as address:
        write(1, "placement = colocated", "")
        assert call("rehearse", "spec.reo", "--address", address) == 1
        _, err = capsys.readouterr()
        assert "error[E0971]: the spec runs on 1 x 8 H800, and the Ray cluster has 2 GPUs" in err
        assert "`--address local` declares GPUs on this machine" in err
        code = call("rehearse", "spec.reo", "--address", address, "--amend", "far.gpus_per_node=2")
    out, err = capsys.readouterr()
    assert code == 0, err
    for line in ("placement: reached", "weights: reached"):
        assert line in out
