// Starts the debug adapter. Without this, VS Code shows nothing at all where it does not find `prismdbg`.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");

function isProgram(file) {
    try {
        fs.accessSync(file, fs.constants.X_OK);
        return fs.statSync(file).isFile();
    } catch {
        return false;
    }
}

// The file of a name in PATH, or of a path that may be relative to the workspace; undefined where there is none.
function find(command, workspace) {
    const names = command.includes("/") ? [""] : (process.env.PATH ?? "").split(path.delimiter).filter(Boolean);
    return names.map((folder) => path.resolve(workspace, folder, command)).find(isProgram);
}

function createDebugAdapterDescriptor(session) {
    const command = vscode.workspace.getConfiguration("prismdbg", session.workspaceFolder).get("path");
    const file = find(command, session.workspaceFolder?.uri.fsPath ?? "");
    if (file === undefined) {
        const place = command.includes("/") ? "no such program" : "not in the PATH of VS Code";
        throw new Error(`${command}: ${place}. Set prismdbg.path in the settings to the file that runs prismdbg.`);
    }
    return new vscode.DebugAdapterExecutable(file, ["dap"]);
}

exports.activate = (context) => {
    const factory = { createDebugAdapterDescriptor };
    context.subscriptions.push(vscode.debug.registerDebugAdapterDescriptorFactory("prismdbg", factory));
};
