"""The server as an editor meets it: started as a process, spoken to in JSON-RPC; and the command without its package."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from reodsl.language.modules import LIBRARY
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source


class Editor:
    """One end of the protocol: requests with their answers, and what the server says by itself."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.number = 0
        self.notices: list[dict[str, Any]] = []

    def send(self, method: str, params: Any, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        body = json.dumps(message if number is None else {**message, "id": number}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the server has gone"
        found: dict[str, Any] = json.loads(self.process.stdout.read(length))
        return found

    def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        self.send(method, params, self.number)
        while True:
            message = self.read()
            if message.get("id") == self.number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self.notices.append(message)

    def begin(self, capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Begin a session, and return what the server can do."""
        asked = {"processId": None, "rootUri": None, "capabilities": capabilities or {}, **more}
        able: dict[str, Any] = self.ask("initialize", asked)["capabilities"]
        self.send("initialized", {})
        return able

    def open(self, path: Path, text: str) -> dict[str, str]:
        """Open a text at a path, and return how requests name it."""
        this = {"uri": path.as_uri()}
        self.send(
            "textDocument/didOpen",
            {"textDocument": {**this, "languageId": "reo", "version": 1, "text": text}},
        )
        return this

    def published(self) -> dict[str, Any]:
        """The next diagnostics that the server sends."""
        while True:
            message = self.notices.pop(0) if self.notices else self.read()
            if message.get("method") == "textDocument/publishDiagnostics":
                params: dict[str, Any] = message["params"]
                return params


@pytest.fixture
def editor() -> Iterator[Editor]:
    pytest.importorskip("pygls", reason="the extra `lsp` is not installed")
    with subprocess.Popen(
        [sys.executable, "-m", "reodsl.cli.main", "lsp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        silent = Timer(120, process.kill)  # a server that says nothing ends, and with it the test
        silent.start()
        yield Editor(process)
        silent.cancel()
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("encodings", [None, ["utf-8", "utf-16"]])
def test_an_editing_session(editor: Editor, tmp_path: Path, encodings: list[str] | None) -> None:
    spec = tmp_path / "spéc.reo"
    text = (
        "from std.recipes import ppo\n"
        "recipe mine = ppo { optim { lr = 5e-4 } }\n"
        'published t { row a { title = "é😀", accurac = 5% } }\n'
    )
    spec.write_text("recipe other = 1\n")
    general = {} if encodings is None else {"general": {"positionEncodings": encodings}}
    assert editor.begin(general).get("positionEncoding") == (encodings or ["utf-16"])[0]
    this = editor.open(spec, text)

    # What stands after the face is found where this editor counts it.
    found = editor.published()
    unit = "utf-8" if encodings else "utf-16-le"
    before = 'published t { row a { title = "é😀", '.encode(unit)
    column = len(before) if encodings else len(before) // 2
    wrong = next(each for each in found["diagnostics"] if "accurac`" in each["message"])
    assert wrong["range"]["start"] == {"line": 2, "character": column}
    assert wrong["severity"] == 1
    assert wrong["source"] == "reodsl"

    lr = {"line": 1, "character": text.split("\n")[1].index("lr")}
    hover = editor.ask("textDocument/hover", {"textDocument": this, "position": lr})
    assert "learning rate" in hover["contents"]["value"]
    assert "5e-6" in hover["contents"]["value"]
    ppo = {"line": 1, "character": text.split("\n")[1].index("ppo")}
    place = editor.ask("textDocument/definition", {"textDocument": this, "position": ppo})
    assert place["uri"] == (LIBRARY / "recipes.reo").as_uri()
    line = (LIBRARY / "recipes.reo").read_text().split("\n")[place["range"]["start"]["line"]]
    assert line.startswith("recipe ppo {")
    inside = {"line": 2, "character": column}
    items = editor.ask("textDocument/completion", {"textDocument": this, "position": inside})
    accuracy = next(each for each in items if each["label"] == "accuracy")
    assert accuracy["textEdit"]["range"]["start"] == inside

    outline = editor.ask("textDocument/documentSymbol", {"textDocument": this})
    assert [(each["name"], each["detail"]) for each in outline] == [("mine", "recipe"), ("t", "published")]
    assert [each["name"] for each in outline[1]["children"]] == ["a"]

    edits = editor.ask(
        "textDocument/formatting", {"textDocument": this, "options": {"tabSize": 2, "insertSpaces": True}}
    )
    canonical = format_source(Source("", text)).text
    assert canonical != text
    assert [edit["newText"] for edit in edits] == [canonical]

    right = {"text": text.replace("accurac =", "accuracy =")}
    editor.send("textDocument/didChange", {"textDocument": {**this, "version": 2}, "contentChanges": [right]})
    found = editor.published()
    assert found["version"] == 2
    assert not any("accurac`" in each["message"] for each in found["diagnostics"])

    assert editor.ask("shutdown", None) is None
    editor.send("exit", None)
    assert editor.process.wait(30) == 0


@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, "interrupted\n"), (signal.SIGTERM, "")])
def test_a_signal_ends_it_while_it_waits_for_the_editor(
    editor: Editor, number: signal.Signals, words: str
) -> None:
    editor.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    editor.process.send_signal(number)
    assert editor.process.wait(120) == 128 + number
    assert editor.process.stderr is not None
    assert editor.process.stderr.read().decode() == words


def test_only_the_server_reads_its_package() -> None:
    code = (
        "import sys, reodsl; from reodsl.cli.main import main;"
        "main(['check', 'specs/quickstart.reo']); main(['lsp', '--help']);"
        "import reodsl.lsp.complete, reodsl.lsp.meaning, reodsl.lsp.analysis;"
        "print([name for name in sys.modules if name.startswith(('pygls', 'lsprotocol'))])"
    )
    root = Path(__file__).resolve().parents[2]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert out.stdout.strip().splitlines()[-1] == "[]"
    assert "reodsl lsp" in out.stdout


def test_an_editor_mends_and_renames(editor: Editor, tmp_path: Path) -> None:
    library, spec = tmp_path / "library.reo", tmp_path / "spéc.reo"
    library.write_text("reward own(cost: number in 0..1) { correct(y) - cost }\n")
    text = (
        "from .library import own\n"
        "budgets few = exp(from: 1K tokens, to: 32K tokens, n: 5)\n"
        "reward mine = own(\n"
        "  cost: 0.5,\n"
        "  # as it is\n"
        ")\n"
        "cluster pair { nodees = 2 }\n"
    )
    able = editor.begin()
    for what in ("codeAction", "references", "rename", "inlayHint"):
        assert able[f"{what}Provider"]
    this = editor.open(spec, text)
    assert any("nodees" in each["message"] for each in editor.published()["diagnostics"])

    everything = {"start": {"line": 0, "character": 0}, "end": {"line": 7, "character": 0}}
    asked = {"textDocument": this, "range": everything, "context": {"diagnostics": []}}
    (action,) = editor.ask("textDocument/codeAction", asked)
    assert action["title"] == "Write nodes"
    (edit,) = action["edit"]["changes"][this["uri"]]
    assert edit["range"]["start"] == {"line": 6, "character": len("cluster pair { ")}
    other = {"textDocument": this, "range": everything, "context": {"diagnostics": [], "only": ["refactor"]}}
    assert editor.ask("textDocument/codeAction", other) == []

    own = {"textDocument": this, "position": {"line": 2, "character": len("reward mine = o")}}
    found = editor.ask("textDocument/references", {**own, "context": {"includeDeclaration": True}})
    assert [(each["uri"], each["range"]["start"]["line"]) for each in found] == [
        (this["uri"], 0), (this["uri"], 2), (library.as_uri(), 0),
    ]  # fmt: skip
    changes = editor.ask("textDocument/rename", {**own, "newName": "cheap"})["changes"]
    assert {uri: len(edits) for uri, edits in changes.items()} == {this["uri"]: 2, library.as_uri(): 1}

    (hint,) = editor.ask("textDocument/inlayHint", {"textDocument": this, "range": everything})
    assert hint["label"].endswith("32,768 tokens")
    assert hint["position"]["line"] == 1


def test_places_that_are_none_are_answered(editor: Editor, tmp_path: Path) -> None:
    """Past the end, before the start, in the middle of a character of two units: nothing that an editor sends ends it."""
    spec = tmp_path / "a.reo"
    text = "# 😀😀\nparam n: int = 5\nparam m: int = n\n"
    editor.begin()
    this = editor.open(spec, text)
    editor.published()
    places = [(0, 3), (0, 99), (99, 0), (2**31 - 1, 2**31 - 1), (2, 15), (1, 2**31 - 1)]
    for line, character in places:
        place = {"textDocument": this, "position": {"line": line, "character": character}}
        for method in ("hover", "definition", "completion"):
            editor.ask(f"textDocument/{method}", place)
        editor.ask("textDocument/references", {**place, "context": {"includeDeclaration": True}})
        until = {"start": {"line": 0, "character": 0}, "end": {"line": line, "character": character}}
        editor.ask("textDocument/inlayHint", {"textDocument": this, "range": until})
        context = {"diagnostics": []}
        editor.ask("textDocument/codeAction", {"textDocument": this, "range": until, "context": context})
    # A change whose ends are in the middle of a character, and one far past the end.
    for version, (start, end) in enumerate((((0, 3), (0, 5)), ((77, 7), (99, 99))), start=2):
        broken = {
            "start": {"line": start[0], "character": start[1]},
            "end": {"line": end[0], "character": end[1]},
        }
        change = {"range": broken, "text": "x"}
        editor.send(
            "textDocument/didChange",
            {"textDocument": {**this, "version": version}, "contentChanges": [change]},
        )
        editor.ask("textDocument/documentSymbol", {"textDocument": this})
    whole = {"textDocument": {**this, "version": 9}, "contentChanges": [{"text": text}]}
    editor.send("textDocument/didChange", whole)
    here = {"textDocument": this, "position": {"line": 2, "character": 15}}
    assert "param" in editor.ask("textDocument/hover", here)["contents"]["value"]


def test_an_edit_is_told_to_the_file_and_to_those_that_import_it(editor: Editor, tmp_path: Path) -> None:
    """What an edit sends equals what a save sends of all files that are open."""
    editor.begin()
    texts = {
        "library": "param cost: number = 0.5\n",
        "near": "from .library import cost\nparam own: number = cost\n",
        "far": "from .near import own\nparam more: number = own\n",
        "alone": "param n: int = 5\nparam n: int = 6\n",
    }
    these = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.reo").write_text(text)
        these[name] = editor.open(tmp_path / f"{name}.reo", text)

    def sent() -> dict[str, Any]:
        """Return the findings that were sent since the last call, by file."""
        editor.ask("textDocument/documentSymbol", {"textDocument": these["alone"]})
        notices, editor.notices = editor.notices, []
        return {Path(each["params"]["uri"]).stem: each["params"]["diagnostics"] for each in notices}

    assert set(sent()) == set(texts)
    for name, told in (
        ("library", {"library", "near", "far"}),
        ("near", {"near", "far"}),
        ("alone", {"alone"}),
    ):
        changed = {"text": texts[name] + "param cost: number = 1\n"}
        this = {**these[name], "version": 2}
        editor.send("textDocument/didChange", {"textDocument": this, "contentChanges": [changed]})
        editor.notices.append(editor.read())
        after = sent()
        assert set(after) == told
        editor.send("textDocument/didSave", {"textDocument": these[name]})
        whole = sent()
        assert set(whole) == set(texts)
        assert after == {each: whole[each] for each in told}


@pytest.mark.slow
def test_a_workspace_of_2000_specs(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "library.reo").write_text("param cost: number = 0.5\n")
    for number in range(2000):
        used = "from .library import cost\nparam own: number = cost\n" if number in (7, 1999) else ""
        (tmp_path / f"s{number:04}.reo").write_text(f"{used}param n{number}: int = 5\n")
    editor.begin(rootUri=tmp_path.as_uri())
    this = editor.open(tmp_path / "library.reo", (tmp_path / "library.reo").read_text())
    assert editor.published()["diagnostics"] == []
    place = {"textDocument": this, "position": {"line": 0, "character": 7}}
    found = editor.ask("textDocument/references", {**place, "context": {"includeDeclaration": True}})
    assert [Path(each["uri"]).name for each in found] == [
        "library.reo",
        *["s0007.reo"] * 2,
        *["s1999.reo"] * 2,
    ]
    assert len(editor.ask("textDocument/rename", {**place, "newName": "price"})["changes"]) == 3


def test_an_editor_that_pulls_and_prepares(editor: Editor, tmp_path: Path) -> None:
    spec = tmp_path / "a.reo"
    text = (
        "budgets few = exp(from: 1K tokens, to: 32K tokens, n: 5)\nreward r { let unused = 1\n correct(y) }\n"
    )
    item = {"completionItem": {"snippetSupport": True}}
    told = {"textDocument": {"diagnostic": {}, "completion": item, "rename": {"prepareSupport": True}}}
    folders = [{"uri": tmp_path.as_uri(), "name": "here"}]
    assert editor.begin(told, workspaceFolders=folders)["renameProvider"] == {"prepareProvider": True}
    this = editor.open(spec, text)
    (found,) = editor.ask("textDocument/diagnostic", {"textDocument": this})["items"]
    assert (found["code"], found["tags"]) == ("W0201", [1])
    page = Path(found["codeDescription"]["href"].removeprefix("file://"))
    assert page.read_text().startswith("# ")
    assert page.name == "W0201.md"
    assert not [each for each in editor.notices if each["method"] == "textDocument/publishDiagnostics"]

    few = {"textDocument": this, "position": {"line": 0, "character": 9}}
    assert editor.ask("textDocument/prepareRename", few) == {
        "start": {"line": 0, "character": 8}, "end": {"line": 0, "character": 11},
    }  # fmt: skip
    editor.number += 1
    editor.send("textDocument/prepareRename", {**few, "position": {"line": 0, "character": 3}}, editor.number)
    refused = editor.read()
    assert "only names that a spec declares" in refused["error"]["message"]

    end = {"textDocument": this, "position": {"line": 3, "character": 0}}
    model = next(each for each in editor.ask("textDocument/completion", end) if each["label"] == "model")
    assert model["insertTextFormat"] == 2
    assert model["textEdit"]["newText"].startswith("model ${1:name} {\n  source = ${2:")
