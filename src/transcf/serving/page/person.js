// The user or session that the map shows, with history, recommendations and translations.

import * as api from "./api.js";
import { byId, percent } from "./dom.js";
import * as labels from "./labels.js";
import { nameOf } from "./list.js";
import * as map from "./map.js";
import * as overlay from "./overlay.js";
import * as points from "./points.js";

const PAUSE = 40;

let subject = null; // {user} or {session}, and a name
let kept = new Map(); // positions by item
let items = { history: [], picks: [] };
let running = null;
let timer = null;
let resting = null; // the item that the page itself is about

const placed = (ids) => ids.map(points.placeOf).filter((place) => place !== null);
const asked = ({ user, session }) => (session ? { session } : { user });

/** `{user, name}`, `{session, name}`, or null. */
export const current = () => subject;

/** Show a user or session (null: none) with the ids of the history and of the recommendations. */
export function show(who, history = [], picks = []) {
  if (JSON.stringify(who) !== JSON.stringify(subject)) kept = new Map();
  subject = who;
  items = { history, picks };
  resting = null;
  byId("picks-name").textContent = "recommended";
  refresh();
}

/** Keep the user on the map, with the page's own item and its neighbours. */
export function rest(item, similar) {
  resting = item;
  items = { ...items, picks: similar };
  byId("picks-name").textContent = "similar items";
  refresh();
}

/** Draw everything on a map that has just come. */
export function reload() {
  kept = new Map();
  refresh();
}

async function refresh() {
  if (!points.columns()) return;
  byId("moved-sign").hidden = !points.hasTranslations() || !subject;
  overlay.show({ name: subject?.name ?? "", history: placed(items.history), picks: placed(items.picks) });
  labels.prefer(resting === null ? items.picks : [resting, ...items.picks]);
  map.redraw();
  point(null);
  if (!subject) return overlay.show({ me: null, moved: [] });
  const who = subject;
  const found = await position(who, null).catch(() => null);
  if (who !== subject) return;
  overlay.show({ me: found?.position ?? null });
  map.redraw(); // names make way
}

/** The position of a user, and the translated one for an item (null: none); asked for once. */
async function position(who, item) {
  const own = kept;
  if (own.has(item)) return own.get(item);
  const layout = points.columns().layout === "tsne" ? "neighbors" : "pca";
  if (item === null) {
    own.set(null, await api.position(asked(who), [], layout));
  } else {
    running?.abort(); // the pointer has moved on
    running = new AbortController();
    own.set(item, await api.position(asked(who), [item], layout, running.signal));
  }
  return own.get(item);
}

/** Show an item on the map and the translations toward it; null returns to the page's own. */
export function point(item) {
  clearTimeout(timer);
  if (!points.columns()) return;
  const wanted = item ?? resting;
  const place = wanted === null ? null : points.placeOf(wanted);
  const links = place && wanted === resting ? placed(items.picks) : [];
  overlay.show({ target: place, moved: [], links });
  map.label(place && item !== null ? wanted : null);
  if (!place || !subject || !points.hasTranslations()) return;
  timer = setTimeout(() => translate(subject, wanted, item !== null), kept.has(wanted) ? 0 : PAUSE);
}

async function translate(who, item, isPointed) {
  let toward;
  try {
    [toward] = (await position(who, item)).toward;
  } catch {
    return; // a newer request has replaced it, or the notice at the top says what is wrong
  }
  if (who !== subject || !toward?.position) return;
  const moved = toward.moved?.length
    ? toward.moved.map(({ position, share }) => ({ place: position, share }))
    : [{ place: toward.position, share: 1 }];
  overlay.show({ target: points.placeOf(item), moved });
  const [nearest] = toward.moved ?? [];
  const note = nearest ? `nearest past item: ${nameOf(nearest)} (${percent(nearest.share)})` : "";
  if (isPointed) map.label(item, note);
}
