"""From a compiled spec to the job that runs it on its cluster: a script for SLURM, or a manifest for KubeRay."""

from __future__ import annotations

import json
import re
import shlex
from string import Template

from reodsl.diagnostics import problem
from reodsl.ir import Spec

SLURM = Template("""\
#!/usr/bin/env bash
# Runs $spec on the cluster that it names: sbatch $file
# Made by `reodsl new`; change what your site asks for (partition, account, time, modules).
#SBATCH --job-name=$job
#SBATCH --nodes=$nodes
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=$gpus
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log
# Two minutes before the time is over: what is done is kept, and the same job goes on from there.
#SBATCH --signal=B:TERM@120
set -euo pipefail

SPEC=$quoted
# On a file system that every node sees at this path.
STORE=$${STORE:-$$PWD/.reodsl}
PORT=$${PORT:-6379}
# The environment of all nodes: one that is activated here, or a container of the image for GPUs, where Slurm has pyxis:
# IMAGE=reodsl:cuda sbatch $file
# source .venv/bin/activate
IMAGE=$${IMAGE:-}
inside=()
if [ -n "$$IMAGE" ]; then
  inside=(--container-image="$$IMAGE" --container-name=reodsl --container-workdir="$$PWD")
  inside+=(--container-mounts="$$PWD,$${STORE%/*}")
fi

# Nothing is imported from the folder that the job is in.
export PYTHONSAFEPATH=1
# Ray of this job alone: who has no token is refused.
RAY_AUTH_TOKEN=$$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token

head=$$(scontrol show hostnames "$$SLURM_JOB_NODELIST" | sed -n 1p)
ip=$$(srun --nodes=1 --ntasks=1 --nodelist="$$head" hostname --ip-address | awk '{print $$1}')
address=$$ip:$$PORT

on_head=(srun --nodes=1 --ntasks=1 --nodelist="$$head" --overlap "$${inside[@]}")
"$${on_head[@]}" ray start --head --node-ip-address="$$ip" --port="$$PORT" --num-gpus=$gpus --block &
sleep 10
if [ "$$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  others=$$((SLURM_JOB_NUM_NODES - 1))
  srun --nodes="$$others" --ntasks="$$others" --exclude="$$head" "$${inside[@]}" \\
    ray start --address="$$address" --num-gpus=$gpus --block &
fi

here=()
[ -z "$$IMAGE" ] || here=("$${on_head[@]}")
# Where a node does not join, the run says what the cluster lacks.
joined() {
  "$${here[@]}" python -P -c 'import ray, sys; ray.init(sys.argv[1], log_to_driver=False); print(len(ray.nodes()))' \\
    "$$address" 2>/dev/null
}
for _ in $$(seq 60); do
  [ "$$(joined)" = "$$SLURM_JOB_NUM_NODES" ] && break
  sleep 5
done

"$${here[@]}" reodsl run --address "$$address" --store "$$STORE" -- "$$SPEC" &
run=$$!
trap 'kill -TERM "$$run"' TERM
code=0
wait "$$run" || code=$$?
# A signal ends the first wait, and the run saves what it has.
while kill -0 "$$run" 2>/dev/null; do
  code=0
  wait "$$run" || code=$$?
done
exit "$$code"
""")

KUBERAY = Template("""\
# Runs $spec on the cluster that it names: kubectl create -f $file
# Made by `reodsl new`; change the image, the claim of the shared volume and what your cluster selects nodes by.
apiVersion: ray.io/v1
kind: RayJob
metadata:
  generateName: $job-
spec:
  entrypoint: $entrypoint
  shutdownAfterJobFinishes: true
  rayClusterSpec:
    headGroupSpec:
      rayStartParams:
        num-gpus: "0"
      template:
        spec:
          containers:
            - name: ray-head
              image: reodsl:cuda
              workingDir: /shared
              env: [{ name: PYTHONSAFEPATH, value: "1" }]
              resources:
                limits: { cpu: "8", memory: 32Gi }
              volumeMounts:
                - { name: shared, mountPath: /shared }
          volumes:
            - name: shared
              persistentVolumeClaim: { claimName: reodsl }
    workerGroupSpecs:
      - groupName: gpus
        replicas: $nodes
        minReplicas: $nodes
        maxReplicas: $nodes
        rayStartParams:
          num-gpus: "$gpus"
        template:
          spec:
            # Nodes of $nodes x $gpus $gpu: select them by your cluster's own label.
            # nodeSelector: { nvidia.com/gpu.product: NAME }
            containers:
              - name: ray-worker
                image: reodsl:cuda
                workingDir: /shared
                env: [{ name: PYTHONSAFEPATH, value: "1" }]
                resources:
                  limits: { nvidia.com/gpu: $gpus }
                volumeMounts:
                  - { name: shared, mountPath: /shared }
                  - { name: memory, mountPath: /dev/shm }
            volumes:
              - name: shared
                persistentVolumeClaim: { claimName: reodsl }
              - name: memory
                emptyDir: { medium: Memory }
""")

JOBS = {"slurm": SLURM, "kuberay": KUBERAY}
"""The texts of jobs, by the kind of cluster."""


def cluster_job(target: str, spec: Spec, path: str, file: str) -> str:
    """Return the job in `file` that runs the spec at `path` by `target`, a key of `JOBS`, with the cluster's own numbers.

    Raises E0122 where the spec names no cluster.
    """
    cluster = spec.study.cluster
    if cluster is None:
        raise problem(
            "E0122",
            "the spec names no cluster, so there is nothing to ask a scheduler for",
            where=path,
            help="add `cluster = NAME` to its study: `from std.clusters import h100_1x8`, or one of yours",
        )
    words = {
        "spec": path,
        "file": file,
        "job": re.sub(r"[^a-z0-9]+", "-", spec.study.name.lower()).strip("-")[:40] or "study",
        "nodes": cluster.nodes,
        "gpus": cluster.gpus_per_node,
        "gpu": cluster.gpu,
        "quoted": shlex.quote(path),
        "entrypoint": f"reodsl run --address auto --store /shared/.reodsl -- {shlex.quote(path)}",
    }
    if any(not each.isprintable() for each in (path, file, cluster.gpu)):
        raise problem("E0122", "a path or a GPU's name has letters that no script can hold", help="rename it")
    if target == "kuberay":
        words["entrypoint"] = json.dumps(words["entrypoint"])
    return JOBS[target].substitute(words)
