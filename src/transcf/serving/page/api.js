// Requests to the service: routes, the token, time-outs and errors in one place.

const TIMEOUT = 15000;
const KEY = "transcf-token";

/** A refusal of the service, with its sentence; `code` is "away" if there was no answer. */
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
let calls = []; // requests of the present view

/** Set who asks for a token, and who learns whether the service answers, and by another version. */
export function connect({ token, reach, change }) {
  askForToken = token;
  onReach = reach;
  onVersion = change;
}

/** Forget the requests of the view before. */
export function startRecording() {
  calls = [];
}

/** Requests of the present view: `{path, body, answer}`, in their order. */
export const recorded = () => calls;

function notice(answered) {
  if (answered === undefined || answered === version) return;
  const isFirst = version === null;
  version = answered;
  if (!isFirst) onVersion();
}

/**
 * Ask for a path. `body`: what is posted; `signal`: ends it; `limit`: milliseconds;
 * `isText`: the answer is text; `isRecorded`: it belongs to the view; `isServed`: the served version answers.
 */
async function ask(path, options = {}) {
  const { body, signal, limit = TIMEOUT, isText = false, isRecorded = true, isServed = true } = options;
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  const late = AbortSignal.timeout(limit);
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      body: body === undefined ? undefined : JSON.stringify(body),
      headers,
      signal: signal ? AbortSignal.any([signal, late]) : late,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    onReach(false);
    throw new ServiceError("away", "The service does not answer. Is it still running?");
  }
  onReach(true);
  if (response.status === 401) return askAgain(path, options, token);
  if (isText && response.ok) return response.text();
  const answer = await response.json().catch(() => ({}));
  if (isServed) notice(answer.version);
  if (response.ok) {
    if (isRecorded && !signal?.aborted) calls.push({ path, body, answer });
    return answer;
  }
  const { code = "unknown", message = `The service answered ${response.status}.` } = answer.error ?? {};
  throw new ServiceError(code, message, response.status);
}

async function askAgain(path, options, used) {
  const known = sessionStorage.getItem(KEY);
  const token = known && known !== used ? known : await askForToken(used !== null);
  if (!token) throw new ServiceError("unauthorized", "This service asks for a token.", 401);
  sessionStorage.setItem(KEY, token);
  return ask(path, options);
}

/** Ask for another token, and use it from now on. */
export async function changeToken() {
  const token = await askForToken(false);
  if (token) sessionStorage.setItem(KEY, token);
}

/** Whether requests need a token. */
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

const id = encodeURIComponent;

/** Whether an address can hold the id: browsers resolve "." and ".." away. */
const isPlain = (value) => !/^\.{1,2}$/.test(String(value)) && String(value) !== "";

export const models = (isRecorded) => ask("v1/models", { isRecorded });
export const reference = (signal) => ask("openapi.json", { signal });
export const quality = (signal) => ask("v1/quality", { signal, limit: 60000 });
export const categories = () => ask("v1/categories", { isRecorded: false });
export const metrics = (signal) => ask("metrics", { signal, isText: true });
export const serveVersion = (number) => ask("v1/models/current", { body: { version: number }, isRecorded: false });
export const map = () => ask("v1/map?limit=50000&layout=neighbors", { limit: 60000, isRecorded: false });
export const attribute = (name) => ask(`v1/map/attribute?name=${id(name)}&limit=50000`, { limit: 60000, isRecorded: false });
export const search = (text, k, signal) => ask(`v1/search?q=${id(text)}&k=${k}`, { signal, isRecorded: !text });
export const user = (who, limit, signal) => ask(`v1/users/${id(who)}?limit=${limit}`, { signal });
export const item = (what, signal) => ask(`v1/items/${id(what)}`, { signal });
export const similarItems = (what, signal) => ask(`v1/similar-items/${id(what)}?k=12`, { signal });
export const similarUsers = (who, signal) => ask(`v1/similar-users/${id(who)}?k=6`, { signal });
export const position = (who, toward, layout, signal) =>
  ask("v1/map/position", { body: { ...who, toward, layout }, signal, isRecorded: false });

/** Why an item has its score, for `{user}` or `{session}`. */
export function explanation({ user: who, session: items }, what, signal) {
  if (items) return ask("v1/explanation", { body: { session: items, item: what, top: 5 }, signal });
  return ask(`v1/explanation?user=${id(who)}&item=${id(what)}&top=5`, { signal });
}

const body = ({ k, category, seen }) => ({
  k,
  explain: true,
  ...(category ? { categories: [category] } : {}),
  ...(seen ? { exclude_seen: false } : {}),
});

/** Recommendations for a session, with reasons; for filters see filters.js. */
export const session = (items, filters, signal) => ask("v1/session", { body: { session: items, ...body(filters) }, signal });

const query = ({ k, category, seen }) =>
  `k=${k}&explain=true${category ? `&category=${id(category)}` : ""}${seen ? "&exclude_seen=false" : ""}`;

/** Recommendations of one version for a user, with reasons; the service may have to load it. */
export const recommendationsBy = (number, who, filters, signal) =>
  ask(`v1/versions/${number}/recommendations/${id(who)}?${query(filters)}`, { signal, limit: 60000, isServed: false });

/** Recommendations for a user, with reasons. */
export async function recommendations(who, filters, signal) {
  if (isPlain(who)) return ask(`v1/recommendations/${id(who)}?${query(filters)}`, { signal });
  const { answers, version } = await ask("v1/recommendations", { body: { users: [who], ...body(filters) }, signal });
  return { ...answers[0], version };
}
