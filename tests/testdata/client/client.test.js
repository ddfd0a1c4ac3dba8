// Tests of the client module against a gateway, whose address and token are in
// SESS_URL and SESS_TOKEN.
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { AgentBackend, SessError, createSessions } from "./client.js";

const baseUrl = process.env.SESS_URL;
const token = process.env.SESS_TOKEN;
const options = { baseUrl, token };

const message = (id, role, content) => ({
  id, role, content, status: "complete", eventIds: [], artifactIds: [], uploads: [], createdAt: 1, updatedAt: 2,
});
const session = (id, projectId, ...contents) => ({
  id, projectId, title: `About ${id}`, cwd: "/work", status: "idle", activities: [], artifacts: [], createdAt: 1, updatedAt: 2,
  messages: contents.map((content, i) => message(`m${i}`, i % 2 ? "agent" : "user", content)),
});
const contents = (s) => s.messages.map((m) => m.content);
const find = (all, id) => all.sessions.find((s) => s.id === id);
const refused = (code, status) => (error) => {
  assert.ok(error instanceof SessError, error);
  assert.equal(error.code, code);
  assert.equal(error.status, status);
  assert.ok(error.text.length > 0 && error.message === error.text && typeof error.hint === "string");
  return true;
};

test("the module has exactly five methods, all asynchronous", () => {
  const sessions = createSessions(options);
  assert.deepEqual(Object.keys(sessions).sort(), ["deleteProjectSessions", "deleteSession", "loadAll", "saveManifest", "saveSession"]);
  for (const method of Object.values(sessions)) assert.equal(method.constructor.name, "AsyncFunction");
});

test("an application loads, saves after each message, and deletes", async () => {
  const sessions = createSessions(options);
  const { manifest } = await sessions.loadAll();
  assert.equal(manifest.version, 1);
  const s = session("app-1", "app");
  for (const [i, text] of ["Hello", "Hi <there> & hello", "Bye 😀"].entries()) {
    s.messages.push(message(`m${i}`, i % 2 ? "agent" : "user", text));
    await sessions.saveSession(s);
  }
  await sessions.saveSession(session("app-2", "app", "x"));
  await sessions.saveManifest({ lastProjectId: "app", lastSessionId: "app-1" });

  const all = await createSessions(options).loadAll();
  const { revision, updatedAt, ...loaded } = find(all, "app-1");
  assert.deepEqual(loaded, (({ updatedAt, ...rest }) => rest)(s));
  assert.equal(revision, 3);
  assert.deepEqual(all.manifest, { version: 1, lastProjectId: "app", lastSessionId: "app-1" });

  assert.equal(await sessions.deleteSession({ projectId: "app", sessionId: "app-2" }), undefined);
  await assert.rejects(sessions.saveSession(session("app-2", "app", "x")), refused("not_found", 404));
  assert.equal(await sessions.deleteProjectSessions({ projectId: "app" }), undefined);
  assert.equal(await sessions.saveManifest({}), undefined);
  const rest = await sessions.loadAll();
  assert.equal(find(rest, "app-1") ?? find(rest, "app-2"), undefined);
  assert.deepEqual(rest.manifest, { version: 1 });
});

test("calls need not wait, have their order, and their content of then", async () => {
  const sent = [];
  const slow = async (url, request) => {
    sent.push(`${request.method} ${new URL(url).pathname}`);
    if (sent.length === 1) await new Promise((resolve) => setTimeout(resolve, 50)); // a first one that is late
    return fetch(url, request);
  };
  const sessions = createSessions({ ...options, fetch: slow });
  const s = session("fire", "forget", "one");
  const saves = [sessions.saveSession(s)];
  for (let i = 0; i < 20; i++) {
    s.messages[0].content += ".";
    saves.push(sessions.saveSession(s));
  }
  s.messages[0].content = "never saved";
  const other = sessions.saveSession(session("beside", "forget", "x"));
  const gone = sessions.deleteProjectSessions({ projectId: "forget" });
  const late = sessions.saveSession(session("after", "forget", "y"));
  const all = sessions.loadAll();
  assert.deepEqual(await Promise.all(saves), Array.from({ length: 21 }, (_, i) => i + 1));
  await other;
  await gone;
  await late;
  const found = await all;
  assert.equal(find(found, "fire"), undefined);
  assert.deepEqual(contents(find(found, "after")), ["y"]);
  assert.equal(sent.indexOf("PUT /sessions/beside"), 1, "one session waits for another");
  assert.ok(sent.indexOf("DELETE /projects/forget/sessions") > sent.lastIndexOf("PUT /sessions/fire"));
  assert.ok(sent.indexOf("PUT /sessions/after") > sent.indexOf("DELETE /projects/forget/sessions"));
});

