// The types of client.js.

/** What a session is doing; `error` means that its last run failed or was cut off. */
export type PersistedSessionStatus = "idle" | "running" | "waiting-permission" | "error";

/** A message of a session. Times are epoch milliseconds. */
export interface PersistedChatMessage {
  id: string;
  role: "user" | "agent";
  content: string;
  status: "complete" | "streaming" | "error";
  streamId?: string;
  /** The user's message that this one answers. */
  responseToMessageId?: string;
  eventIds: string[];
  artifactIds: string[];
  /** References to what was sent along. */
  uploads: Record<string, unknown>[];
  createdAt: number;
  updatedAt: number;
}

/** A tool call of a session. Long texts are cut when it is stored. */
export interface PersistedToolActivity {
  id: string;
  messageId?: string;
  title?: string;
  name?: string;
  status: "pending" | "in_progress" | "completed" | "failed";
  rawInput?: unknown;
  rawOutput?: unknown;
  content?: unknown;
  createdAt: number;
  updatedAt: number;
}

/** A reference to a file, never its content. */
export interface PersistedArtifact {
  id: string;
  path: string;
  kind: "workspace-file" | "external-file" | "managed-file";
  [key: string]: unknown;
}

/** A session. Times are epoch milliseconds. */
export interface PersistedChatSession {
  id: string;
  projectId: string;
  title: string;
  cwd: string;
  status: PersistedSessionStatus;
  messages: PersistedChatMessage[];
  activities: PersistedToolActivity[];
  /** The prompt in flight; a session that was cut off has none. */
  activeRun?: unknown;
  error?: string;
  artifacts: PersistedArtifact[];
  createdAt: number;
  updatedAt: number;
  /**
   * Which state of the session this is. A session that was loaded has it; leave it
   * as it is, also in copies: `saveSession` knows what was saved of it since.
   */
  revision?: number;
}

/** Which session was open last. */
export interface PersistedSessionManifest {
  version: 1;
  lastProjectId?: string;
  lastSessionId?: string;
}

export interface LoadAllSessionsResult {
  /** Those of all projects, the newest first. */
  sessions: PersistedChatSession[];
  manifest: PersistedSessionManifest;
  /** What was left out, and why. */
  notices?: string[];
}

export interface DeleteSessionRequest {
  projectId: string;
  sessionId: string;
}

export interface DeleteProjectSessionsRequest {
  projectId: string;
}

export interface SaveSessionManifestRequest {
  lastProjectId?: string;
  lastSessionId?: string;
}

/** How errors are told apart; more may come. */
export type SessErrorCode =
  | "usage" | "invalid_name" | "not_found" | "exists" | "conflict" | "busy" | "readonly" | "denied"
  | "corrupt" | "newer_format" | "no_space" | "unavailable" | "internal" | (string & {});

/** Every error of this module, but for the reason of a signal that ended a call. */
export class SessError extends Error {
  constructor(what: { code: SessErrorCode; text: string; hint?: string; status?: number; details?: Record<string, string> });
  readonly code: SessErrorCode;
  /** The whole sentence for people. */
  readonly text: string;
  /** One step that helps; may be empty. */
  readonly hint: string;
  /** That of HTTP; 0 where there was no answer over HTTP. */
  readonly status: number;
  readonly details: Record<string, string>;
}

export interface GatewayOptions {
  /** The gateway's address; a page that the gateway serves need not say it. */
  baseUrl?: string;
  /** What `sess gateway token` prints. */
  token?: string;
  /** What sends requests, in place of the global one. */
  fetch?: typeof fetch;
}

/**
 * Sessions that are kept. Calls need not wait for each other: those about one
 * session happen in the order in which they were made, with the content that the
 * session had then, and one that fails fails alone.
 */
export interface Sessions {
  /** Everything, once at the start. */
  loadAll(): Promise<LoadAllSessionsResult>;
  /**
   * Creates or replaces a session, and answers with its new revision. Where somebody
   * else has changed it, the error is a `conflict` and nothing has changed.
   */
  saveSession(session: PersistedChatSession): Promise<number>;
  deleteSession(request: DeleteSessionRequest): Promise<void>;
  deleteProjectSessions(request: DeleteProjectSessionsRequest): Promise<void>;
  /** Replaces what was said of the session that was open last. */
  saveManifest(request: SaveSessionManifestRequest): Promise<void>;
}

export function createSessions(options?: GatewayOptions): Sessions;

/** A snapshot of a session. Times are as RFC 3339 has them, in UTC. */
export interface Snapshot {
  name: string;
  id: string;
  sessionId?: string;
  projectId?: string;
  title?: string;
  model?: string;
  messages: number;
  bytes: number;
  createdAt: string;
  updatedAt: string;
  note?: string;
  tags?: Record<string, string>;
  pinned?: boolean;
  /** For people: why it was made. */
  reason?: string;
  automatic?: boolean;
  trigger?: string;
  plugin?: string;
  action?: string;
  indices?: number[];
  range?: { start: number; end: number | null };
  /** In lists: "ok", or what keeps it from being read. */
  state?: string;
  problem?: string;
  [key: string]: unknown;
}

