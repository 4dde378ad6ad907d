// Start the language server for specs, and run commands of reodsl on the spec at hand or on its last run.
const fs = require("fs");
const path = require("path");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

// The command: the one of the settings, else the workspace's own environment, else the one on the path.
function command() {
  const set = vscode.workspace.getConfiguration("reodsl").get("path");
  if (set) return set;
  const program = process.platform === "win32" ? path.join("Scripts", "reodsl.exe") : path.join("bin", "reodsl");
  for (const folder of vscode.workspace.workspaceFolders || []) {
    const own = path.join(folder.uri.fsPath, ".venv", program);
    if (fs.existsSync(own)) return own;
  }
  return "reodsl";
}

async function start() {
  const server = { command: command(), args: ["lsp"] };
  client = new LanguageClient("reodsl", "reodsl", server, { documentSelector: [{ language: "reo" }] });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    vscode.window.showErrorMessage(
      `reodsl: \`${server.command} lsp\` does not start. Install it with \`pip install .\` in a checkout of reodsl, or set "reodsl.path". (${error})`
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running) await running.stop();
}

// Run a command on the spec at hand in a terminal: arguments are passed as they are, and no shell reads them.
async function run(name) {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.document.languageId !== "reo" || editor.document.uri.scheme !== "file") {
    vscode.window.showInformationMessage("reodsl: open a .reo file first.");
    return;
  }
  await editor.document.save();
  const file = editor.document.uri.fsPath;
  const words = [name];
  if (name === "report") {
    const named = /^(?:study|experiment)\s+([A-Za-z_]\w*)/gm;
    const found = [...editor.document.getText().matchAll(named)].map((each) => each[1]);
    if (!found.length) {
      vscode.window.showInformationMessage("reodsl: this file has no study or experiment of its own.");
      return;
    }
    words.push(found[found.length - 1]);
  } else if (name !== "view") words.push(file);
  const process_ = new vscode.ProcessExecution(command(), words, { cwd: path.dirname(file) });
  const task = new vscode.Task({ type: "reodsl", name }, vscode.TaskScope.Workspace, name, "reodsl", process_);
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Always, clear: true };
  await vscode.tasks.executeTask(task);
}

async function activate(context) {
  const register = (name, action) => context.subscriptions.push(vscode.commands.registerCommand(name, action));
  register("reodsl.check", () => run("check"));
  register("reodsl.plan", () => run("plan"));
  register("reodsl.run", () => run("run"));
  register("reodsl.report", () => run("report"));
  register("reodsl.view", () => run("view"));
  register("reodsl.restart", async () => {
    await stop();
    await start();
  });
  if (vscode.workspace.isTrusted) await start();
  else context.subscriptions.push(vscode.workspace.onDidGrantWorkspaceTrust(start));
}

module.exports = { activate, deactivate: stop };