test("one that fails fails alone", async () => {
  const sessions = createSessions(options);
  const bad = { ...session("mixed", "fail", "x"), messages: "none" };
  const done = await Promise.allSettled([
    sessions.saveSession(session("mixed", "fail", "one")),
    sessions.saveSession(bad),
    sessions.saveSession(session("mixed", "fail", "two")),
    sessions.saveSession({ projectId: "fail" }),
    sessions.deleteSession({ projectId: "fail", sessionId: "nosuch" }),
    sessions.saveManifest({ lastProjectId: "../x" }),
    sessions.saveManifest({ lastProjectId: "fail" }),
  ]);
  assert.deepEqual(done.map((d) => d.reason?.code), [undefined, "usage", undefined, "usage", "not_found", "invalid_name", undefined]);
  const all = await sessions.loadAll();
  assert.deepEqual(contents(find(all, "mixed")), ["two"]);
  assert.equal(all.manifest.lastProjectId, "fail");
});

test("a save that is based on an older state is refused, whoever made the newer one", async () => {
  const [one, two] = [createSessions(options), createSessions(options)];
  await one.saveSession(session("shared", "two", "first"));
  const seen = find(await two.loadAll(), "shared");
  const mine = { ...seen, messages: [...seen.messages, message("m-two", "user", "of two")] };
  assert.equal(await two.saveSession(mine), 2);
  assert.equal(await two.saveSession({ ...mine, title: "Renamed" }), 3); // the copy still says 1
  const edit = session("shared", "two", "changed");
  await assert.rejects(one.saveSession(edit), refused("conflict", 409));
  const again = find(await one.loadAll(), "shared");
  assert.deepEqual(contents(again), ["first", "of two"]);
  assert.equal(again.title, "Renamed");
  // An application that drops the revision is taken by what it was shown last.
  const { revision, ...plain } = again;
  plain.messages = plain.messages.slice(0, 1);
  assert.equal(await one.saveSession(plain), 4);
  assert.deepEqual(contents(find(await two.loadAll(), "shared")), ["first"]);
});

test("errors say what is wrong, and where", async () => {
  await assert.rejects(createSessions({ baseUrl, token: "wrong" }).loadAll(), refused("denied", 401));
  await assert.rejects(createSessions({ baseUrl: "http://127.0.0.1:1" }).loadAll(), refused("unavailable", 0));
  assert.throws(() => createSessions(), refused("usage", 0));
  const backend = new AgentBackend(options);
  const ended = AbortSignal.abort(new Error("enough"));
  await assert.rejects(backend.listSnapshots("x", { signal: ended }), /enough/);
  const cut = async (url, request) => {
    await fetch(url, request);
    return new Response("{", { status: 200 });
  };
  await assert.rejects(createSessions({ ...options, fetch: cut }).loadAll(), refused("unavailable", 0));
  const odd = async () => new Response("<h1>no</h1>", { status: 502 });
  await assert.rejects(createSessions({ ...options, fetch: odd }).loadAll(), refused("internal", 502));
});

