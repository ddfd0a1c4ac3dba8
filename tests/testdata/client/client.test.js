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

test("S3-72: the module has exactly five methods, all asynchronous", () => {
  const sessions = createSessions(options);
  assert.deepEqual(Object.keys(sessions).sort(), ["deleteProjectSessions", "deleteSession", "loadAll", "saveManifest", "saveSession"]);
  for (const method of Object.values(sessions)) assert.equal(method.constructor.name, "AsyncFunction");
});

test("S3-71: an application loads, saves after each message, and deletes", async () => {
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

test("S3-07, S3-08: calls need not wait, have their order, and their content of then", async () => {
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

test("S3-08: one that fails fails alone", async () => {
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

test("S3-21: a save that is based on an older state is refused, whoever made the newer one", async () => {
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

test("S0-54 to S0-61: one method for each route of the snapshots", async () => {
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

test("S0-46, S0-47: notifications are the live ones after a restore", async () => {
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
