// The session that is tried out: items in order, oldest first, kept in this tab.

const KEY = "transcf-session";
const MOST = 100;

let items = read();
const listeners = new Set();

function read() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter((entry) => entry?.item !== undefined).slice(-MOST) : [];
  } catch {
    return [];
  }
}

function keep(changed) {
  items = changed.slice(-MOST);
  sessionStorage.setItem(KEY, JSON.stringify(items));
  for (const button of document.querySelectorAll("[data-add]")) button.dispatchEvent(new Event("session"));
  for (const listener of listeners) listener(items);
}

/** Items of the session, oldest first. */
export const all = () => items;

/** Whether an item is in it. */
export const has = (what) => items.some((entry) => entry.item === what);

/** Call a listener whenever it changes. */
export const watch = (listener) => listeners.add(listener);

/** Add an item at the end, or remove it. */
export function toggle({ item, title = null, categories = [] }) {
  const others = items.filter((entry) => entry.item !== item);
  keep(others.length < items.length ? others : [...items, { item, title, categories }]);
}

/** Move an item one place toward the newest (1) or the oldest (-1). */
export function move(what, step) {
  const from = items.findIndex((entry) => entry.item === what);
  const to = from + step;
  if (from < 0 || to < 0 || to >= items.length) return;
  const changed = [...items];
  changed.splice(to, 0, ...changed.splice(from, 1));
  keep(changed);
}

/** Replace the items; oldest first. */
export function replace(entries) {
  keep(entries.map(({ item, title = null, categories = [] }) => ({ item, title, categories })));
}
