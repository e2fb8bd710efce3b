// Asking the service: one place for routes, the token, time-outs and what can go wrong.

const TIMEOUT = 15000;
const KEY = "transcf-token";

/** What the service refused, with its sentence; `code` is "away" if there was no answer. */
export class ServiceError extends Error {
  constructor(code, message, status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

let askForToken = async () => null;
let onReach = () => {};
let onVersion = () => {};
let version = null;

/** Say who asks for a token, and who is told whether the service answers, and by another version. */
export function connect({ token, reach, change }) {
  askForToken = token;
  onReach = reach;
  onVersion = change;
}

function notice(answered) {
  if (answered === undefined || answered === version) return;
  const isFirst = version === null;
  version = answered;
  if (!isFirst) onVersion();
}

async function ask(path, { body, signal } = {}) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  const limit = AbortSignal.timeout(TIMEOUT);
  const options = {
    method: body === undefined ? "GET" : "POST",
    body: body === undefined ? undefined : JSON.stringify(body),
    headers,
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  };
  let response;
  try {
    response = await fetch(`v1/${path}`, options);
  } catch (error) {
    if (signal?.aborted) throw error;
    onReach(false);
    throw new ServiceError("away", "The service does not answer. Is it still running?");
  }
  onReach(true);
  if (response.status === 401) return askAgain(path, { body, signal }, token);
  const answer = await response.json().catch(() => ({}));
  notice(answer.version);
  if (response.ok) return answer;
  const { code = "unknown", message = `The service answered ${response.status}.` } = answer.error ?? {};
  throw new ServiceError(code, message, response.status);
}

async function askAgain(path, request, used) {
  const known = sessionStorage.getItem(KEY);
  const token = known && known !== used ? known : await askForToken(used !== null);
  if (!token) throw new ServiceError("unauthorized", "This service asks for a token.", 401);
  sessionStorage.setItem(KEY, token);
  return ask(path, request);
}

const id = encodeURIComponent;

/** Whether an address can hold the id: browsers resolve "." and ".." away. */
const isPlain = (value) => !/^\.{1,2}$/.test(String(value)) && String(value) !== "";

export const models = () => ask("models");
export const map = () => ask("map?limit=50000");
export const search = (text, kind, k, signal) => ask(`search?q=${id(text)}&kind=${kind}&k=${k}`, { signal });
export const user = (who, limit, signal) => ask(`users/${id(who)}?limit=${limit}`, { signal });
export const item = (what, signal) => ask(`items/${id(what)}`, { signal });
export const similarItems = (what, signal) => ask(`similar-items/${id(what)}?k=12`, { signal });
export const similarUsers = (who, signal) => ask(`similar-users/${id(who)}?k=8`, { signal });
export const position = (who, toward, signal) => ask("map/position", { body: { ...who, toward }, signal });
export const session = (items, k, signal) => ask("session", { body: { session: items, k, explain: true }, signal });

/** Why an item has its score, for `{user}` or `{session}`. */
export function explanation({ user: who, session: items }, what, signal) {
  if (items) return ask("explanation", { body: { session: items, item: what, top: 5 }, signal });
  return ask(`explanation?user=${id(who)}&item=${id(what)}&top=5`, { signal });
}

/** Recommendations of a user, with reasons. */
export async function recommendations(who, k, signal) {
  if (isPlain(who)) return ask(`recommendations/${id(who)}?k=${k}&explain=true`, { signal });
  const { answers, version } = await ask("recommendations", { body: { users: [who], k, explain: true }, signal });
  return { ...answers[0], version };
}