test("one method for each route of the snapshots", async () => {
  const sessions = createSessions(options);
  await sessions.saveSession(session("snap", "default", "one", "two"));
  await sessions.saveSession(session("other", "default", "three"));
  const backend = new AgentBackend(options);
  const made = await backend.createSnapshot("snap", { reason: "Before we get bold 😀" });
  assert.equal(made.data.reason, "Before we get bold 😀");
  assert.ok(made.text.includes(made.data.name));
  const named = await backend.createSnapshot("snap", { name: "v1" });
  assert.equal(named.data.name, "v1");
  const list = await backend.listSnapshots("snap");
  assert.deepEqual(list.map((s) => s.name), ["v1", made.data.name]);
  assert.equal((await backend.listSnapshots("snap", { limit: 1 })).length, 1);
  assert.deepEqual(await backend.listSnapshots("other"), []);
  await assert.rejects(backend.createSnapshot("snap", { name: "v1" }), refused("exists", 409));

  assert.equal(await backend.selectedSnapshot("snap"), null);
  await backend.selectSnapshot("snap", "v1");
  assert.equal((await backend.selectedSnapshot("snap")).name, "v1");
  await assert.rejects(sessions.saveSession(session("snap", "default", "one", "two", "three")), refused("readonly", 409));
  await backend.clearSelectedSnapshot("snap");
  assert.equal(await backend.selectedSnapshot("snap"), null);
  await assert.rejects(backend.selectSnapshot("other", "v1"), refused("not_found", 404));

  const before = find(await sessions.loadAll(), "snap");
  await sessions.saveSession({ ...before, messages: [...before.messages, message("m9", "user", "later")] });
  await backend.restoreSnapshot("snap", "v1");
  assert.deepEqual(contents(find(await sessions.loadAll(), "snap")), ["one", "two"]);
  const reasons = (await backend.listSnapshots("snap")).map((s) => s.reason);
  assert.ok(reasons.includes("before restore"), String(reasons));

  await backend.deleteSnapshot("snap", "v1");
  await assert.rejects(backend.deleteSnapshot("snap", "v1"), refused("not_found", 404));
  await assert.rejects(backend.restoreSnapshot("other", made.data.name), refused("not_found", 404));
});

test("notifications are the live ones after a restore", async () => {
  const sessions = createSessions(options);
  await sessions.saveSession(session("told", "default", "one"));
  const backend = new AgentBackend(options);
  const { data: first } = await backend.addNotification("told", { text: "Exporting", id: "e1", status: "running" });
  assert.equal(first.id, "e1");
  await backend.createSnapshot("told", { name: "told-1" });
  await sessions.saveSession(session("told", "default", "one", "two"));
  await backend.addNotification("told", { text: "Exported", id: "e1" });
  await backend.addNotification("told", { text: "Compacted", kind: "compaction" });
  await backend.acknowledgeNotifications("told", ["e1"]);
  const before = await backend.listNotifications("told");
  assert.deepEqual([before.operations.map((n) => n.text), before.acknowledged.map((n) => n.text)], [["Compacted"], ["Exported"]]);
  await backend.restoreSnapshot("told", "told-1");
  assert.deepEqual(contents(find(await sessions.loadAll(), "told")), ["one"]);
  assert.deepEqual(await backend.listNotifications("told"), before);
  await assert.rejects(backend.addNotification("told", { text: "" }), refused("usage", 400));
  await assert.rejects(backend.acknowledgeNotifications("told", ["nosuch"]), refused("not_found", 404));
  await assert.rejects(backend.listNotifications("nosuch"), refused("not_found", 404));
});