/** What something that changes answers. */
export interface Changed<T = Record<string, unknown>> {
  /** The sentence for people. */
  text: string;
  data: T;
  notices?: string[];
}

export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal;
}

export interface SessionOptions extends CallOptions {
  /** Where an id is one of several projects. */
  project?: string;
}

export interface ListSnapshotsOptions extends SessionOptions {
  limit?: number;
  after?: string;
  prefix?: string;
}

export interface CreateSnapshotOptions extends SessionOptions {
  /** Without a name it is given one. */
  name?: string;
  reason?: string;
  note?: string;
  tags?: Record<string, string>;
}

export type NotificationStatus = "running" | "done" | "failed";

/** What people who work with a session are told. Times are epoch milliseconds. */
export interface SessionNotification {
  id: string;
  kind?: string;
  text: string;
  status: NotificationStatus;
  createdAt: number;
  updatedAt: number;
  acknowledgedAt?: number;
}

export interface SessionNotifications {
  /** Those that nobody has acknowledged. */
  operations: SessionNotification[];
  acknowledged: SessionNotification[];
}

export interface NewNotification {
  text: string;
  /** That of an earlier one replaces it. */
  id?: string;
  kind?: string;
  status?: NotificationStatus;
}

export interface CreateSessionOptions extends SessionOptions {
  id?: string;
  title?: string;
  /** As `provider/model`. */
  model?: string;
  cwd?: string;
  /** What was said before, elsewhere. */
  messages?: { role: "user" | "agent" | "assistant"; content: string }[];
  /** Whether it becomes the active session; it does where nothing is said. */
  activate?: boolean;
}

/** A tool call that waits for a person. */
export interface Approval {
  callId: string;
  name: string;
  arguments?: unknown;
  text: string;
}

/** What there is to know of a session, but for its messages. */
export interface SessionInfo {
  id: string;
  projectId: string;
  title: string;
  cwd?: string;
  model?: string;
  status: PersistedSessionStatus;
  error?: string;
  /** Whether a turn runs. */
  running: boolean;
  approval?: Approval;
  messages: number;
  bytes: number;
  revision: number;
  /** The id of the snapshot that is shown in place of the session. */
  selected: string | null;
  activeRun?: unknown;
  createdAt: number;
  updatedAt: number;
}

export interface MessagesOptions extends SessionOptions {
  /** At most 1000; 100 where nothing is said. */
  limit?: number;
  /** Only messages before the one of this number, which counts from 0. */
  before?: number;
  after?: number;
}

export interface MessagesPage {
  messages: PersistedChatMessage[];
  /** The number of the first one, and the one behind the last. */
  first: number;
  end: number;
  total: number;
  revision: number;
  /** Whether these are the messages of a snapshot, which `snapshot` tells about. */
  readonly: boolean;
  snapshot?: Snapshot;
}

export interface SendOptions extends SessionOptions {
  /** Which model answers from now on. */
  model?: string;
  /** Where the session has another revision the message is refused as a `conflict`. */
  expectedRevision?: number;
}

export interface TokenUsage {
  inputTokens?: number;
  outputTokens?: number;
  [key: string]: unknown;
}

/** What came of a message or a slash command. */
export interface ChatAnswer {
  sessionId: string;
  projectId: string;
  turn?: string;
  status?: "complete" | "cancelled" | "error";
  model?: string;
  message?: PersistedChatMessage;
  activities?: PersistedToolActivity[];
  usage?: TokenUsage;
  /** Of a slash command. */
  answer?: { text: string; data?: unknown };
  /** Where the conversation goes on, if that is another session now. */
  moved?: { sessionId: string; projectId: string };
  revision: number;
  notices?: string[];
}

interface ChatEventOf<Kind extends string, Data> {
  /** What `follow` can go on after. */
  id?: string;
  kind: Kind;
  data: Data;
}

/** What happens in a conversation, one after the other. */
export type ChatEvent =
  | ChatEventOf<"turn_start", { turn: string; n: number; input: string; model?: string; userMessageId: string; messageId: string }>
  | ChatEventOf<"text_delta", { messageId: string; text: string }>
  | ChatEventOf<"thought_delta", { text: string }>
  | ChatEventOf<"tool_call_started", { id: string; name: string; arguments?: unknown }>
  | ChatEventOf<"tool_call_finished", { id: string; status: "completed" | "failed"; text?: string }>
  /** A person is to allow or refuse a tool call: see `approve`. */
  | ChatEventOf<"approval_request", { id: string; name: string; arguments?: unknown; text: string }>
  | ChatEventOf<"usage", TokenUsage>
  | ChatEventOf<"error", { code: SessErrorCode; text: string; [key: string]: unknown }>
  | ChatEventOf<"run_cancelled" | "run_finished", Record<string, unknown>>
  | ChatEventOf<"turn_end", { status: "complete" | "error"; revision: number }>
  /** Of a slash command. */
  | ChatEventOf<"answer", { text: string; data?: unknown }>
  | ChatEventOf<"notice", { text: string }>
  /** The conversation is another one now, as after a restore: read it anew. */
  | ChatEventOf<"session_replaced", Record<string, unknown>>
  /** It goes on in another session. */
  | ChatEventOf<"session_moved", { sessionId: string; projectId: string }>
  /** This reader was too slow, and so many events are missing. */
  | ChatEventOf<"events_dropped", { dropped: number }>
  /** Of `follow`: the connection was lost; what was said meanwhile may be missing. */
  | ChatEventOf<"reconnected", Record<string, never>>;

