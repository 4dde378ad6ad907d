"""Files that are no spec, imports that lead nowhere good, and params out of range, through every command."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from tests.bad_input.commands import SPEC, Place, permissions_count, refused

COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", "SPEC", "--local"),
    "check": ("check", "SPEC"),
    "fmt": ("fmt", "SPEC"),
    "plan": ("plan", "SPEC"),
    "graph": ("graph", "SPEC"),
    "why": ("why", "SPEC", "report"),
    "diff": ("diff", "SPEC", "tiny.reo"),
}
FILES: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "E0101", "the file is empty"),
    "blank": (b"\n \t\n", "E0101", "the file is empty"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00", "E0101", "a binary file"),
    "a checkpoint": (b"PK\x03\x04\x00\x00archive/data.pkl", "E0101", "a binary file"),
    "huge": (b"# a line\n" * 40_000, "E0101", "at most 256 KiB"),
    "huge and binary": (b"\0" * 10_000_000, "E0101", "at most 256 KiB"),
    "Latin-1": ("# Grüße\n".encode("latin-1"), "E0101", "byte 4 is 0xfc"),
    "UTF-16": (SPEC.encode("utf-16"), "E0101", "byte order mark of UTF-16"),
    "cut UTF-8": ("# ü".encode()[:-1], "E0101", "byte 2 is 0xc3"),
    "a thousand braces": (b"experiment x = " + b"{" * 1000, "E0138", ""),
    "a thousand braces, closed": (b"experiment x = ppo " + b"{ a " * 1000 + b"}" * 1000, "E0138", ""),
    "a thousand brackets": (b"param n: int = " + b"[" * 1000 + b"]" * 1000, "E0138", ""),
    "ninety thousand parentheses": (b"param n: int = " + b"(" * 90_000, "E0138", ""),
}


def words_of(command: str, spec: str) -> list[str]:
    return [spec if word == "SPEC" else word for word in COMMANDS[command]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_spec(place: Place, kind: str, command: str) -> None:
    data, code, words = FILES[kind]
    spec = place.write(data, "bad.reo")
    before = place.files()
    refused(place.call(*words_of(command, "bad.reo")), code, "bad.reo", words)
    assert place.files() == before
    assert spec.read_bytes() == data


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there(place: Place, command: str) -> None:
    before = place.files()
    refused(place.call(*words_of(command, "tinny.reo")), "E0101", "tinny.reo", "did you mean `tiny.reo`?")
    refused(place.call(*words_of(command, "no/such.reo")), "E0101", "no/such.reo")
    assert place.files() == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_may_not_be_read(place: Place, command: str) -> None:
    place.write(SPEC, "shut.reo").chmod(0)
    with permissions_count():
        told = place.call(*words_of(command, "shut.reo"))
    refused(told, "E0101", "shut.reo", "Permission denied", "chmod u+r")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_plain_file(place: Place, command: str) -> None:
    os.mkfifo(place.folder / "pipe.reo")
    refused(place.call(*words_of(command, "pipe.reo")), "E0101", "pipe.reo", "a pipe")
    (place.folder / "round.reo").symlink_to("round.reo")
    refused(place.call(*words_of(command, "round.reo")), "E0101", "round.reo", "cannot be read")


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("fmt", "check")])
def test_a_folder_is_no_spec(place: Place, command: str) -> None:
    (place.folder / "folder.reo").mkdir()
    refused(place.call(*words_of(command, "folder.reo")), "E0101", "folder.reo", "a directory")


@pytest.mark.parametrize("kind", FILES)
def test_bytes_of_stdin_are_held_to_the_same(
    place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, code, words = FILES[kind]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    refused(place.call("fmt", "-"), code, "<stdin>", words)


def test_a_pipe_is_read_as_bytes() -> None:
    command = [sys.executable, "-m", "reodsl.cli.main", "fmt", "-"]
    run = subprocess.run(command, input=FILES["Latin-1"][0], capture_output=True, timeout=60)
    assert (run.returncode, run.stdout) == (1, b"")
    assert run.stderr.decode().count("error[E0101]") == 1
    assert b"Traceback" not in run.stderr


IMPORTS: dict[str, tuple[dict[str, str], str, str, tuple[str, ...]]] = {
    "a circle": (
        {"a.reo": "from .b import x\nparam y: int = 1\n", "b.reo": "from .a import y\nparam x: int = 1\n"},
        "E0206",
        "b.reo:1:6",
        ("a.reo → b.reo → a.reo",),
    ),
    "itself": ({"a.reo": "from .a import x\n"}, "E0206", "a.reo:1:6", ("a.reo → a.reo",)),
    "above the folder": ({"a.reo": "from ..secret import x\n"}, "E0207", "a.reo:1:6", ("below its folder",)),
    "the system": ({"a.reo": "from ....etc import x\n"}, "E0207", "a.reo:1:6", ("below its folder",)),
    "far above the root": ({"a.reo": f"from {'.' * 90}etc.passwd import x\n"}, "E0207", "a.reo:1:6", ()),
    "a link out": ({"a.reo": "from .link import x\n"}, "E0207", "a.reo:1:6", ("below its folder",)),
    "a linked folder out": ({"a.reo": "from .links.secret import x\n"}, "E0207", "a.reo:1:6", ()),
    "a binary file": ({"a.reo": "from .b import x\n", "b.reo": "\0"}, "E0101", "b.reo", ("binary",)),
    "an empty file": ({"a.reo": "from .b import x\n", "b.reo": ""}, "E0101", "b.reo", ("is empty",)),
    "no such file": ({"a.reo": "from .c import x\n", "cc.reo": ""}, "E0204", "a.reo:1:6", ("did you mean",)),
    "a Python module": ({"a.reo": "from os import system\n"}, "E0204", "a.reo:1:6", ("no module `os`",)),
}


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "fmt"])
@pytest.mark.parametrize("kind", IMPORTS)
def test_an_import_that_leads_nowhere_good(
    place: Place, kind: str, command: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files, code, at, words = IMPORTS[kind]
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.reo").write_text("param x: int = 1  # s3cr3t\n")
    (place.folder / "link.reo").symlink_to(outside / "secret.reo")
    (place.folder / "links").symlink_to(outside)
    for name, text in files.items():
        place.write(text, name)
    told = place.call(*words_of(command, "a.reo"))
    refused(told, code, at, *words)
    assert "s3cr3t" not in told.err
    assert not (place.folder / ".reodsl").exists()


PARAMS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "above": (("--set", "length=10 steps"), "E0303", ("from 1 step to 9 steps",)),
    "below": (("--set", "length=0"), "E0303", ("from 1 step to 9 steps",)),
    "negative": (("--set", "length=-1"), "E0303", ()),
    "astronomic": (("--set", f"length={'9' * 5000}"), "E0136", ()),
    "another unit": (("--set", "length=2 tokens"), "E0302", ("write `2 steps`",)),
    "a text": (("--set", 'length="two"'), "E0301", ()),
    "a name": (("--set", "lenght=2"), "E0211", ("did you mean `length`?",)),
    "no value": (("--set", "length"), "E0114", ("--set name=value",)),
    "twice": (("--set", "length=2", "--set", "length=3"), "E0114", ("set it once",)),
    "a setting out of range": (("--amend", "tiny.batch.prompts=0"), "E0303", ()),
    "a setting that is not there": (("--amend", "tiny.stepz=3"), "E0203", ("steps",)),
}


@pytest.mark.parametrize("command", ["run", "check", "plan", "graph", "why"])
@pytest.mark.parametrize("kind", PARAMS)
def test_a_param_out_of_range(place: Place, kind: str, command: str) -> None:
    options, code, words = PARAMS[kind]
    told = place.call(*words_of(command, "tiny.reo"), *options)
    assert told.findings() == [code], told.err
    assert told.code == 1
    assert told.out == ""
    assert "= help: " in told.err
    assert "Traceback" not in told.err
    assert max(map(len, told.err.splitlines())) < 400
    for word in words:
        assert word in told.err
    assert not (place.folder / ".reodsl").exists()


def test_a_param_out_of_range_where_it_stands(place: Place) -> None:
    place.write(SPEC.replace("= 2 steps in", "= 12 steps in"))
    line = 1 + SPEC[: SPEC.index("param length")].count("\n")
    refused(place.run(), "E0303", f"tiny.reo:{line}:", "from 1 step to 9 steps")
