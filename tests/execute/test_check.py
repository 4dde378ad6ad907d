"""What a machine lacks is named, thing by thing, with the way to get it."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from reodsl.cli.main import cli
from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.graph.task import Task
from reodsl.ir import Spec
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Data, File
from reodsl.ir.model import Architecture, Folder, Hub, WordTokenizer
from reodsl.ir.training import FromModel
from reodsl.language import compile_file
from reodsl.plan.registry import Machine, MachinePart
from runners.engine.sglang import settings
from runners.execute import check as checking
from runners.execute import instance
from runners.execute.check import check
from runners.execute.placement import RayNode
from runners.models.tensors import weight_files
from tests.graph import studies as make

LOCAL = Machine(local=True)


def spec_on(source: object, cluster: Cluster | None = None) -> Spec:
    start = FromModel(model=make.model("given", source))
    arm = make.arm("a", make.trained("a", make.ppo(make.outcome()), start=start))
    spec = make.spec(arm)
    return spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": cluster})})


def found(
    spec: Spec, folder: Path, machine: Machine = LOCAL, tasks: tuple[Task, ...] | None = None
) -> list[str]:
    everything = lower(spec).tasks if tasks is None else tasks
    return [diagnostic.code for diagnostic in check(everything, spec, folder, machine)]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_what_makes_its_own_model_and_data_lacks_nothing(tmp_path: Path) -> None:
    assert found(make.four(), tmp_path) == []


def test_sizes_that_no_model_has_are_told_before_anything_starts(tmp_path: Path) -> None:
    words = WordTokenizer(words=("a", "<eos>", "<pad>"), eos="<eos>", pad="<pad>")
    sizes = {"hidden": 16, "layers": 1, "heads": 4, "head_dim": 8, "intermediate": 24}
    assert found(spec_on(Architecture(family="qwen3", kv_heads=2, tokenizer=words, **sizes)), tmp_path) == []
    uneven = spec_on(Architecture(family="qwen3", kv_heads=3, tokenizer=words, **sizes))
    assert found(uneven, tmp_path) == ["E0808"]


def test_weights_of_a_hub_are_looked_for_in_the_cache(
    tmp_path: Path, empty_cache: Path, refusal: Callable[..., None]
) -> None:
    spec = spec_on(Hub(repo="owner/name"))
    (diagnostic,) = check(lower(spec).tasks, spec, tmp_path, LOCAL)
    refusal("models/E0850.txt", Problem(diagnostic))
    snapshot = empty_cache / "models--owner--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (empty_cache / "models--owner--name" / "refs").mkdir()
    (empty_cache / "models--owner--name" / "refs" / "main").write_text("abc")
    assert found(spec, tmp_path) == ["E0850"]  # a folder without weights is not enough
    (snapshot / "model.safetensors").write_text("")
    assert found(spec, tmp_path) == []
    (snapshot / "config.json").write_text('{"max_position_embeddings": 63}')
    assert found(spec, tmp_path) == ["E0807"]


def test_a_model_folder_has_to_hold_weights(tmp_path: Path, refusal: Callable[..., None]) -> None:
    spec = spec_on(make.downloaded("weights").model.source)

    def refused(name: str) -> None:
        refusal(f"models/{name}.txt", Problem(*check(lower(spec).tasks, spec, tmp_path, LOCAL)))

    refused("E0803-folder")
    (tmp_path / "weights").mkdir()
    refused("E0803-weights")
    (tmp_path / "weights" / "pytorch_model.bin").write_text("")
    refused("E0803-pickle")
    (tmp_path / "weights" / "model.safetensors").write_text("")
    refused("E0803-config")
    (tmp_path / "weights" / "config.json").write_text("{}")
    (tmp_path / "weights" / "tokenizer.json").write_text("{}")
    assert found(spec, tmp_path) == []
    # What a run would refuse is refused before it.
    for config, words in (
        ("[]", "config.json cannot be read"),
        ("{", "config.json cannot be read"),
        ('{"a": ' + "[" * 100_000, "config.json cannot be read"),
        ('{"num_hidden_layers": 100000000}', "config.json is out of bounds"),
        ('{"quantization_config": {"quant_method": "awq"}}', "the weights are quantized"),
    ):
        (tmp_path / "weights" / "config.json").write_text(config)
        (lack,) = check(lower(spec).tasks, spec, tmp_path, LOCAL)
        assert (lack.code, lack.message[: len(words)]) == ("E0803", words)
    # The spec's lengths were held to a context of 64 tokens.
    (tmp_path / "weights" / "config.json").write_text('{"max_position_embeddings": 64}')
    assert found(spec, tmp_path) == []
    (tmp_path / "weights" / "config.json").write_text('{"max_position_embeddings": 48}')
    refused("E0807-context")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tf_model.h5", "TensorFlow's format"),
        ("flax_model.msgpack", "Flax's format"),
        ("model.Q4_1.gguf", "a GGUF file"),
        ("adapter_config.json", "an adapter to other weights"),
    ],
)
def test_older_and_other_formats_are_named_with_a_remedy(
    tmp_path: Path, name: str, words: str, refusal: Callable[..., None]
) -> None:
    place = tmp_path / "weights"
    place.mkdir()
    for file in (
        name,
        "config.json",
        "tokenizer.json",
        *(["adapter_model.safetensors"] * ("adapter" in name)),
    ):
        (place / file).write_text("{}")
    spec = spec_on(make.downloaded("weights").model.source)
    (diagnostic,) = check(lower(spec).tasks, spec, tmp_path, LOCAL)
    refusal(f"models/E0803-{Path(name).suffix[1:]}.txt", Problem(diagnostic))
    assert diagnostic.message == f"the folder holds {words}, `{name}`, and only safetensors are read"
    with pytest.raises(Problem) as caught:
        weight_files(place)
    assert caught.value.diagnostics == (diagnostic,)


def test_a_folder_that_make_writes_is_missing_with_what_writes_it(tmp_path: Path) -> None:
    spec = spec_on(Folder(path="../models/smollm2-135m-instruct"))
    (diagnostic,) = check(lower(spec).tasks, spec, tmp_path, LOCAL)
    assert diagnostic.code == "E0803"
    assert "`make smollm2`" in str(diagnostic.help)


def test_gpus_of_the_cluster_are_wanted_here_or_at_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    cluster = Cluster(name="h800", nodes=2, gpus_per_node=8, gpu="H800", memory_gib=80)
    monkeypatch.setattr(checking, "gpus", lambda: 3)
    spec = make.four()
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": cluster})})
    (diagnostic,) = check(lower(spec).tasks, spec, tmp_path, LOCAL)
    refusal("execute/E0971.txt", Problem(diagnostic))
    monkeypatch.setattr(checking, "gpus", lambda: 16)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    assert found(spec, tmp_path) == []
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    (diagnostic,) = check(lower(spec).tasks, spec, tmp_path, LOCAL)
    assert diagnostic.message.startswith(
        "a task needs 16 trainers of 1 GPU and 1 core, 16 GPUs and 16 cores in all"
    )


@pytest.mark.parametrize(
    ("named", "seen"),
    [(None, 3), ("0,2", 2), ("", 0), ("-1", 0), ("1,7,0", 1), ("GPU-4f,GPU-9c", 2), (" 2 ", 1)],
    ids=str,
)
def test_gpus_that_are_hidden_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None, seen: int
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(checking, "_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert checking.shown_gpus() == seen


def test_gpus_at_an_address_are_counted_node_by_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    there: list[RayNode] = []
    asked: list[str] = []
    monkeypatch.setattr(instance, "nodes_at", lambda address: asked.append(address) or tuple(there))
    monkeypatch.setattr(checking, "ask_at", lambda address: {})
    cluster = Cluster(name="h800", nodes=2, gpus_per_node=8, gpu="H800", memory_gib=80)
    spec = make.four()
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": cluster})})
    machine = Machine(address="10.0.0.1:6379")
    there += [RayNode("head", 4, 0), RayNode("left", 64, 8), RayNode("right", 64, 4)]
    (diagnostic,) = check(lower(spec).tasks, spec, tmp_path, machine)
    refusal("execute/E0971-cluster.txt", Problem(diagnostic))
    there[2] = RayNode("right", 64, 8)
    assert found(spec, tmp_path, machine) == []
    assert set(asked) == {"10.0.0.1:6379"}
    data = tuple(task for task in lower(spec).tasks if task.kind == "data")
    asked.clear()
    assert found(spec, tmp_path, machine, tasks=data) == []
    assert not asked


def test_an_experiments_own_cluster_is_asked_for_with_the_task_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Cluster(name="whole", nodes=2, gpus_per_node=8, gpu="H800", memory_gib=80)
    there: list[RayNode] = []
    monkeypatch.setattr(instance, "nodes_at", lambda address: tuple(there))
    driver = MachinePart("driver", "broken", "the kernel has loaded no driver", "install driver 580")
    unfit: dict[str, tuple[MachinePart, ...]] = {}
    monkeypatch.setattr(checking, "ask_at", lambda address: unfit)
    machine = Machine(address="10.0.0.1:6379")
    placed = {"cluster": whole, "engine": "sglang"}

    def told(**own: int) -> list[str]:
        a, b = (make.trained(name, make.ppo(make.outcome(), steps=len(name))) for name in ("a", "bb"))
        b = b.model_copy(update={"cluster": whole.model_copy(update={"name": "own", **own})})
        spec = make.spec(make.arm("a", a), make.arm("bb", b))
        spec = spec.model_copy(update={"study": spec.study.model_copy(update=placed)})
        every = check(lower(spec).tasks, spec, tmp_path, machine)
        return [f"{each.code} {each.where}: {each.message}" for each in every]

    there[:] = [RayNode("left", 64, 8), RayNode("right", 64, 8)]
    assert told(nodes=1) == []
    unfit["left"] = (driver,)
    assert told(nodes=1) == ["E0977 None: driver of left: the kernel has loaded no driver"]
    unfit.clear()
    # Wider than the study's, as what a lone experiment starts from may be.
    (wider,) = told(nodes=4)
    assert wider == "E0971 cluster `own`: bb.train.s1 runs on 4 x 8 H800, and the Ray cluster has 16 GPUs"
    # As many GPUs as there are, and engines that no node has the room for.
    (narrow,) = told(gpus_per_node=16, nodes=1, tensor_parallel=16)
    assert narrow.startswith("E0971 cluster `own`: a task needs")
    there.pop()
    (short,) = told(nodes=1)
    assert short == "E0971 cluster `whole`: the spec runs on 2 x 8 H800, and the Ray cluster has 8 GPUs"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere", "`nowhere` is not an address of a Ray cluster"),
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1: "),
    ],
)
def test_an_address_without_a_cluster_is_told_where_no_gpu_is_wanted(
    tmp_path: Path, address: str, words: str
) -> None:
    spec = make.four()
    (lack,) = check(lower(spec).tasks, spec, tmp_path, Machine(address=address))
    assert (lack.code, lack.message[: len(words)]) == ("E0962", words)


def test_sglang_is_wanted_here_where_servers_start_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make.four()
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"engine": "sglang"})})
    monkeypatch.setenv("REODSL_SGLANG_PYTHON", str(tmp_path / "none"))
    monkeypatch.setattr(instance, "answers", lambda address: None)
    assert found(spec, tmp_path) == ["E0820"]
    assert found(spec, tmp_path, Machine(address="10.0.0.1:6379")) == []
    only = tuple(task for task in lower(spec).tasks if task.kind in ("model", "data"))
    assert check(only, spec, tmp_path, LOCAL) == ()


def test_sglangs_releases_are_refused_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    """Before anything starts; a Python that is named may have a build for processors."""
    spec = make.four()
    served = spec.model_copy(update={"study": spec.study.model_copy(update={"engine": "sglang"})})
    monkeypatch.setattr(settings, "missing", lambda: None)
    monkeypatch.setattr(checking, "shown_gpus", lambda: 0)
    monkeypatch.delenv("REODSL_SGLANG_PYTHON", raising=False)
    (lack,) = check(lower(served).tasks, served, tmp_path, LOCAL)
    refusal("execute/E0971-sglang.txt", Problem(lack))
    for obeyed in ("embedded", "named", "gpu"):
        with monkeypatch.context() as meant:
            if obeyed == "named":
                meant.setenv("REODSL_SGLANG_PYTHON", "/opt/python")
            meant.setattr(checking, "shown_gpus", lambda obeyed=obeyed: int(obeyed == "gpu"))
            study = spec if obeyed == "embedded" else served
            assert check(lower(study).tasks, study, tmp_path, LOCAL) == ()
    only = tuple(task for task in lower(served).tasks if task.kind in ("model", "data"))
    assert check(only, served, tmp_path, LOCAL) == ()


def test_missing_data_and_packages_are_named_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    real = checking.importlib.util.find_spec
    monkeypatch.setattr(
        checking.importlib.util, "find_spec", lambda name: None if name in ("torch", "ray") else real(name)
    )
    data = Data(name="filed", sources=(File(path="none.jsonl"),))
    spec = make.spec(make.arm("a", make.trained("a", make.sft(data=data))))
    diagnostics = check(lower(spec).tasks, spec, tmp_path, Machine())
    refusal("execute/E0121-package.txt", Problem(diagnostics[0]))
    assert len(diagnostics) == 2
    assert "none.jsonl" in str(diagnostics[1])


def rounded(precision: str, engine: str = "embedded", cluster: Cluster | None = None) -> tuple[Task, ...]:
    """Tasks of an experiment whose model has this precision."""
    source = Architecture(
        family="qwen3",
        hidden=16,
        layers=1,
        heads=2,
        kv_heads=1,
        head_dim=8,
        intermediate=24,
        tokenizer=WordTokenizer(words=("a", "<eos>", "<pad>"), eos="<eos>", pad="<pad>"),
    )
    model = make.model("given", source).model_copy(update={"precision": precision})
    spec = make.spec(make.arm("a", make.trained("a", make.ppo(make.outcome()), start=FromModel(model=model))))
    study = spec.study.model_copy(update={"cluster": cluster, "engine": engine})
    return lower(spec.model_copy(update={"study": study})).tasks


def test_a_precision_is_held_against_processor_and_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    flags = tmp_path / "cpuinfo"

    def multiplies(words: str) -> bool:
        flags.write_text(words)
        return checking.multiplies_bfloat16(flags)

    for works in (True, False):
        monkeypatch.setattr("runners.models.products.computes_bfloat16", lambda works=works: works)
        assert multiplies("flags\t\t: fpu avx512_bf16 amx_tile\n") == works
        assert multiplies("Features\t: fp asimd bf16\n") == works
        assert multiplies("nothing is listed") == works
        assert not multiplies("flags\t\t: fpu avx2 avx512f\n")
    spec = make.four()
    monkeypatch.setattr(checking, "multiplies_bfloat16", lambda: False)
    (lack,) = check(rounded("bfloat16"), spec, tmp_path, LOCAL)
    refusal("execute/E0975.txt", Problem(lack))
    assert check(rounded("float32"), spec, tmp_path, LOCAL) == ()
    monkeypatch.setattr(checking, "multiplies_bfloat16", lambda: True)
    assert check(rounded("bfloat16"), spec, tmp_path, LOCAL) == ()
    served = list(check(rounded("bfloat16", "sglang"), spec, tmp_path, LOCAL))
    assert "SGLang's servers generate in float32 on a processor" in served[-1].message
    assert [found.code for found in served].count("E0975") == 1


def test_only_what_is_to_run_is_asked_about(tmp_path: Path) -> None:
    spec = spec_on(Hub(repo="owner/name"))
    rest = tuple(task for task in lower(spec).tasks if task.kind not in ("model", "train"))
    assert found(spec, tmp_path, tasks=rest) == []


def test_gpus_that_torch_was_not_built_for_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    monkeypatch.setattr(checking, "shown_gpus", lambda: 2)
    monkeypatch.setattr(checking, "built_for_cuda", lambda: False)
    assert checking.gpus() == 0
    cluster = Cluster(name="h800", nodes=1, gpus_per_node=2, gpu="H800", memory_gib=80)
    spec = make.four()
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": cluster})})
    (diagnostic,) = check(lower(spec).tasks, spec, tmp_path, LOCAL)
    refusal("execute/E0971-built.txt", Problem(diagnostic))
    monkeypatch.setattr(checking, "built_for_cuda", lambda: True)
    assert checking.gpus() == 2


@pytest.mark.parametrize(
    ("text", "built"),
    [
        ("cuda: Optional[str] = None\n", False),
        ("cuda = None\n", False),
        ("cuda: Optional[str] = '13.0'\n", True),
        ("", True),
    ],
)
def test_what_torch_was_built_for_is_read_and_not_imported(
    text: str, built: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch" / "version.py").write_text(text)
    place = importlib.util.spec_from_file_location("torch", tmp_path / "torch" / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: place)
    assert checking.built_for_cuda() is built
    (tmp_path / "torch" / "version.py").unlink()
    assert checking.built_for_cuda()


@pytest.mark.parametrize(
    ("verifier", "unconfined"),
    [
        ('"package"', []),
        ('{"kind": "tests"}', ["E0742"]),
        ('{"kind": "python", "function": "checks.py:check"}', []),
    ],
)
def test_scorers_that_evaluate_are_refused_where_nothing_confines_them(
    verifier: str, unconfined: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs are refused whatever is said, as the option's help and SECURITY.md have it."""
    shown = " ".join(CliRunner().invoke(cli, ["run", "--help"], terminal_width=80).output.split())
    page = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text().split())
    for said, words in (
        (shown, "Run a package's scorers and your Python without the sandbox"),
        (shown, "A loss in Python is never confined."),
        (page, "runs both unconfined, and the report says so. `math` needs no option"),
        (page, "Programs of code tasks are always refused."),
    ):
        assert said.count(words) == 1
    (tmp_path / "checks.py").write_text("def check(answer):\n    return True\n")
    spec = make.four()
    evaluate = next(task for task in lower(spec).tasks if task.kind == "evaluate")
    text = re.sub(r'"verifier": "\w+"', f'"verifier": {verifier}', json.dumps(evaluate.payload))
    scored = (replace(evaluate, work=json.loads(text)),)
    monkeypatch.setattr(checking, "lacking_means", lambda: None)
    assert found(spec, tmp_path, tasks=scored) == []
    monkeypatch.setattr(checking, "lacking_means", lambda: "the kernel (4.4) has no Landlock")
    assert found(spec, tmp_path, tasks=scored) == ["E0742"]
    assert found(spec, tmp_path, Machine(local=True, without_sandbox=True), scored) == unconfined
    assert found(spec, tmp_path, tasks=(evaluate,)) == []


