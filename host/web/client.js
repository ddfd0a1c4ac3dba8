// The client of a sess gateway, for pages and for Node 18 or newer. It needs
// nothing else. What everything takes and gives is written in client.d.ts.

/** What the gateway, or the way to it, objects to. */
export class SessError extends Error {
  constructor({ code, text, hint = "", status = 0, details = {} }) {
    super(text);
    this.name = "SessError";
    this.code = code;
    this.text = text;
    this.hint = hint;
    this.status = status;
    this.details = details;
  }
}

const usage = (text) => new SessError({ code: "usage", text });
const unavailable = (text) => new SessError({ code: "unavailable", text });

/** Sends requests to one gateway. */
class Gateway {
  constructor({ baseUrl = globalThis.location?.origin, token = "", fetch = globalThis.fetch } = {}) {
    if (!baseUrl) throw usage("baseUrl is missing: give the gateway's address, such as http://127.0.0.1:7777");
    this.baseUrl = String(baseUrl).replace(/\/+$/, "");
    this.token = token;
    this.fetch = fetch;
  }

  /** Answers with the response, once that is a good one. */
  async send(method, path, { query = {}, body, headers = {}, signal, accept = "application/json" } = {}) {
    const fields = Object.entries(query).filter(([, value]) => value !== undefined);
    const url = this.baseUrl + path + (fields.length ? "?" + new URLSearchParams(fields.map(([k, v]) => [k, String(v)])) : "");
    const request = { method, signal, headers: { Accept: accept, ...headers } };
    if (this.token) request.headers.Authorization = `Bearer ${this.token}`;
    if (body !== undefined) {
      request.body = typeof body === "string" ? body : JSON.stringify(body);
      request.headers["Content-Type"] = "application/json";
    }
    let response;
    try {
      response = await this.fetch.call(globalThis, url, request);
    } catch (cause) {
      if (signal?.aborted) throw cause;
      throw unreachable(this.baseUrl, cause);
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }

  /** Answers with the JSON of the response. */
  async json(method, path, options = {}) {
    const response = await this.send(method, path, options);
    try {
      return await response.json();
    } catch (cause) {
      if (options.signal?.aborted) throw cause;
      throw Object.assign(unavailable(`the answer of ${method} ${path} did not arrive whole; look whether it was done before you try again`), { cause });
    }
  }
}

function unreachable(where, cause) {
  return Object.assign(unavailable(`cannot reach the gateway at ${where}: ${cause?.cause?.message ?? cause?.message ?? cause}`), { cause });
}

/** Reads what a gateway says of a request that failed. */
async function refusal(response) {
  const status = response.status;
  const said = await response.json().catch(() => undefined);
  if (typeof said?.code === "string") return new SessError({ ...said, text: said.text ?? said.error ?? said.code, status });
  return new SessError({ code: "internal", text: `the gateway answered with status ${status}`, status });
}

const segment = (id, what) => {
  if (typeof id !== "string" || id === "") throw usage(`${what} is missing`);
  return encodeURIComponent(id);
};

/**
 * The five methods that keep sessions. Calls need not wait for each other: those
 * about one session happen in the order in which they were made, with the content
 * that the session had then, and one that fails fails alone.
 */
export function createSessions(options) {
  const gateway = new Gateway(options);
  const pending = new Set(); // what was asked for and has not come to its end
  const known = new Map(); // by session: what was told of its revisions

  // A scope is {} for everything, or has a project, with or without an id, or is
  // the manifest. Two scopes that overlap are served one after the other.
  const overlap = (a, b) => {
    if (a.all || b.all) return true;
    if (a.manifest || b.manifest) return a.manifest === b.manifest;
    return a.project === b.project && (a.id === undefined || b.id === undefined || a.id === b.id);
  };
  const queued = (scope, run) => {
    const before = [...pending].filter((p) => overlap(p.scope, scope)).map((p) => p.done);
    const entry = { scope };
    const result = Promise.all(before).then(run);
    entry.done = result.then(() => {}, () => {}).then(() => pending.delete(entry));
    pending.add(entry);
    return result;
  };
  const about = (projectId, id) => {
    const key = JSON.stringify([projectId, id]);
    if (!known.has(key)) known.set(key, { latest: undefined, follows: new Map() });
    return known.get(key);
  };

  return Object.freeze({
    async loadAll() {
      return queued({ all: true }, async () => {
        const all = await gateway.json("GET", "/sessions");
        for (const session of all.sessions) about(session.projectId, session.id).latest = session.revision;
        return all;
      });
    },

    async saveSession(session) {
      const { id, projectId, revision } = session ?? {};
      const path = `/sessions/${segment(id, "id")}`;
      segment(projectId, "projectId");
      const body = JSON.stringify({ ...session, revision: undefined });
      return queued({ project: projectId, id }, async () => {
        // A session that was loaded says which revision it is; what was saved of it
        // since then is newer, and known here.
        const told = about(projectId, id);
        const base = revision === undefined ? told.latest : (told.follows.get(revision) ?? revision);
        const headers = base === undefined ? {} : { "If-Match": `"${base}"` };
        const saved = await gateway.json("PUT", path, { body, headers });
        if (revision !== undefined) told.follows.set(revision, saved.revision);
        told.latest = saved.revision;
        return saved.revision;
      });
    },

    async deleteSession({ projectId, sessionId } = {}) {
      const path = `/sessions/${segment(sessionId, "sessionId")}`;
      segment(projectId, "projectId");
      return queued({ project: projectId, id: sessionId }, async () => {
        await gateway.json("DELETE", path, { query: { project: projectId } });
      });
    },

    async deleteProjectSessions({ projectId } = {}) {
      const path = `/projects/${segment(projectId, "projectId")}/sessions`;
      return queued({ project: projectId }, async () => {
        await gateway.json("DELETE", path);
      });
    },

    async saveManifest({ lastProjectId, lastSessionId } = {}) {
      const body = JSON.stringify({ lastProjectId, lastSessionId });
      return queued({ manifest: true }, async () => {
        await gateway.json("PUT", "/sessions/manifest", { body });
      });
    },
  });
}

/** Everything else that a gateway can do. */
export class AgentBackend {
  #gateway;
  #webSocket;
  #project;
  #connection; // a promise of the one that rpc and events share

