"""Files that cannot be specs: each gives one error with the place and the remedy, and none hangs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Diagnostic, Problem
from reodsl.syntax import Source, parse, read_source, source_from_bytes
from reodsl.syntax.source import MAX_BYTES

NO_FILE = "this is a pipe, a device or a system file, not a spec"


def refused(path: Path) -> Diagnostic:
    with pytest.raises(Problem) as caught:
        read_source(path, "shown.reo")
    (found,) = caught.value.diagnostics
    assert found.code == "E0101"
    assert found.help
    assert found.where == "shown.reo" or found.labels[0].span.path == "shown.reo"
    return found


def test_missing_names_what_is_alike(tmp_path: Path) -> None:
    (tmp_path / "quickstart.reo").write_text("study s {}")
    found = refused(tmp_path / "quikstart.reo")
    assert found.help == "did you mean `quickstart.reo`?"
    assert refused(tmp_path / "quickstart.reo" / "below.reo").message == found.message


def test_a_directory(tmp_path: Path) -> None:
    assert refused(tmp_path).message == "this is a directory, not a spec"


def test_a_pipe_nobody_writes_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.reo")
    assert refused(tmp_path / "pipe.reo").message == NO_FILE


def test_an_endless_device() -> None:
    assert refused(Path("/dev/zero")).message == NO_FILE


@pytest.mark.parametrize(
    "path", ["/proc/kmsg", "/proc/self/mem", "/proc/self/environ", "/sys/kernel/uevent_seqnum"]
)
def test_files_of_the_kernel_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """What is read of the kernel's messages is gone from there."""
    if not Path(path).exists():
        pytest.skip("the kernel has no such file")
    (tmp_path / "link.reo").symlink_to(path)
    monkeypatch.setattr("reodsl.syntax.source.os.open", lambda *args: pytest.fail("it was opened"))
    for each in (Path(path), tmp_path / "link.reo"):
        assert refused(each).message == NO_FILE


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]) -> None:
    path = tmp_path / "closed.reo"
    path.write_text("study s {}")

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    refusal("commands/E0101-denied.txt", Problem(refused(path)))


def test_a_name_no_file_can_have(tmp_path: Path) -> None:
    for name in ("a\0b.reo", "x" * 5000):
        assert refused(tmp_path / name).message.startswith("the file cannot be read: ")


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf"])
def test_empty(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.reo").write_bytes(data)
    assert refused(tmp_path / "a.reo").message == "the file is empty"


def test_binary(tmp_path: Path) -> None:
    (tmp_path / "a.reo").write_bytes(b"PK\x03\x04ab\0c")
    found = refused(tmp_path / "a.reo")
    assert found.message == "this is a binary file, not a spec"
    assert "byte 6" in found.notes[0]


@pytest.mark.parametrize(
    ("data", "line", "column", "byte"),
    [
        (b"study s {}\n# caf\xe9\n", 2, 6, 16),
        (b"\xff", 1, 1, 0),
        (b"a\r\nb\r\n\xc3", 3, 1, 6),
        (b"\xef\xbb\xbf# \xc3\xa9 \xe9", 1, 5, 8),
        (b"a\rb\r \xed\xa0\x80", 3, 2, 5),
    ],
)
def test_not_utf8_names_byte_line_and_column(data: bytes, line: int, column: int, byte: int) -> None:
    with pytest.raises(Problem) as caught:
        source_from_bytes(data, "a.reo")
    (found,) = caught.value.diagnostics
    span = found.labels[0].span
    assert (found.message, span.line, span.column) == ("the file is not UTF-8 text", line, column)
    assert f"byte {byte} is 0x{data[byte]:02x}" in found.labels[0].text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_unicode_encodings_are_named(encoding: str) -> None:
    with pytest.raises(Problem) as caught:
        source_from_bytes("study s {}".encode(encoding), "a.reo")
    (found,) = caught.value.diagnostics
    assert found.message == "the file is not UTF-8 text"
    assert encoding.upper() in found.labels[0].text


def test_one_byte_too_many(tmp_path: Path) -> None:
    path = tmp_path / "a.reo"
    path.write_bytes(b"#" * MAX_BYTES)
    assert len(read_source(path).text) == MAX_BYTES
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    assert refused(path).message == "a spec is at most 256 KiB, and this is more"


def test_line_ends_and_byte_order_mark_are_made_alike() -> None:
    plain = source_from_bytes("# é\nstudy s {}\n".encode(), "a.reo")
    other = source_from_bytes("\ufeff# é\r\nstudy s {}\r".encode(), "a.reo")
    assert plain == other


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("results.json", json.dumps({"a": [1, {"b": None}], "c": "d"}, indent=2)),
        ("table.csv", "seed,accuracy\n1,0.5\n2,0.25\n"),
        ("train.py", "import os\n\n\ndef main(argument):\n    return os.path.join(argument, 'a')\n"),
        ("settings.yaml", "optim:\n  lr: 1e-6\n  betas: [0.9, 0.95]\n"),
    ],
)
def test_another_sort_of_file_is_one_error(name: str, text: str) -> None:
    result = parse(Source(name, text))
    (found,) = result.diagnostics
    assert found.message.startswith("this is not a spec: ")
    assert result.diagnostics[0].labels[0].span.line <= text.count("\n") + 1
    assert len(parse(Source("named.reo", text)).diagnostics) > 1 or name == "settings.yaml"


def test_another_sort_of_file_is_refused_for_an_error_and_not_a_warning() -> None:
    (found,) = parse(Source("notes.md", 'a = """x \\n """\nhello world ( not\n- and } more\n')).diagnostics
    assert found.labels[0].span.line == 2


def test_a_spec_of_another_name_is_read_as_one() -> None:
    text = "experiment a = ppo\nexperiment b = ppo\n"
    assert parse(Source("mine.txt", text)).diagnostics == ()
    broken = parse(Source("mine.txt", text + "experiment c ppo\n"))
    assert [each.code for each in broken.diagnostics] == ["E0130"]
