"""What surrounds a server: arguments, places, symptoms, messages and the stand-in's hash, without starting one."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import socket
import struct
import sys
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render
from reodsl.graph.job import Resources
from reodsl.price.machine import USABLE
from runners.engine.open import open_engine
from runners.engine.protocol import Generation, Request, TokenSampling
from runners.engine.sglang import server, settings
from runners.engine.sglang.engine import _assign_servers
from runners.engine.sglang.hosts import ServerCache, colocated_settings
from runners.engine.sglang.messages import Draft, drawing, forced_message
from runners.engine.sglang.rounds import PendingRequest
from runners.engine.sglang.server import diagnose, port_taken
from runners.engine.sglang.settings import KEY, Settings, colocated_fraction, patience
from runners.machine.process import last_lines
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from runners.train.ranks import join_ranks
from tests.engine.engine_reference import VOCAB, make_model
from tests.engine.sglang.environments import python_with

GIB = 1 << 30
SETTINGS = Settings(Path("/models/one"), context=300, token_bytes=1 << 12)


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(f"--{name}") + 1]


def test_a_server_is_started_for_the_longest_sequence_with_seeds_and_a_prefix_cache() -> None:
    given = SETTINGS.arguments("127.0.0.1", 20_001)
    assert int(option(given, "context-length")) >= 300
    assert option(given, "host") == "127.0.0.1"
    assert "--enable-deterministic-inference" in given
    assert "--disable-radix-cache" not in given
    assert int(option(given, "max-total-tokens")) >= 2 * 300
    # SGLang takes other processes' memory for its own: a small share fails on a busy machine, and for a larger model.
    assert float(option(given, "mem-fraction-static")) == USABLE
    environment = SETTINGS.environment({"PYTHONPATH": "/ours", "HOME": "/h"}, "secret")
    assert "PYTHONPATH" not in environment
    assert environment["HOME"] == "/h"
    assert environment[KEY] == "secret"
    assert "secret" not in given


def test_a_server_on_gpus_gets_their_share_of_memory_and_of_the_model() -> None:
    many = Settings(Path("m"), 300, 1 << 12, device="cuda", tensor_parallel=4, memory_fraction=0.5)
    given = many.arguments("10.0.0.2", 20_001)
    assert option(given, "tp-size") == "4"
    assert option(given, "mem-fraction-static") == "0.5"
    assert "cpu" not in given
    assert "SGLANG_USE_CPU_ENGINE" not in many.environment({}, "k")
    assert "--kv-cache-dtype" not in given
    small = replace(many, caches="fp8")
    assert option(small.arguments("10.0.0.2", 20_001), "kv-cache-dtype") == "fp8_e4m3"
    # A processor computes no attention over such numbers: rehearsals keep them whole.
    assert "--kv-cache-dtype" not in replace(small, device="cpu").arguments("10.0.0.2", 20_001)


def test_parts_of_a_model_are_given_cores_on_a_processor() -> None:
    """SGLang asks for as many NUMA nodes as parts otherwise."""
    two = Settings(Path("m"), 300, 1 << 12, tensor_parallel=2).environment({}, "k")
    cores = two["SGLANG_CPU_OMP_THREADS_BIND"].split("|")
    assert len(cores) == 2
    assert {int(core) for core in cores} <= os.sched_getaffinity(0)
    assert "SGLANG_CPU_OMP_THREADS_BIND" not in Settings(Path("m"), 300, 1 << 12).environment({}, "k")


def read_only_disk(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def test_servers_compile_with_the_toolkit_of_their_packages_whatever_the_node_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_with(tmp_path, "sglang")
    assert settings.toolkit(python) == {}
    home = python.parent.parent / "lib/python3.11/site-packages/nvidia/cu13"
    for file in ("bin/nvcc", "lib/libcudart.so.13"):
        (home / file).parent.mkdir(parents=True)
        (home / file).touch(mode=0o755)
    # SGLang calls `ninja` by its name, and the packages bring one beside their Python.
    monkeypatch.setenv("PATH", "/usr/bin")
    found = {"CUDA_HOME": str(home), "CUDA_PATH": str(home), "PATH": f"{python.parent}:/usr/bin"}
    assert settings.toolkit(python) == found
    link = home / "lib64" / "libcudart.so"
    assert link.resolve() == home / "lib" / "libcudart.so.13"
    # A second server finds it, and packages that are read-only already have it.
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "mkdir", read_only_disk)
        assert settings.toolkit(python) == found


def test_trainers_and_servers_set_nccl_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE")
    for given in ({}, {"NCCL_NVLS_ENABLE": "1"}):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        server = SETTINGS.environment(os.environ, "k")
        with join_ranks(0, 1, HashStore(), torch.device("cpu")):
            pass
        assert [os.environ[name] for name in names] == [server[name] for name in names]
        assert [server[name] for name in names] == ["0", given.get("NCCL_NVLS_ENABLE", "0")]


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_a_server_that_gives_memory_back_has_no_expandable_segments(name: str) -> None:
    """torch_memory_saver raises where it finds them."""
    given = {name: "max_split_size_mb:512,expandable_segments: True"}
    on_gpu = replace(SETTINGS, device="cuda")
    assert on_gpu.environment(given, "k")[name] == given[name]
    saving = replace(on_gpu, memory_saver=True)
    assert saving.environment(given, "k")[name] == "max_split_size_mb:512,expandable_segments: False"
    assert saving.environment({name: "backend:native"}, "k")[name] == "backend:native"


def test_what_a_trainer_will_keep_is_left_free() -> None:
    """An 80 GiB device with 16 GiB in use; 40 GiB more will be: 85% of it, 68 GiB, less 56 are 12 of the free 64."""
    assert colocated_fraction(64 * GIB, 80 * GIB, 40 * GIB) == pytest.approx(12 / 64)
    # Alone on it, nothing is taken off.
    assert colocated_fraction(80 * GIB, 80 * GIB, 0.0) == pytest.approx(0.85)
    # No room: a share that the server refuses, and not a negative one.
    assert colocated_fraction(10 * GIB, 80 * GIB, 40 * GIB) == 0.01


def test_a_server_on_a_processor_sleeps_where_nothing_is_asked_of_it() -> None:
    """Ten seconds of waiting took ten of a core, and take 0.2; answers take as long."""
    assert "--sleep-on-idle" in SETTINGS.arguments("127.0.0.1", 20_001)
    assert "--sleep-on-idle" not in replace(SETTINGS, device="cuda").arguments("127.0.0.1", 20_001)


@pytest.mark.parametrize("there", [True, False])
def test_servers_that_take_turns_give_memory_back_where_they_can(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    python = python_with(tmp_path, *("sglang", "torch_memory_saver")[: 2 if there else 1])
    monkeypatch.setenv(settings.VARIABLE, str(python))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (64 * GIB, 80 * GIB))
    made = ServerCache()
    monkeypatch.setattr(made, "end", lambda: ended.append(True))
    monkeypatch.setattr("runners.engine.sglang.hosts.kept_servers", lambda: made)
    ended: list[bool] = []
    assert "--enable-memory-saver" not in SETTINGS.arguments("127.0.0.1", 20_001)
    on_cpu = colocated_settings(SETTINGS, 40.0 * GIB)
    assert on_cpu == replace(SETTINGS, shares_device=True)
    assert "--enable-memory-saver" not in on_cpu.arguments("127.0.0.1", 20_001)
    found = colocated_settings(replace(SETTINGS, device="cuda"), 40.0 * GIB)
    assert found.shares_device
    # What another task has left on the device would be counted as in use.
    assert ended == ([True] if there else [])
    given = found.arguments("127.0.0.1", 20_001)
    assert ("--enable-memory-saver" in given) == there
    assert option(given, "mem-fraction-static") == ("0.1875" if there else "0.5")
    assert ("torch_memory_saver" in caplog.text) != there


@pytest.mark.parametrize(("beside", "wanted"), [(None, False), (8.0, True)])
def test_servers_take_turns_only_with_who_trains_on_their_devices(
    beside: float | None, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    save(make_model("qwen3-gqa-tied"), word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), folder)
    found: list[Settings] = []
    monkeypatch.setattr(
        "runners.engine.sglang.engine.SGLangEngine", lambda _, settings, *__: found.append(settings)
    )
    monkeypatch.setattr("runners.engine.sglang.hosts.interpreter", lambda: Path("python"))
    open_engine(folder, Resources(engine="sglang"), 100, tmp_path, beside)
    assert [each.shares_device for each in found] == [wanted]


def test_a_port_that_is_taken_is_not_chosen(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    monkeypatch.setattr(server, "_PORTS", [taken_port] * 3 + [free])
    assert server.free_port("127.0.0.1") == free
    monkeypatch.setattr(server, "_PORTS", [taken_port])
    with pytest.raises(Problem) as caught:
        server.free_port("127.0.0.1")
    assert caught.value.diagnostics[0].code == "E0821"


@pytest.mark.parametrize("given", ["30min", "", "0", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str, refusal: Callable[..., None]
) -> None:
    monkeypatch.setenv("REODSL_SGLANG_PATIENCE", given)
    with pytest.raises(Problem) as caught:
        patience()
    refusal("engine/E0821-patience.txt", caught.value, (f"`{given}`", "`GIVEN`"))
    monkeypatch.setenv("REODSL_SGLANG_PATIENCE", "2.5")
    assert patience() == 2.5


def test_without_sglang_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.setenv(settings.VARIABLE, "/no/such/python")
    with pytest.raises(Problem) as caught:
        settings.interpreter()
    golden("engine/E0820.txt", render(caught.value.diagnostics, {}))
    assert settings.missing() == caught.value.diagnostics[0]


def test_a_longest_sequence_past_the_context_is_refused_before_anything_starts(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    folder = tmp_path / "model"
    save(make_model("qwen3-gqa-tied"), word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), folder)
    with pytest.raises(Problem) as caught:
        open_engine(folder, Resources(engine="sglang"), 600)
    golden("engine/E0807-context.txt", render(caught.value.diagnostics, {}).replace(str(tmp_path), "MODELS"))


LOGS = {
    "E0937-server": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "E0801": "ValueError: Cannot find model module. 'Strange9ForCausalLM' is not a registered model",
    "E0821": "ImportError: libcudart.so.13: cannot open shared object file",
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_tells_why_a_server_ended(
    name: str, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    log = tmp_path / "sglang-0.log"
    log.write_text("a line before\n\n" + LOGS[name] + "\n")
    (tmp_path / "model.safetensors").write_bytes(b"0" * (1 << 20))
    settings = Settings(tmp_path, context=40_000, token_bytes=147_456, device="cuda")
    found = diagnose(settings, log)
    assert found.diagnostics[0].code == name[:5]
    golden(f"engine/{name}.txt", render(found.diagnostics, {}).replace(str(tmp_path), "PLACE"))


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory", 1),
        ("terminate called after throwing an instance of 'std::bad_alloc'", -6),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: -9).", 1),
        ("Loading weights", -9),
    ],
)
def test_memory_that_ran_out_is_known_by_what_was_said_or_how_it_ended(
    said: str, status: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(f"{said}\n")
    settings = Settings(tmp_path, context=40_000, token_bytes=147_456)
    (found,) = diagnose(settings, log, status=status).diagnostics
    assert found.code == "E0937"
    assert "5.5 GiB of keys and values for one sequence of 40000 tokens" in found.message
    assert re.search(r"the machine has [\d.]+ GiB; .* at most 85%", found.help or "")
    # SGLang speaks of memory whatever the code.
    log.write_text(
        "scheduler died (exit code: 1). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer."
    )
    assert diagnose(settings, log, status=1).diagnostics[0].code == "E0821"
    # An earlier life ran out of it.
    log.write_text(f"{said}\nImportError: libcudart\n")
    assert diagnose(settings, log, len(said) + 1, 1).diagnostics[0].code == "E0821"


@pytest.mark.parametrize("code", ["E0801", "E0821"])
def test_a_server_that_ends_itself_tells_what_its_processes_said(code: str, tmp_path: Path) -> None:
    """SGLang kills all that it started, itself too, where one of them fails: the signal says nothing of memory."""
    log = tmp_path / "log"
    log.write_text(
        f"{LOGS[code]}\nReceived sigquit from a child process. It usually means the child failed.\n"
        "kill_process_tree called: parent_pid=290, include_parent=True, pid=290\n"
    )
    settings = Settings(tmp_path, context=40_000, token_bytes=147_456)
    assert diagnose(settings, log, status=-9).diagnostics[0].code == code


def test_a_port_that_was_taken_is_seen_behind_what_came_after(tmp_path: Path) -> None:
    log = tmp_path / "log"
    taken = "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 2): address already in use\n"
    log.write_text(taken + "  File ...\n" * 40)
    assert port_taken(log)
    assert not port_taken(log, len(taken))
    assert not port_taken(tmp_path / "none")


def test_the_end_of_a_log_is_short_and_of_this_life(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n" * 100)
    begin = log.stat().st_size
    with log.open("a") as file:
        file.write("x" * 1000 + "\n" + "\n".join(map(str, range(40))))
    lines = last_lines(log, begin)
    assert lines == [str(n) for n in range(28, 40)]
    assert last_lines(tmp_path / "none") == []


def test_an_answer_in_parts_is_one_response() -> None:
    """A server that stops early (its own end of text, an abort) is asked for the rest, with the same stream."""
    sampling = TokenSampling(5, temperature=0.7, stop_ids=(9,))
    draft = Draft(Request((3, 4), (1 << 64) - 1), sampling)
    first = draft.message()
    assert first["input_ids"] == [3, 4]
    assert first["return_sampling_mask"]
    assert draft.take(part([5, 6], 1)) is None
    second = draft.message()
    assert second["input_ids"] == [3, 4, 5, 6]
    assert second["sampling_params"]["max_new_tokens"] == 3
    assert second["sampling_params"]["sampling_seed"] == first["sampling_params"]["sampling_seed"]
    assert draft.take(part([7, 9], 2)) == Generation(
        (5, 6, 7, 9), array("d", [-1.0] * 4), array("d", [-0.5] * 4), "stop", (1, 2)
    )


def test_a_response_that_weights_changed_under_names_all_that_made_it() -> None:
    """A server tells the spans of a part where an update came in its middle, and one version where none did."""
    draft = Draft(Request((3, 4), 1), TokenSampling(6))
    spans = [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 3}]
    first = part([5, 6, 7], 5)
    first["meta_info"]["weight_versions"] = spans
    assert draft.take(first) is None
    assert draft.take(part([8], 5)) is None
    found = draft.take(part([9, 9], 6))
    assert found is not None
    assert found.weight_versions == (4, 5, 6)


def part(tokens: list[int], version: int) -> dict[str, Any]:
    told = {
        "output_token_logprobs": [[-1.0, token, None] for token in tokens],
        "output_token_sampling_logprobs": [-0.5] * len(tokens),
        "weight_version": str(version),
    }
    return {"output_ids": tokens, "meta_info": told}


def told_else(**other: object) -> dict[str, Any]:
    return {"output_ids": [5], "meta_info": part([5], 1)["meta_info"] | other}


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (part([], 1), "E0824"),
        ({"output_ids": [5], "meta_info": part([], 1)["meta_info"]}, "E0824-numbers"),
        (told_else(output_token_sampling_logprobs=None), "E0824-draw"),
        (told_else(output_token_logprobs=[[None, 5, None]]), "E0802-server"),
    ],
    ids=["nothing", "no log-probabilities", "none of the draw", "not finite"],
)
def test_answers_that_lack_something_are_refused(
    answer: dict[str, Any], name: str, refusal: Callable[..., None]
) -> None:
    with pytest.raises(Problem) as caught:
        Draft(Request((3,), 1), TokenSampling(5, temperature=0.7)).take(answer)
    refusal(f"engine/{name}.txt", caught.value, task="base.eval")


def test_log_probabilities_come_with_their_tokens_or_by_themselves() -> None:
    """Any SGLang server lists them with token and text; those that the launcher starts list nothing else."""
    made = [
        Draft(Request((3,), 1), TokenSampling(1)).take(told_else(output_token_logprobs=listed))
        for listed in ([[-1.5, 5, None]], [-1.5])
    ]
    assert made[0] == made[1]
    assert made[0] is not None
    assert list(made[0].logprobs) == [-1.5]


def test_log_probabilities_that_nothing_reads_are_asked_of_one_response() -> None:
    """Of one they are, so that a model whose weights are no numbers is told."""
    plain = TokenSampling(1, temperature=0.7, logprobs=False)
    draft = Draft(Request((3,), 1), plain)
    assert not {"return_logprob", "return_sampling_mask"} & set(draft.message())
    bare = {"output_ids": [5], "meta_info": {"weight_version": "1"}}
    response = draft.take(bare)
    assert response is not None
    assert (response.tokens, *response.logprobs, *response.sampling_logprobs) == ((5,),)
    watched = Draft(Request((3,), 1), plain, probes=True)
    assert watched.message()["return_logprob"]
    assert watched.take(told_else()) == response
    with pytest.raises(Problem) as caught:
        Draft(Request((3,), 1), plain, probes=True).take(told_else(output_token_logprobs=[None]))
    assert caught.value.diagnostics[0].code == "E0802"


def test_a_server_is_sent_a_response_once() -> None:
    seeds, sampling = [7, (1 << 64) - 1], TokenSampling(2, temperature=0.5)
    message = forced_message((3, 4, 5, 6), (2, 4), (9,), seeds, sampling)
    assert message["tokens"] == [3, 4, 5, 6]
    assert message["priority"] > 0


def test_seeds_are_such_as_a_server_takes() -> None:
    for seed in (0, 5, (1 << 63) + 5, (1 << 64) - 1):
        assert 0 <= drawing(TokenSampling(1), seed)["sampling_seed"] < 1 << 63
    assert drawing(TokenSampling(4, stop_ids=()), 1)["ignore_eos"]
    assert drawing(TokenSampling(4), 1, num_sampled=3)["max_new_tokens"] == 1


def test_equal_prompts_go_to_one_server_and_servers_get_about_as_much() -> None:
    requests = [Request((prompt,), n) for n, prompt in enumerate([1, 1, 1, 2, 3, 4, 5])]
    places = _assign_servers(requests, 2)
    assert len({places[i] for i in range(3)}) == 1
    assert sorted(places.count(p) for p in (0, 1)) == [3, 4]


def test_only_what_has_no_answer_is_open() -> None:
    work = PendingRequest(
        0, Request((1,), 1), 0, response=Generation((5, 6, 7), (), (), "stop", (0,)), cuts=(0, 2, 2, 3, 9)
    )
    assert work.open_cuts == (0, 2)
    work.answers = {0: (4,), 2: (4,)}
    assert work.is_done


def test_the_stand_ins_hash_is_murmur3() -> None:
    """Against the algorithm over bytes, in plain Python."""
    spec = importlib.util.spec_from_file_location(
        "stand_in", Path(__file__).parent / "cpu" / "sgl_kernel" / "__init__.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seeds = torch.tensor([0, 1, (1 << 63) - 1, 123456789012345], dtype=torch.int64)
    positions = torch.tensor([0, 7, 2**31 - 1, 40])
    columns = torch.arange(5)
    found = module.murmur_hash32(seeds, positions, columns)
    for i, (seed, position) in enumerate(zip(seeds.tolist(), positions.tolist(), strict=True)):
        for column in range(5):
            assert found[i, column] == murmur3(struct.pack("<QII", seed, position, column))
    # Published value of the algorithm: 4 bytes "test", seed 0.
    assert murmur3(b"test") == 0xBA6BD213
    with pytest.raises(NotImplementedError, match="fused_experts"):
        module.fused_experts()


def murmur3(data: bytes) -> int:
    state = 0
    for (word,) in struct.iter_unpack("<I", data):
        word = word * 0xCC9E2D51 & 0xFFFFFFFF
        word = (word << 15 | word >> 17) & 0xFFFFFFFF
        state ^= word * 0x1B873593 & 0xFFFFFFFF
        state = (state << 13 | state >> 19) & 0xFFFFFFFF
        state = (state * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    state = (state ^ state >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return state ^ state >> 16


def test_this_python_serves_only_where_it_has_sglang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    monkeypatch.setenv(settings.VARIABLE, str(python))
    assert settings.find_interpreter() is None
    (tmp_path / "lib" / "python3.11" / "site-packages" / "sglang").mkdir(parents=True)
    assert settings.find_interpreter() == python
    # Compilers that a server calls work in folders of their own.
    monkeypatch.chdir(python.parent)
    monkeypatch.setenv(settings.VARIABLE, python.name)
    assert settings.find_interpreter() == python
    monkeypatch.setenv(settings.VARIABLE, sys.executable)
    there = importlib.util.find_spec("sglang") is not None
    assert (settings.find_interpreter() is not None) == there