  constructor(options = {}) {
    this.#gateway = new Gateway(options);
    this.#webSocket = options.WebSocket ?? globalThis.WebSocket;
    this.#project = options.project;
  }

  #session(sessionId, rest = "") {
    return `/sessions/${segment(sessionId, "sessionId")}${rest}`;
  }

  #snapshot(sessionId, snapshotId, rest = "") {
    return this.#session(sessionId, `/snapshots/${segment(snapshotId, "snapshotId")}${rest}`);
  }

  // The fields of a request: for GET and DELETE they stand in the query.
  #ask(method, path, { signal, project = this.#project, ...fields } = {}) {
    const said = { ...fields, project };
    return this.#gateway.json(method, path, method === "GET" || method === "DELETE" ? { query: said, signal } : { body: said, signal });
  }

  // The snapshots of a session.

  async listSnapshots(sessionId, options) {
    return this.#ask("GET", this.#session(sessionId, "/snapshots"), options);
  }

  async createSnapshot(sessionId, options) {
    return this.#ask("POST", this.#session(sessionId, "/snapshots"), options);
  }

  async selectedSnapshot(sessionId, options) {
    return this.#ask("GET", this.#session(sessionId, "/snapshots/selected"), options);
  }

  async selectSnapshot(sessionId, snapshotId, options) {
    return this.#ask("POST", this.#snapshot(sessionId, snapshotId, "/select"), options);
  }

  async clearSelectedSnapshot(sessionId, options) {
    return this.#ask("POST", this.#session(sessionId, "/snapshots/selected/clear"), options);
  }

  async restoreSnapshot(sessionId, snapshotId, options) {
    return this.#ask("POST", this.#snapshot(sessionId, snapshotId, "/restore"), options);
  }

  async deleteSnapshot(sessionId, snapshotId, options) {
    return this.#ask("DELETE", this.#snapshot(sessionId, snapshotId), options);
  }

  // Its notifications.

  async listNotifications(sessionId, options) {
    return this.#ask("GET", this.#session(sessionId, "/notifications"), options);
  }

  async addNotification(sessionId, notification, options) {
    return this.#ask("POST", this.#session(sessionId, "/notifications"), { ...notification, ...options });
  }

  async acknowledgeNotifications(sessionId, ids, options) {
    return this.#ask("POST", this.#session(sessionId, "/notifications/acknowledge"), { ...options, ids });
  }

  // Live conversations.

  async createSession(options) {
    return this.#ask("POST", "/sessions", options);
  }

  async getSession(sessionId, options) {
    return this.#ask("GET", this.#session(sessionId), options);
  }

  async messages(sessionId, options) {
    return this.#ask("GET", this.#session(sessionId, "/messages"), options);
  }

  async ask(sessionId, content, options) {
    return this.#ask("POST", this.#session(sessionId, "/messages"), { ...options, content });
  }

  send(sessionId, content, { signal, project = this.#project, ...fields } = {}) {
    const sent = this.#stream(signal, async (signal) => {
      const body = { ...fields, content, project };
      return this.#gateway.send("POST", this.#session(sessionId, "/messages"), { body, signal, accept: eventStream });
    });
    return (async function* () {
      let running = false;
      for await (const event of sent) {
        if (event.kind === "turn_start") running = true;
        if (event.kind === "turn_end") running = false;
        yield event;
      }
      if (running) throw unavailable("the gateway ended before the answer did; what came of it is kept");
    })();
  }

  async *follow(sessionId, { signal, project = this.#project, after } = {}) {
    const path = this.#session(sessionId, "/events");
    let connected = false;
    for (let pause = firstPause; ; pause = Math.min(2 * pause, lastPause)) {
      try {
        const events = this.#stream(signal, async (signal) => {
          const headers = after === undefined ? {} : { "Last-Event-ID": after };
          const response = await this.#gateway.send("GET", path, { query: { project }, headers, signal, accept: eventStream });
          connected = true;
          return response;
        });
        for await (const event of events) {
          pause = firstPause;
          after = event.id ?? after;
          yield event;
        }
      } catch (error) {
        if (!connected || !(error instanceof SessError) || error.code !== "unavailable") throw error;
      }
      await sleep(pause, signal);
      yield { kind: "reconnected", data: {} };
    }
  }

  async cancel(sessionId, options) {
    return this.#ask("POST", this.#session(sessionId, "/cancel"), options);
  }

  async approve(sessionId, callId, allow, options) {
    return this.#ask("POST", this.#session(sessionId, "/approve"), { ...options, callId, allow });
  }

  // Asks at once, and gives the events of the answer. Who stops taking them ends
  // the request.
  #stream(signal, ask) {
    const over = new AbortController();
    const abort = () => over.abort(signal.reason);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    const asked = ask(over.signal);
    asked.catch(() => {}); // it is told to whoever takes the first event
    return (async function* () {
      try {
        yield* readEvents((await asked).body);
      } catch (cause) {
        if (signal?.aborted) throw signal.reason;
        throw cause instanceof SessError ? cause : Object.assign(unavailable("the stream of events broke off; look at the session before you send it again"), { cause });
      } finally {
        signal?.removeEventListener("abort", abort);
        over.abort();
      }
    })();
  }

  // Any verb of any command, and JSON-RPC over a WebSocket.

  async invoke(command, action, fields = {}, options) {
    return this.rpc(`${command}.invoke`, { ...fields, action }, options);
  }

  async rpc(method, params, options) {
    return (await this.#rpc()).call(method, params, options);
  }

  async *events(filter, options) {
    yield* (await this.#rpc()).events(filter, options);
  }

  async close() {
    const connection = this.#connection;
    this.#connection = undefined;
    (await connection?.catch(() => undefined))?.close();
  }

  #rpc() {
    if (!this.#connection) {
      const opening = Connection.open(this.#gateway, this.#webSocket);
      this.#connection = opening;
      const gone = () => {
        if (this.#connection === opening) this.#connection = undefined;
      };
      opening.then((connection) => connection.closed.then(gone), gone);
    }
    return this.#connection;
  }
}

const eventStream = "text/event-stream";

/** Between two attempts to follow a session again, in milliseconds. */
const firstPause = 500;
const lastPause = 10_000;

function sleep(time, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, time);
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) abort();
  });
}