def test_a_teacher_with_other_tokens_is_told_before_anything_starts(tmp_path: Path) -> None:
    teacher = FromModel(model=make.model("teacher", Folder(path="theirs")))
    start = FromModel(model=make.model("given", Folder(path="mine")))
    stage = make.ppo(make.outcome())
    stage = stage.model_copy(
        update={"method": stage.method.model_copy(update={"kl": 1.0, "teacher": teacher})}
    )
    spec = make.spec(make.arm("a", make.trained("a", stage, start=start)))
    words = {"a": 0, "b": 1}
    for name, vocabulary in (("mine", words), ("theirs", words)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    assert "E0514" not in found(spec, tmp_path)
    (tmp_path / "theirs" / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 1, "b": 0}}}))
    assert "E0514" in found(spec, tmp_path)


WORDED = """
from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import ppo
from std.rewards import outcome

wording plain { question = "{question}" }
wording longer { question = "so so so {question}" }
data own = chain_train { source = file("own.jsonl") }

experiment mine = ppo {
  base    = overthinker
  data    = chain_train
  reward  = outcome
  eval    = chain_suite
  steps   = 3 steps
  rollout { max_tokens = 64 tokens }
  max_prompt = 9 tokens
  stage first { }
  stage second { data = own, rollout { wordings = [plain, longer] } }
}
"""


