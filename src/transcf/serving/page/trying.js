// The session that is tried out: click items, and the recommendations change.

import * as api from "./api.js";
import { byId, el, fill, say } from "./dom.js";
import { readFilters, filterBar } from "./filters.js";
import { list, nameOf } from "./list.js";
import * as person from "./person.js";
import * as session from "./session.js";
import { empty, part, recommended, subject } from "./views.js";

const ABOUT =
  "A user of whom only these items are known, in this order. " +
  "Add items from lists, by search, or by a click on the map.";
const content = byId("content");
//: Newest items that a long session shows, so that the recommendations are not far below.
const NEWEST = 6;

let hasAll = false; // all items of the session are shown

function small(words, label, click, isOff = false) {
  const button = el("button", { type: "button", class: "add", "aria-label": label, title: label, disabled: isOff }, words);
  button.addEventListener("click", click);
  return button;
}

function order(items) {
  const isLong = !hasAll && items.length > NEWEST + 1;
  const newestFirst = [...items].reverse().slice(0, isLong ? NEWEST : items.length);
  const rows = list("The session", newestFirst, (entry, place) => ({
    place: items.length - place,
    note: place ? "" : "the newest",
    end: [
      small("↑", `${nameOf(entry)}: later`, () => session.move(entry.item, 1), place === 0),
      small("↓", `${nameOf(entry)}: earlier`, () => session.move(entry.item, -1), place === items.length - 1),
    ],
  }));
  if (!isLong) return rows;
  const more = el("button", { type: "button", class: "more" }, `Show all ${items.length}`);
  more.addEventListener("click", () => {
    hasAll = true;
    more.parentElement.replaceChild(order(items), rows);
    more.remove();
  });
  return [rows, more];
}

/** Where the keyboard is, to return to it after the lists have changed. */
function focused() {
  const row = document.activeElement?.closest?.("#content .row");
  if (!row) return null;
  const name = row.parentElement.getAttribute("aria-label");
  const place = [...row.parentElement.children].indexOf(row);
  const button = [...row.querySelectorAll("button")].indexOf(document.activeElement);
  return { name, place, item: row.dataset.item, button };
}

function refocus(before) {
  if (!before) return;
  const rows = [...content.querySelectorAll(".rows")].find((node) => node.getAttribute("aria-label") === before.name);
  const own = [...(rows?.children ?? [])];
  const row = own.find((node) => node.dataset.item === before.item) ?? own[Math.min(before.place, own.length - 1)];
  const button = row?.querySelectorAll("button")[before.button];
  (button && !button.disabled ? button : row?.querySelector(".main"))?.focus({ preventScroll: true });
}

/** The page: the items in order, and the recommendations for them. */
export async function sessionView({ signal, query }) {
  const items = session.all();
  const ids = items.map(({ item }) => item);
  const filters = readFilters(query);
  const [answer, controls] = await Promise.all([api.session(ids, filters, signal), filterBar(filters)]);
  const clear = el("button", { type: "button", class: "button", on: { click: () => session.replace([]) } }, "Start over");
  const nothing = part("In the session", "", empty("Nothing yet", "Begin with one of the items below."));
  // Sessions are always folded in: no line says so.
  const source = answer.source === "folded_in" ? "model" : answer.source;
  const answered = { ...answer, source: items.length ? source : "empty" };
  const describe = (entry) => ({ act: () => session.toggle(entry) });
  const before = focused();
  fill(
    content,
    subject("Try-out", "A session", ABOUT, ...(items.length ? [clear] : [])),
    items.length ? part("In the session", "newest first", order(items)) : nothing,
    skipped(answer.skipped),
    recommended(answered, { label: "Recommendations for the session", describe, filters: controls }),
  );
  refocus(before);
  say(`${answer.items.length} recommendations for ${items.length} items`);
  person.show(items.length ? { session: ids, name: "session" } : null, ids, answer.items.map(({ item }) => item));
  return "Session";
}

function skipped(those) {
  if (!those.length) return null;
  const names = those.map(String).join(", ");
  return el("p", { class: "source" }, `The model does not know ${names}: left out.`);
}
