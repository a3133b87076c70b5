// A session of Microsoft's DebugClient with `PRISMDBG dap`, as an editor has it: forwards to a NaN, and back.
// node session.js PRISMDBG CAPSULE PROGRAM LINE: its last line is what the client saw, as JSON.
"use strict";

const { once } = require("node:events");
const { DebugClient } = require("@vscode/debugadapter-testsupport");

const [prismdbg, capsule, program, line] = process.argv.slice(2);
const THREAD = { threadId: 1 };

const client = new DebugClient(prismdbg, "dap", "prismdbg", undefined, true);
const saw = { printed: [] };
client.on("output", ({ body }) => saw.printed.push(body.output));

async function stopped(request) {
    const [[event]] = await Promise.all([once(client, "stopped"), request]);
    return event.body;
}

async function evaluated(expression, frameId) {
    return (await client.evaluateRequest({ expression, frameId, context: "watch" })).body.result;
}

// What a user looks at where the rank stands. `sent`: the bytes of the number that the collective sends.
async function look() {
    const { stackFrames } = (await client.stackTraceRequest(THREAD)).body;
    const frame = stackFrames.find((each) => each.presentationHint !== "subtle");
    const { scopes } = (await client.scopesRequest({ frameId: frame.id })).body;
    const { variablesReference } = scopes.find((each) => each.name === "Tensors");
    const { variables } = (await client.variablesRequest({ variablesReference })).body;
    const { memoryReference } = variables.find((each) => each.name === "input[0]");
    return {
        path: frame.source.path,
        line: frame.line,
        moment: await evaluated("moment", frame.id),
        isNan: await evaluated("nan(input[0])", frame.id),
        sent: (await client.customRequest("readMemory", { memoryReference, count: 4 })).body.data,
    };
}

async function setAtLine(wanted) {
    const breakpoints = wanted.map((each) => ({ line: Number(line), ...each }));
    return (await client.setBreakpointsRequest({ source: { path: program }, breakpoints })).body.breakpoints;
}

async function watch(name) {
    const { dataId } = (await client.dataBreakpointInfoRequest({ name })).body;
    return (await client.setDataBreakpointsRequest({ breakpoints: [{ dataId }] })).body.breakpoints;
}

async function session() {
    await client.start();
    await Promise.all([once(client, "initialized"), client.launch({ capsule, runtime: "local" })]);
    saw.breakpoints = await setAtLine([
        { condition: "step == 2" },
        { condition: "step == 1", logMessage: "at {moment}: {op}" },
    ]);
    saw.entry = await stopped(client.configurationDoneRequest());
    saw.breakpoint = { ...(await stopped(client.continueRequest(THREAD))), ...(await look()) };
    saw.watchpoints = await watch("nan(input[0])");
    saw.watchpoint = { ...(await stopped(client.continueRequest(THREAD))), ...(await look()) };
    saw.stepBack = { ...(await stopped(client.stepBackRequest(THREAD))), ...(await look()) };
    saw.reverseContinue = { ...(await stopped(client.reverseContinueRequest(THREAD))), ...(await look()) };
    await client.disconnectRequest();
    console.log(JSON.stringify(saw));
}

session(); // node itself ends when the adapter has ended, and fails where a promise does