@pytest.mark.parametrize(
    ("questions", "longest", "count"),
    [
        # A wording adds three words to each question that fits without them.
        ((2, 4, 5), 7, 8),
        ((2, 4, 5), 8, None),
        ((2, 40), 5, None),
        ((3, 2, 40), 5, 6),
    ],
)
def test_a_prompt_too_long_with_a_later_stages_wording_is_told_before_anything_starts(
    questions: tuple[int, ...], longest: int, count: int | None, tmp_path: Path
) -> None:
    rows = [{"question": " ".join("a" for _ in range(words)), "answer": "a"} for words in questions]
    (tmp_path / "own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = tmp_path / "spec.reo"
    path.write_text(WORDED.replace("max_prompt = 9", f"max_prompt = {longest}"))
    compiled = compile_file(path)
    assert compiled.spec is not None, compiled.diagnostics
    told = [
        each
        for each in check(lower(compiled.spec).tasks, compiled.spec, tmp_path, LOCAL)
        if each.code == "E0933"
    ]
    assert [each.help for each in told] == ([f"set `max_prompt` to {count} tokens or more"] if count else [])
    trained = tuple(task for task in lower(compiled.spec).tasks if task.kind != "train")
    assert "E0933" not in found(compiled.spec, tmp_path, tasks=trained)
