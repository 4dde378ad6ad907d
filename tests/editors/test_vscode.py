"""The VS Code extension: its manifest, its snippets, and its code against stand-ins for VS Code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import reodsl
from reodsl.cli.main import main

HERE = Path(__file__).resolve().parents[2] / "editors" / "vscode"
MANIFEST = json.loads((HERE / "package.json").read_text())
SNIPPETS = json.loads((HERE / "snippets" / "reo.json").read_text())
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")


def files(value: Any) -> list[str]:
    """The files that a manifest names."""
    if isinstance(value, dict):
        return [path for each in value.values() for path in files(each)]
    if isinstance(value, list):
        return [path for each in value for path in files(each)]
    return [value] if isinstance(value, str) and value.startswith("./") else []


def test_what_the_manifest_names_is_there() -> None:
    named = files(MANIFEST)
    assert len(named) == 4
    for path in (*named, MANIFEST["icon"]):
        assert (HERE / path).is_file()
    picture = (HERE / MANIFEST["icon"]).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert picture[16:24] == bytes((0, 0, 0, 128, 0, 0, 0, 128))
    grammar = json.loads((HERE / MANIFEST["contributes"]["grammars"][0]["path"]).read_text())
    assert MANIFEST["contributes"]["grammars"][0]["scopeName"] == grammar["scopeName"]
    assert MANIFEST["version"] == reodsl.__version__


def test_every_command_of_the_manifest_is_registered() -> None:
    code = (HERE / "extension.js").read_text()
    registered = set(re.findall(r'register\("([\w.]+)"', code))
    assert registered == {each["command"] for each in MANIFEST["contributes"]["commands"]}
    menus = [each["command"] for menu in MANIFEST["contributes"]["menus"].values() for each in menu]
    assert set(menus) <= registered


def plain(body: list[str]) -> str:
    """A snippet with the words that stand in it before anything is typed."""
    return re.sub(r"\$\{\d+:([^}]*)\}", r"\1", "\n".join(body))


def test_the_snippets_together_are_a_sound_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    head = "from std.miniature import overthinker, chain_train, chain_suite, chain_forcing\n"
    Path("all.reo").write_text(head + "\n\n".join(plain(each["body"]) for each in SNIPPETS.values()) + "\n")
    assert main(["check", "all.reo"]) == 0, capsys.readouterr().err
    prefixes = [each["prefix"] for each in SNIPPETS.values()]
    assert len(set(prefixes)) == len(prefixes)


STAND_INS = """
const Module = require("module");
const calls = [], commands = {};
const document = {languageId: "reo", uri: {scheme: "file", fsPath: process.argv[3]}, save: async () => calls.push("save"),
  getText: () => "experiment a = ppo { }\\nstudy final { }"};
const vscode = {
  workspace: {getConfiguration: () => ({get: () => process.argv[4] || ""}),
              workspaceFolders: [{uri: {fsPath: process.argv[2]}}],
              isTrusted: true, onDidGrantWorkspaceTrust: () => {}},
  window: {activeTextEditor: {document},
           showErrorMessage: (m) => calls.push(m), showInformationMessage: (m) => calls.push(m)},
  commands: {registerCommand: (name, action) => { commands[name] = action; return {}; }},
  ProcessExecution: class { constructor(p, a, o) { Object.assign(this, {p, a, o}); } },
  Task: class { constructor(d, s, n, f, e) { this.execution = e; } },
  TaskScope: {Workspace: 1}, TaskRevealKind: {Always: 1},
  tasks: {executeTask: async (task) => calls.push([task.execution.p, ...task.execution.a, task.execution.o.cwd])},
};
class LanguageClient {
  constructor(id, name, server, client) {
    calls.push([server.command, ...server.args, client.documentSelector[0].language]);
  }
  async start() { calls.push("start"); if (process.argv[5]) throw new Error("ENOENT"); }
  async stop() { calls.push("stop"); }
}
const load = Module._load;
Module._load = (name, ...rest) =>
  name === "vscode" ? vscode : name.startsWith("vscode-languageclient") ? {LanguageClient} : load(name, ...rest);
(async () => {
  const {activate, deactivate} = require(process.argv[1]);
  await activate({subscriptions: []});
  for (const name of ["plan", "check", "run", "report", "view", "restart"]) await commands[`reodsl.${name}`]();
  document.languageId = "python";
  await commands["reodsl.plan"]();
  await deactivate();
  console.log(JSON.stringify(calls));
})();
"""


def activated(folder: Path, *more: str) -> list[Any]:
    """What the extension asks VS Code for as it starts, its commands are called, and it stops."""
    done = subprocess.run(
        ["node", "-e", STAND_INS, str(HERE / "extension.js"), str(folder), str(folder / "a b.reo"), *more],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@needs_node
def test_it_starts_the_workspaces_own_server_and_runs_its_commands(tmp_path: Path) -> None:
    own = tmp_path / ".venv" / "bin" / "reodsl"
    own.parent.mkdir(parents=True)
    own.touch()
    spec, cwd = str(tmp_path / "a b.reo"), str(tmp_path)
    assert activated(tmp_path) == [
        [str(own), "lsp", "reo"],
        "start",
        "save",
        [str(own), "plan", spec, cwd],
        "save",
        [str(own), "check", spec, cwd],
        "save",
        [str(own), "run", spec, cwd],
        "save",
        [str(own), "report", "final", cwd],
        "save",
        [str(own), "view", cwd],
        "stop",
        [str(own), "lsp", "reo"],
        "start",
        "reodsl: open a .reo file first.",
        "stop",
    ]


@needs_node
def test_the_setting_names_another_command_and_one_that_does_not_start_is_told(tmp_path: Path) -> None:
    assert activated(tmp_path)[0] == ["reodsl", "lsp", "reo"]
    told = activated(tmp_path, "/opt/reodsl", "fails")
    assert told[0] == ["/opt/reodsl", "lsp", "reo"]
    assert (
        "`/opt/reodsl lsp` does not start. Install it with `pip install .` in a checkout of reodsl" in told[2]
    )
