"""The moments at which runs are killed: as a result is published, as a task works, and around the tasks."""

from __future__ import annotations

from tests.resume.harness import Moment

KEY = "[0-9a-f]{64}"

PUBLISHING = (
    Moment("before_material", "open", rf"/tmp/{KEY}[^/]*/material\.json$"),
    Moment("before_manifest", "open", rf"/tmp/{KEY}[^/]*/manifest\.json$"),
    Moment("before_it_is_seen", "os.rename", rf"/objects/../{KEY}$"),
    Moment("before_its_work_goes", "shutil.rmtree", rf"/work/{KEY}$"),
)
WORKING = (
    Moment("standing_cut", "open", rf"/work/{KEY}/shards-[0-9]+/\.0-of-1", cut=True),
    Moment("standing", "os.rename", rf"/work/{KEY}/shards-[0-9]+/\.0-of-1"),
    Moment("shard_cut", "open", rf"/work/{KEY}/shards-[0-9]+/\.[01]-of-2", cut=True),
    Moment("shard", "os.rename", rf"/work/{KEY}/shards-[0-9]+/\.1-of-2"),
    Moment("index_of_shards", "os.rename", rf"/work/{KEY}/\.?shards\.json"),
    Moment("older_shards", "shutil.rmtree", rf"/work/{KEY}/shards-"),
    Moment("rollouts_of_a_step", "os.rename", rf"/work/{KEY}/rollouts/00000001"),
    Moment("chunk_begun", "os.mkdir", rf"/work/{KEY}/chunks.*\.part$"),
    Moment("chunk", "os.rename", rf"/work/{KEY}/chunks"),
    Moment("checkpoint", "open", rf"/tmp/{KEY}[^/]*/checkpoint/config\.json"),
    Moment("optimizer", "os.rename", rf"/tmp/{KEY}[^/]*/optimizer/"),
    Moment("metrics", "os.rename", rf"/tmp/{KEY}[^/]*/metrics"),
    Moment("selection", "open", rf"/tmp/{KEY}[^/]*/select\.json"),
    Moment("curves", "open", rf"/tmp/{KEY}[^/]*/curves\.json"),
    Moment("frontier", "open", rf"/tmp/{KEY}[^/]*/frontier\.json"),
    Moment("budgets", "open", rf"/tmp/{KEY}[^/]*/budgets\.json"),
    Moment("tables", "os.mkdir", rf"/tmp/{KEY}[^/]*/tables"),
    Moment("page", "open", rf"/tmp/{KEY}[^/]*/report\.html"),
)
AT_A_CHECKPOINT = next(moment for moment in WORKING if moment.name == "standing")
AROUND = (
    Moment("mark_of_the_store", "os.rename", r"/format$"),
    Moment("record", "os.rename", r"/runs/[^/]*\.json$"),
    Moment("spec_of_the_run", "os.rename", r"/runs/[^/]*\.spec$"),
    Moment("task_noted", "open", r"/runs/[^/]*\.tasks$", times=3),
    Moment("laid_out", "os.rename", r"(^|/)out/.*\.unfinished"),
    Moment("linked", "os.link", r"(^|/)out/\.reodsl\.unfinished/"),
)