test("a conversation: what comes of a message comes as it comes", async () => {
  const backend = new AgentBackend(options);
  const made = await backend.createSession({ id: "talk", title: "Talk" });
  assert.deepEqual([made.id, made.title, made.messages, made.running, made.selected], ["talk", "Talk", 0, false, null]);
  const kinds = [];
  let text = "";
  for await (const event of backend.send("talk", "Guten Tag 😀")) {
    if (kinds.at(-1) !== event.kind) kinds.push(event.kind);
    assert.equal(typeof event.id, "string");
    if (event.kind === "text_delta") text += event.data.text;
  }
  assert.deepEqual(kinds, ["turn_start", "text_delta", "usage", "run_finished", "turn_end"]);
  assert.match(text, /Guten Tag 😀/);
  const page = await backend.messages("talk");
  assert.deepEqual(page.messages.map((m) => m.content), ["Guten Tag 😀", text]);
  assert.deepEqual([page.first, page.end, page.total, page.readonly], [0, 2, 2, false]);
  const answer = await backend.ask("talk", "And again", { expectedRevision: page.revision });
  assert.equal(answer.status, "complete");
  assert.equal(answer.message.role, "agent");
  assert.deepEqual((await backend.messages("talk", { limit: 1 })).messages.map((m) => m.id), [answer.message.id]);
  await assert.rejects(backend.ask("talk", "Too late", { expectedRevision: page.revision }), refused("conflict", 409));
  await assert.rejects(backend.send("talk", "Too late", { expectedRevision: page.revision }).next(), refused("conflict", 409));
  await assert.rejects(backend.getSession("nosuch"), refused("not_found", 404));
  const command = await backend.ask("talk", "/sess save talk-1");
  assert.equal(command.answer.data.name, "talk-1");
});

test("a conversation: others follow it, end its turn, and are asked", async (t) => {
  const backend = new AgentBackend(options);
  await backend.createSession({ id: "watched" });
  const stop = new AbortController();
  t.after(() => stop.abort(new Error("enough"))); // also where the test fails
  const heard = [];
  let wanted = { kind: "", seen: () => {} };
  const until = (kind) => new Promise((resolve) => (wanted = { kind, seen: resolve }));
  const following = (async () => {
    for await (const event of backend.follow("watched", { signal: stop.signal })) {
      heard.push(event);
      if (event.kind === wanted.kind) wanted.seen(event);
    }
  })();
  const left = assert.rejects(following, /enough/);

  const delta = until("text_delta");
  const slow = backend.send("watched", "slow 100000 5ms");
  await delta;
  assert.equal((await backend.getSession("watched")).running, true);
  await assert.rejects(backend.ask("watched", "Me too"), refused("busy", 409));
  assert.equal((await backend.cancel("watched")).cancelled, true);
  const kinds = [];
  for await (const event of slow) kinds.push(event.kind);
  assert.ok(kinds.includes("run_cancelled") && kinds.includes("turn_end"), String(kinds));
  assert.equal((await backend.cancel("watched")).cancelled, false);

  // Who sends need not be the one who is asked.
  await backend.createSnapshot("watched", { name: "watched-1" });
  const asked = until("approval_request");
  const answer = backend.ask("watched", 'call sess_manage {"action":"delete","name":"watched-1","confirm":true}');
  const { data } = await asked;
  assert.equal((await backend.getSession("watched")).approval.callId, data.id);
  await backend.approve("watched", data.id, false);
  assert.equal((await answer).status, "complete");
  assert.deepEqual((await backend.listSnapshots("watched")).map((s) => s.name), ["watched-1"]);
  await assert.rejects(backend.approve("watched", data.id, true), refused("not_found", 404));

  // B has an older state once A has brought another one back.
  const replaced = until("session_replaced");
  await backend.restoreSnapshot("watched", "watched-1");
  await replaced;
  stop.abort(new Error("enough"));
  await left;
  const ids = heard.map((event) => event.id);
  assert.equal(new Set(ids).size, ids.length);
  const again = backend.follow("watched", { after: heard.at(-2).id });
  assert.equal((await again.next()).value.id, heard.at(-1).id);
  await again.return();
});