/** Reads server-sent events, as the HTML standard has them. */
async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let event = { data: [] };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return; // one that has no end is none
    // A carriage return at the end may be the half of a line's end.
    const lines = (rest + decoder.decode(value, { stream: true })).split(/\r\n|\n|\r(?=[^])/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        const { id, kind = "message", data } = event;
        event = { data: [] };
        if (data.length > 0) yield { ...(id === undefined ? {} : { id }), kind, data: JSON.parse(data.join("\n")) };
        continue;
      }
      const [, field, text] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
      if (field === "id") event.id = text;
      else if (field === "event") event.kind = text;
      else if (field === "data") event.data.push(text ?? "");
    }
  }
}

/** How many events wait for their reader; beyond that the oldest are dropped. */
const queueLength = 256;

/** JSON-RPC 2.0 over one WebSocket. */
class Connection {
  #socket;
  #lastId = 0;
  #calls = new Map(); // by id
  #queues = new Map(); // of events, by subscription

  /** Answers with a connection once it is there. */
  static async open(gateway, WebSocket) {
    if (!WebSocket) throw usage("there is no WebSocket here: give one as the option WebSocket, such as that of the package ws");
    const connection = new Connection();
    const protocols = gateway.token ? ["jsonrpc", `bearer.${gateway.token}`] : ["jsonrpc"];
    let socket;
    try {
      socket = new WebSocket(gateway.baseUrl.replace(/^http/, "ws") + "/rpc", protocols);
    } catch (cause) {
      throw unreachable(gateway.baseUrl, cause);
    }
    connection.#socket = socket;
    connection.closed = new Promise((resolve) => socket.addEventListener("close", resolve));
    connection.closed.then(() => connection.#end(unavailable("the gateway has gone; look whether it was done before you try again")));
    socket.addEventListener("error", () => {}); // close follows
    socket.addEventListener("message", (event) => connection.#received(String(event.data)));
    const opened = new Promise((resolve) => socket.addEventListener("open", () => resolve(true)));
    if (await Promise.race([opened, connection.closed]) !== true) {
      throw unavailable(`cannot connect to the gateway at ${gateway.baseUrl}: it does not run there, or the token is wrong`);
    }
    return connection;
  }

  close() {
    this.#end(unavailable("the connection to the gateway was closed"));
    this.#socket.close();
  }

  call(method, params, options) {
    return this.#call(method, params, options);
  }

  // first sees a good answer before anything that the gateway sent after it.
  #call(method, params = {}, { signal, onProgress, onNotices } = {}, first = () => {}) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      if (this.#socket.readyState !== 1) return reject(unavailable("the connection to the gateway was closed"));
      const id = ++this.#lastId;
      const settle = (done) => (value) => {
        this.#calls.delete(id);
        signal?.removeEventListener("abort", abort);
        done(value);
      };
      const call = { resolve: settle(resolve), reject: settle(reject), onProgress, onNotices, first };
      const abort = () => {
        this.#send({ method: "rpc.cancel", params: { id } });
        call.reject(signal.reason);
      };
      signal?.addEventListener("abort", abort);
      this.#calls.set(id, call);
      this.#send({ id, method, params });
    });
  }

  /** Follows what happens in the gateway from now on. */
  async *events(filter, { signal } = {}) {
    const queue = { items: [], dropped: 0, wake: () => {}, error: undefined };
    const { subscription } = await this.#call("events.subscribe", filter, { signal }, (result) => this.#queues.set(result.subscription, queue));
    const abort = () => queue.wake();
    signal?.addEventListener("abort", abort);
    try {
      for (;;) {
        if (signal?.aborted) throw signal.reason;
        if (queue.dropped > 0) {
          const { dropped } = queue;
          queue.dropped = 0;
          yield { kind: "events.dropped", dropped };
        } else if (queue.items.length > 0) {
          yield queue.items.shift();
        } else if (queue.error) {
          throw queue.error;
        } else {
          await new Promise((resolve) => (queue.wake = resolve));
        }
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      if (this.#queues.delete(subscription)) this.#call("events.unsubscribe", { subscription }).catch(() => {});
    }
  }

  #send(message) {
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  #received(text) {
    const { id, method, params, result, error } = JSON.parse(text);
    if (method === "event") return this.#told(this.#queues.get(params.subscription), params.event);
    const call = this.#calls.get(method ? params.requestId : id);
    if (method === "progress") return call?.onProgress?.(params);
    if (method === "notices") return call?.onNotices?.(params.notices);
    if (!error) {
      call?.first(result);
      return call?.resolve(result);
    }
    const { code = "internal", hint = "", details = {} } = error.data ?? {};
    const refused = new SessError({ code, hint, details, text: hint ? `${error.message}; ${hint}` : error.message });
    if (call) call.reject(refused);
    else if (id === null) this.#end(refused); // nobody can tell which call it is about
  }

  #told(queue, event) {
    if (!queue) return;
    if (queue.items.length === queueLength) {
      queue.items.shift();
      queue.dropped++;
    }
    queue.items.push(event);
    queue.wake();
  }

  #end(error) {
    for (const call of [...this.#calls.values()]) call.reject(error);
    for (const queue of this.#queues.values()) {
      queue.error = error;
      queue.wake();
    }
    this.#queues.clear();
  }
}
