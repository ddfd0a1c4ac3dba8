// Type-checked, never run: uses every type and method of the client module.
import {
  AgentBackend, SessError, createSessions,
  type Approval, type BackendOptions, type Changed, type ChatAnswer, type ChatEvent, type DeleteProjectSessionsRequest, type DeleteSessionRequest, type GatewayEvent,
  type LoadAllSessionsResult, type MessagesPage, type NewNotification, type PersistedArtifact, type PersistedChatMessage, type PersistedChatSession,
  type PersistedSessionManifest, type PersistedSessionStatus, type PersistedToolActivity, type SaveSessionManifestRequest,
  type SessErrorCode, type SessionInfo, type SessionNotification, type SessionNotifications, type Sessions, type Snapshot,
} from "./client.js";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function holds<_ extends true>(): void {}

// The module offers exactly these five methods, all asynchronous.
holds<Equal<keyof Sessions, "loadAll" | "saveSession" | "deleteSession" | "deleteProjectSessions" | "saveManifest">>();
holds<Equal<ReturnType<Sessions[keyof Sessions]>, Promise<LoadAllSessionsResult> | Promise<number> | Promise<void>>>();

// The documented types, field by field.
holds<Equal<PersistedSessionStatus, "idle" | "running" | "waiting-permission" | "error">>();
holds<Equal<PersistedChatSession["status"], PersistedSessionStatus>>();
holds<Equal<PersistedChatMessage["role"], "user" | "agent">>();
holds<Equal<PersistedChatMessage["status"], "complete" | "streaming" | "error">>();
holds<Equal<Required<PersistedSessionManifest>, { version: 1; lastProjectId: string; lastSessionId: string }>>();
holds<Equal<DeleteSessionRequest, { projectId: string; sessionId: string }>>();
holds<Equal<DeleteProjectSessionsRequest, { projectId: string }>>();
holds<Equal<SaveSessionManifestRequest, { lastProjectId?: string; lastSessionId?: string }>>();

const message: PersistedChatMessage = {
  id: "m1", role: "user", content: "hello", status: "complete", streamId: "s", responseToMessageId: "m0",
  eventIds: ["e"], artifactIds: ["a"], uploads: [{ id: "u" }], createdAt: 1, updatedAt: 2,
};
const activity: PersistedToolActivity = {
  id: "t1", messageId: "m1", title: "List", name: "sess_manage", status: "completed", rawInput: {}, rawOutput: [], content: "x", createdAt: 1, updatedAt: 2,
};
const artifact: PersistedArtifact = { id: "a", path: "plan.md", kind: "workspace-file" };
const session: PersistedChatSession = {
  id: "s1", projectId: "p", title: "t", cwd: "/", status: "idle", messages: [message], activities: [activity], activeRun: { id: "r" },
  error: "e", artifacts: [artifact], createdAt: 1, updatedAt: 2, revision: 3,
};

// @ts-expect-error the other role is agent
const _role: PersistedChatMessage["role"] = "assistant";
// @ts-expect-error a session has a project
const _session: PersistedChatSession = { ...session, projectId: undefined };

async function application(): Promise<void> {
  const sessions: Sessions = createSessions({ baseUrl: "http://127.0.0.1:7777", token: "t", fetch });
  const all: LoadAllSessionsResult = await sessions.loadAll();
  const manifest: PersistedSessionManifest = all.manifest;
  const notices: string[] | undefined = all.notices;
  const open = all.sessions.find((s) => s.id === manifest.lastSessionId);
  const revision: number = await sessions.saveSession({ ...session, messages: [...(open?.messages ?? []), message] });
  await sessions.deleteSession({ projectId: "p", sessionId: "s1" });
  await sessions.deleteProjectSessions({ projectId: "p" });
  await sessions.saveManifest({ lastProjectId: "p" });
  void [revision, notices];
  // @ts-expect-error both are required
  await sessions.deleteSession({ sessionId: "s1" });
}

// One method for each route, and everything else.
async function backend(options: BackendOptions): Promise<void> {
  const { signal } = new AbortController();
  const b = new AgentBackend({ ...options, WebSocket, project: "p" });
  const list: Snapshot[] = await b.listSnapshots("s", { limit: 1, after: "x", prefix: "v", project: "p", signal });
  const made: Changed<Snapshot> = await b.createSnapshot("s", { name: "v1", reason: "r", note: "n", tags: { k: "v" } });
  const selected: Snapshot | null = await b.selectedSnapshot("s");
  const shown: Changed<Snapshot> = await b.selectSnapshot("s", "v1");
  const back: Changed[] = [await b.clearSelectedSnapshot("s"), await b.restoreSnapshot("s", "v1"), await b.deleteSnapshot("s", "v1")];
  const end: number | null | undefined = list[0]?.range?.end;

  const news: NewNotification = { text: "t", id: "n", kind: "k", status: "running" };
  const told: Changed<SessionNotification> = await b.addNotification("s", news);
  const rest: Changed<SessionNotifications> = await b.acknowledgeNotifications("s", [told.data.id]);
  const notifications: SessionNotifications = await b.listNotifications("s");

  const invoked: unknown = await b.invoke("sess", "list", { limit: 1 });
  const answered: unknown = await b.rpc("gateway.status", {}, {
    signal, onProgress: ({ stage, done, total, unit }) => void [stage, done, total, unit], onNotices: (all) => void all.length,
  });
  for await (const event of b.events({ kinds: ["sess"], project: "p", session: "s" }, { signal })) {
    const one: GatewayEvent = event;
    void [one.seq, one.kind, one.time, one.agent, one.project, one.session, one.verb, one.data?.["name"], one.dropped];
  }
  await b.close();
  void [made.text, selected?.name, shown.notices, back, end, rest.data.operations, notifications.acknowledged, invoked, answered];
}

async function chat(b: AgentBackend): Promise<string> {
  const { signal } = new AbortController();
  const made: SessionInfo = await b.createSession({ id: "s", project: "p", title: "t", model: "offline/echo", cwd: "/", messages: [{ role: "user", content: "x" }], activate: false, signal });
  const info: SessionInfo = await b.getSession(made.id);
  const waits: Approval | undefined = info.approval;
  const page: MessagesPage = await b.messages("s", { limit: 10, before: 5 });
  const answer: ChatAnswer = await b.ask("s", "hello", { model: "offline/echo", expectedRevision: page.revision });
  const before: PersistedChatMessage | undefined = answer.message ?? page.messages[0];
  let text = before?.content ?? "";
  for await (const event of b.send("s", "hello", { signal })) {
    if (event.kind === "text_delta") text += event.data.text;
    if (event.kind === "approval_request") await b.approve("s", event.data.id, true);
    if (event.kind === "turn_end" && event.data.status === "error") text += event.data.revision.toFixed();
  }
  for await (const event of b.follow("s", { after: "x-1", signal })) {
    const one: ChatEvent = event;
    if (one.kind === "session_replaced" || one.kind === "reconnected") break;
    // @ts-expect-error there is no event of that kind
    if (one.kind === "nope") break;
  }
  const { cancelled, revision } = await b.cancel("s");
  void [waits, page.snapshot?.name, answer.usage?.inputTokens, answer.moved, cancelled, revision];
  return text;
}

function failed(error: unknown): string {
  if (!(error instanceof SessError)) throw error;
  const code: SessErrorCode = error.code;
  const again = new SessError({ code, text: error.text, hint: error.hint, status: error.status, details: error.details });
  return again.message;
}

void [application, backend, chat, failed];
