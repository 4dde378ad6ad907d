"""Jobs for SLURM and KubeRay: values of the spec's cluster, sound shell and YAML, and the script against stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from reodsl.cli.main import main
from tests.bad_input.commands import SPEC

CLUSTER = 'cluster pair { nodes = 2, gpus_per_node = 4, gpu = "H100", memory = 80 GiB }\n'
STUDY = "study tiny_Study {\n  cluster = pair\n  arm base = checkpoint(mite)\n  arm tiny = tiny\n  eval = quick\n}\n"


@pytest.fixture(autouse=True)
def _spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a spec.reo").write_text(SPEC + CLUSTER + STUDY)
    Path("alone.reo").write_text(SPEC)


def job(scheduler: str, file: str) -> str:
    assert main(["new", file, "--cluster", scheduler, "--spec", "a spec.reo"]) == 0
    return Path(file).read_text()


def test_the_slurm_job_asks_for_the_specs_cluster() -> None:
    text = job("slurm", "job.sbatch")
    options = dict(
        line.removeprefix("#SBATCH --").split("=", 1)
        for line in text.splitlines()
        if line.startswith("#SBATCH") and "=" in line
    )
    assert (options["nodes"], options["gpus-per-node"]) == ("2", "4")
    assert options["job-name"] == "tiny-study"
    assert text.count("--num-gpus=4") == 2
    assert subprocess.run(["bash", "-n", "job.sbatch"], capture_output=True).returncode == 0
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "job.sbatch"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_the_slurm_job_starts_ray_on_all_nodes_and_runs_the_spec(tmp_path: Path) -> None:
    job("slurm", "job.sbatch")
    stand_ins = tmp_path / "bin"
    stand_ins.mkdir()
    for name, does in {
        "scontrol": "printf 'node1\\nnode2\\n'",
        "hostname": "echo '10.0.0.1 fe80::1'",
        "srun": 'echo "srun $*" >> log; while [ "${1#--}" != "$1" ]; do shift; done; "$@"',
        "ray": 'echo "ray $* mode $RAY_AUTH_MODE token ${#RAY_AUTH_TOKEN}" >> log',
        "sleep": ":",
        "python": "echo 2",
        "reodsl": 'echo "reodsl $2 $3 $4 $5 $6 [$7] safe $PYTHONSAFEPATH" >> log; exit 3',
    }.items():
        (stand_ins / name).write_text(f"#!/bin/sh\n{does}\n")
        (stand_ins / name).chmod(0o755)
    environment = {
        "PATH": f"{stand_ins}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
    }

    def run(**more: str) -> str:
        Path("log").unlink(missing_ok=True)
        given = {**os.environ, **environment, **more}
        done = subprocess.run(["bash", "job.sbatch"], env=given, capture_output=True, text=True, timeout=60)
        assert done.returncode == 3, done.stderr  # that of the run
        return Path("log").read_text()

    log = run()
    assert (
        "ray start --head --node-ip-address=10.0.0.1 --port=6379 --num-gpus=4 --block mode token token 64"
        in log
    )
    assert "srun --nodes=1 --ntasks=1 --exclude=node1 ray start --address=10.0.0.1:6379 --num-gpus=4" in log
    ran = f"reodsl --address 10.0.0.1:6379 --store {tmp_path}/.reodsl -- [a spec.reo] safe 1"
    assert ran in log
    assert "--container" not in log
    # In containers, all of one name on a node: the run's own is beside Ray's head.
    log = run(IMAGE="reodsl:cuda")
    assert ran in log
    image = f"--container-image=reodsl:cuda --container-name=reodsl --container-workdir={tmp_path}"
    steps = [line for line in log.splitlines() if line.startswith("srun") and " hostname " not in line]
    assert all(f"{image} --container-mounts={tmp_path},{tmp_path}" in line for line in steps)
    assert [line for line in steps if " --overlap " in line and "reodsl run" in line]


def test_the_kuberay_job_has_a_worker_for_each_node() -> None:
    told = yaml.safe_load(job("kuberay", "job.yaml"))
    assert (told["apiVersion"], told["kind"]) == ("ray.io/v1", "RayJob")
    assert told["metadata"]["generateName"] == "tiny-study-"
    assert told["spec"]["entrypoint"] == "reodsl run --address auto --store /shared/.reodsl -- 'a spec.reo'"
    (workers,) = told["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 2
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert workers["rayStartParams"] == {"num-gpus": "4"}
    for pod in (told["spec"]["rayClusterSpec"]["headGroupSpec"], workers):
        volumes = {each["name"] for each in pod["template"]["spec"]["volumes"]}
        (container,) = pod["template"]["spec"]["containers"]
        assert container["env"] == [{"name": "PYTHONSAFEPATH", "value": "1"}]
        assert {each["name"] for each in container["volumeMounts"]} == volumes


def test_what_no_job_is_written_for(capsys: pytest.CaptureFixture[str], refusal: Callable[..., None]) -> None:
    assert main(["new", "job.sbatch", "--cluster", "slurm", "--spec", "alone.reo"]) == 1
    refusal("commands/E0122.txt", capsys.readouterr().err)
    assert main(["new", "job.sbatch", "--cluster", "slurm"]) == 1
    assert "go together" in capsys.readouterr().err
    assert main(["new", "job.sbatch", "--cluster", "slurm", "--spec", "a spec.reo", "--quickstart"]) == 1
    assert "leave out --quickstart" in capsys.readouterr().err
    Path("broken.reo").write_text("study {")
    with pytest.raises(SystemExit):
        main(["new", "job.sbatch", "--cluster", "slurm", "--spec", "broken.reo"])
    assert "error[" in capsys.readouterr().err
    assert not Path("job.sbatch").exists()
    job("slurm", "job.sbatch")
    assert main(["new", "job.sbatch", "--cluster", "slurm", "--spec", "a spec.reo"]) == 1
    assert "E0118" in capsys.readouterr().err
