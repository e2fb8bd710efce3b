// Whom the map shows: a user or a session, with history, recommendations and translations.

import * as api from "./api.js";
import { byId, percent } from "./dom.js";
import { nameOf } from "./list.js";
import * as map from "./map.js";
import * as overlay from "./overlay.js";
import * as points from "./points.js";

const PAUSE = 40;

let subject = null; // {user} or {session}, and a name
let kept = new Map(); // what was asked for this person already, by item
let items = { history: [], picks: [] };
let running = null;
let timer = null;
let resting = null; // the item that the page itself is about

const placed = (ids) => ids.map(points.placeOf).filter((place) => place !== null);
const asked = ({ user, session }) => (session ? { session } : { user });

/** Who it is: `{user, name}`, `{session, name}`, or null for nobody. */
export const current = () => subject;

/** Show a person (null: nobody) with the ids of their history and of what is recommended. */
export function show(who, history = [], picks = []) {
  const isSame = JSON.stringify(who) === JSON.stringify(subject);
  if (!isSame) kept = new Map();
  subject = who;
  items = { history, picks };
  resting = null;
  byId("picks-name").textContent = "recommended";
  refresh();
}

/** Let the map go on to show the person, with the page's own item and similar ones. */
export function rest(item, similar) {
  resting = item;
  items = { ...items, picks: similar };
  byId("picks-name").textContent = "similar items";
  refresh();
}

/** Draw everything anew, as after the map has come. */
export async function refresh() {
  byId("moved-sign").hidden = !points.hasTranslations();
  overlay.show({ name: subject?.name ?? "", history: placed(items.history), picks: placed(items.picks) });
  point(null);
  if (!subject) return overlay.show({ me: null, moved: [] });
  const who = subject;
  const found = await position(who, null).catch(() => null);
  if (who === subject) overlay.show({ me: found?.position ?? null });
}

/** Where somebody is, and where they are moved for an item (null: for none); asked for once. */
async function position(who, item) {
  const own = kept;
  if (own.has(item)) return own.get(item);
  if (item === null) {
    own.set(null, await api.position(asked(who), []));
  } else {
    running?.abort(); // the pointer has gone on
    running = new AbortController();
    own.set(item, await api.position(asked(who), [item], running.signal));
  }
  return own.get(item);
}

/** Show an item on the map and how the person is moved toward it; null goes back to the page's. */
export function point(item) {
  clearTimeout(timer);
  const wanted = item ?? resting;
  const place = wanted === null ? null : points.placeOf(wanted);
  overlay.show({ target: place, moved: [] });
  map.label(place && item !== null ? wanted : null);
  if (!place || !subject || !points.hasTranslations()) return;
  timer = setTimeout(() => move(subject, wanted, item !== null), kept.has(wanted) ? 0 : PAUSE);
}

async function move(who, item, isPointed) {
  let toward;
  try {
    [toward] = (await position(who, item)).toward;
  } catch {
    return; // a newer wish has taken over, or the notice at the top says what is wrong
  }
  if (who !== subject || !toward?.position) return;
  const moved = toward.moved?.length
    ? toward.moved.map(({ position, share }) => ({ place: position, share }))
    : [{ place: toward.position, share: 1 }];
  overlay.show({ target: points.placeOf(item), moved });
  const [nearest] = toward.moved ?? [];
  const note = nearest ? `nearest: ${nameOf(nearest)} (${percent(nearest.share)})` : "";
  if (isPointed) map.label(item, note);
}