export interface FollowOptions extends SessionOptions {
  /** The id of an event to go on after. */
  after?: string;
}

export interface Progress {
  stage: string;
  done: number;
  total?: number;
  unit?: string;
}

export interface RpcOptions extends CallOptions {
  onProgress?(progress: Progress): void;
  /** Warnings that belong to an answer without room for them. */
  onNotices?(notices: string[]): void;
}

/** Chooses events; what is left out chooses all. */
export interface EventFilter {
  /** Kinds, or the parts of them before the dot. */
  kinds?: string[];
  project?: string;
  session?: string;
}

/** Something that happened in the gateway. */
export interface GatewayEvent {
  seq?: number;
  kind: string;
  time?: string;
  agent?: string;
  project?: string;
  session?: string;
  verb?: string;
  data?: Record<string, unknown>;
  /** Of the kind `events.dropped`: how many were missed. */
  dropped?: number;
}

/** What a WebSocket has to have; the global one does, and that of the package ws. */
export interface WebSocketConstructor {
  new (url: string, protocols: string[]): {
    readonly readyState: number;
    send(text: string): void;
    close(): void;
    addEventListener(kind: any, listener: (event: any) => void): void;
  };
}

export interface BackendOptions extends GatewayOptions {
  /** What opens the connection for rpc, in place of the global one. */
  WebSocket?: WebSocketConstructor;
  /** The project of the sessions that are named, where a call names none. */
  project?: string;
}

/** Everything else that a gateway can do. */
export class AgentBackend {
  constructor(options?: BackendOptions);

  /** The newest first. */
  listSnapshots(sessionId: string, options?: ListSnapshotsOptions): Promise<Snapshot[]>;
  createSnapshot(sessionId: string, options?: CreateSnapshotOptions): Promise<Changed<Snapshot>>;
  /** The snapshot that is shown in place of the session; null where none is. */
  selectedSnapshot(sessionId: string, options?: SessionOptions): Promise<Snapshot | null>;
  selectSnapshot(sessionId: string, snapshotId: string, options?: SessionOptions): Promise<Changed<Snapshot>>;
  clearSelectedSnapshot(sessionId: string, options?: SessionOptions): Promise<Changed>;
  restoreSnapshot(sessionId: string, snapshotId: string, options?: SessionOptions): Promise<Changed>;
  deleteSnapshot(sessionId: string, snapshotId: string, options?: SessionOptions): Promise<Changed>;

  listNotifications(sessionId: string, options?: SessionOptions): Promise<SessionNotifications>;
  addNotification(sessionId: string, notification: NewNotification, options?: SessionOptions): Promise<Changed<SessionNotification>>;
  acknowledgeNotifications(sessionId: string, ids: string[], options?: SessionOptions): Promise<Changed<SessionNotifications>>;

  createSession(options?: CreateSessionOptions): Promise<SessionInfo>;
  getSession(sessionId: string, options?: SessionOptions): Promise<SessionInfo>;
  /** A page of messages, by default the last ones. */
  messages(sessionId: string, options?: MessagesOptions): Promise<MessagesPage>;
  /**
   * Sends a message or a slash command at once, and gives what comes of it as it
   * comes. The turn goes on where the reader leaves; `cancel` ends it.
   */
  send(sessionId: string, content: string, options?: SendOptions): AsyncGenerator<ChatEvent, void, undefined>;
  /** Sends a message or a slash command, and answers with what came of it. */
  ask(sessionId: string, content: string, options?: SendOptions): Promise<ChatAnswer>;
  /** Follows a session, whoever sends to it, also over a restart of the gateway, until the signal. */
  follow(sessionId: string, options?: FollowOptions): AsyncGenerator<ChatEvent, void, undefined>;
  /** Ends the turn that runs; what came of it is kept. */
  cancel(sessionId: string, options?: SessionOptions): Promise<{ cancelled: boolean; revision: number }>;
  /** Answers an `approval_request`, whose id is callId. */
  approve(sessionId: string, callId: string, allow: boolean, options?: SessionOptions): Promise<{ callId: string; allow: boolean }>;

  /** Calls a verb of any command, as in `invoke("sess", "save", { name: "v1" })`. */
  invoke(command: string, action: string, fields?: Record<string, unknown>, options?: RpcOptions): Promise<unknown>;
  /** Calls any gateway method, over a WebSocket that is opened for the first call. */
  rpc(method: string, params?: Record<string, unknown>, options?: RpcOptions): Promise<unknown>;
  /** Follows what happens in the gateway, over the same connection. */
  events(filter?: EventFilter, options?: CallOptions): AsyncGenerator<GatewayEvent, void, undefined>;
  /** Closes that connection; a later call opens another. */
  close(): Promise<void>;
}