test("a stream that breaks off is told of, and what follows goes on", async () => {
  const parts = (...texts) => async (_, { signal }) => {
    const encoder = new TextEncoder();
    const queue = [...texts];
    return new Response(new ReadableStream({
      pull(controller) {
        if (signal.aborted) return controller.error(signal.reason);
        const text = queue.shift();
        if (text instanceof Error) controller.error(text);
        else if (text === undefined) controller.close();
        else controller.enqueue(encoder.encode(text));
      },
    }), { status: 200 });
  };
  const take = async (events, into = []) => {
    for await (const event of events) into.push(event);
    return into;
  };
  const start = 'id: a-1\r\nevent: turn_start\r\ndata: {"n":1}\r\n\r\n';
  const end = "id: a-2\nevent: turn_end\ndata: {\ndata:}\n\n";
  for (const split of [[...start + end], [start + end], [start + ": alive\n\n", end]]) {
    const backend = new AgentBackend({ ...options, fetch: parts(...split) });
    assert.deepEqual(await take(backend.send("x", "y")), [{ id: "a-1", kind: "turn_start", data: { n: 1 } }, { id: "a-2", kind: "turn_end", data: {} }]);
  }
  for (const broken of [[start], [start, new TypeError("cut")], [start, "event: turn_end\ndata: {}\n"]]) {
    const got = [];
    await assert.rejects(take(new AgentBackend({ ...options, fetch: parts(...broken) }).send("x", "y"), got), refused("unavailable", 0));
    assert.deepEqual(got.map((event) => event.kind), ["turn_start"]);
  }

  const asked = [];
  const answers = [parts(start, new TypeError("cut")), () => Promise.reject(new TypeError("down")), parts(end), parts()];
  const backend = new AgentBackend({ ...options, fetch: (url, request) => {
    asked.push(request.headers["Last-Event-ID"]);
    return (answers.shift() ?? parts())(url, request);
  } });
  const kinds = [];
  for await (const event of backend.follow("x")) {
    kinds.push(event.kind);
    if (event.kind === "turn_end") break;
  }
  assert.deepEqual(kinds, ["turn_start", "reconnected", "reconnected", "turn_end"]);
  assert.deepEqual(asked, [undefined, "a-1", "a-1"]);
  await assert.rejects(new AgentBackend({ baseUrl: "http://127.0.0.1:1" }).follow("x").next(), refused("unavailable", 0));
});

test("JSON-RPC over a WebSocket: calls, events, and the end of both", async () => {
  const backend = new AgentBackend({ ...options, WebSocket });
  const status = await backend.rpc("gateway.status");
  assert.equal(status.state, "running");
  assert.ok(Array.isArray(await backend.invoke("sess", "list", { limit: 1 })));
  await assert.rejects(backend.rpc("nope"), refused("usage", 0));
  await assert.rejects(backend.invoke("sess", "view", { name: "nosuch" }), (error) => refused("not_found", 0)(error) && error.text.includes(error.hint));

  const stop = new AbortController();
  const heard = [];
  const following = (async () => {
    for await (const event of backend.events({ kinds: ["sessions"] }, { signal: stop.signal })) {
      heard.push(`${event.kind} ${event.verb} ${event.session}`);
      if (heard.length === 2) stop.abort(new Error("enough"));
    }
  })();
  const sessions = createSessions(options);
  // The subscription has no moment of its own that a test could wait for: more
  // changes come until both were heard.
  const done = following.then(() => true, (error) => error.message);
  for (let i = 0; heard.length < 2; i++) await sessions.saveSession(session(`heard-${i}`, "events", "x"));
  assert.equal(await done, "enough");
  assert.match(heard[0], /^sessions\.changed saveSession heard-\d+$/);

  const cut = (async () => {
    for await (const event of backend.events()) void event;
  })();
  const left = assert.rejects(cut, refused("unavailable", 0));
  await backend.rpc("gateway.version"); // behind the subscription
  await backend.close();
  await left;
  assert.equal((await backend.rpc("gateway.status")).state, "running"); // by another connection
  await backend.close();

  const denied = new AgentBackend({ baseUrl, token: "wrong", WebSocket });
  await assert.rejects(denied.rpc("gateway.status"), refused("unavailable", 0));
  const away = new AgentBackend({ baseUrl: "http://127.0.0.1:1", token, WebSocket });
  await assert.rejects(away.rpc("gateway.status"), refused("unavailable", 0));
});
