// Lists of items: a row each, walked through by arrow keys; the map shows what is in focus.

import { el, number, percent, shortened } from "./dom.js";
import * as session from "./session.js";

//: Past items with smaller shares are not named.
const LEAST_SHARE = 0.05;
//: An item that explains at least this many rows is named above the list.
const LEAST_GROUP = 3;
//: Longest name of a reason, in characters.
const LONGEST = 70;
//: The colour of what has none of its own, see style.css.
const GREY = 10;

let onPoint = () => {};

/** Set who is called with the item under the pointer or in focus (null: none). */
export function whenPointed(listener) {
  onPoint = listener;
}

/** The name of a past item in a reason. */
const causeName = (entry) => shortened(nameOf(entry), LONGEST);

/** Where an item, or a user, has its page. */
export const itemPage = (what) => `#/item/${encodeURIComponent(what)}`;
export const userPage = (who) => `#/user/${encodeURIComponent(who)}`;

/** The title of an item, or its id. */
export const nameOf = (entry) => entry.title ?? String(entry.item);

let colorOf = () => null;
let verb = "chose";

/** Set what users do with items, in the past tense. */
export function wordReasons(chosen) {
  verb = chosen;
}

/** Set how categories are coloured: from a name to the number of a colour, or null. */
export function colorBy(chooser) {
  colorOf = chooser;
}

/** The categories of an item in words, with their colours on the map; grey where it shows none. */
export function tags(categories) {
  return categories.slice(0, 3).map((category) => {
    return el("span", { class: "tag", "data-category": category }, dot(colorOf(category) ?? GREY), category);
  });
}

/** Give the categories on the page the colours that the map has now. */
export function colorTags() {
  for (const tag of document.querySelectorAll("[data-category]")) tag.replaceWith(...tags([tag.dataset.category]));
}

/** A dot in one of the map's colours. */
export function dot(color) {
  const made = el("span", { class: "dot", "aria-hidden": "true" });
  made.style.setProperty("--dot", `var(--c${color})`);
  return made;
}

/** A share as a small bar with its number. */
export function bar(share, words = percent(Math.abs(share))) {
  const filled = el("i", { class: share < 0 ? "away" : null });
  filled.style.width = `${Math.min(100, 100 * Math.abs(share))}%`;
  return el("span", { class: "share" }, el("span", { class: "bar", "aria-hidden": "true" }, filled), words);
}

const topCause = ({ reason }) => reason?.effects.find(({ effect }) => effect > 0);

/** Why an item is recommended: the past items that count most, with their shares. */
function reasonOf({ reason }) {
  const effects = (reason?.effects ?? []).filter(({ effect }) => effect > 0);
  const named = effects.filter(({ share }, place) => place === 0 || share > LEAST_SHARE).slice(0, 2);
  if (!named.length) return null;
  const causes = named.flatMap((effect, place) => [place ? " and " : "", cause(causeName(effect), effect.share)]);
  return el("span", { class: "reason" }, `Because you ${verb} `, causes);
}

/** A name and its bar, which stays in a line with the last word. */
function cause(name, share) {
  const [, start, last] = name.match(/^(.*\s)?(\S+)\s*$/s) ?? [null, "", name];
  return [el("b", {}, start ?? ""), el("span", { class: "cause" }, el("b", {}, last), " ", bar(share))];
}

const EVIDENCE = { strong: 3, fair: 2, weak: 1 };

/** How far a score can be trusted. */
function evidence({ evidence: level, users }) {
  const words = `${level[0].toUpperCase()}${level.slice(1)} evidence: ${owners(users)}`;
  const dots = [1, 2, 3].map((place) => el("i", { class: place <= EVIDENCE[level] ? "full" : null }));
  const shown = el("span", { class: "evidence", role: "img", "aria-label": words, title: words }, dots);
  return level === "weak" ? el("span", {}, shown, " weak evidence") : shown;
}

function aboutLink(entry) {
  const label = `About ${nameOf(entry)}`;
  return el("a", { class: "add", href: itemPage(entry.item), "aria-label": label, title: label }, "›");
}

function addButton(entry) {
  const button = el("button", { type: "button", class: "add", "data-add": String(entry.item) });
  const show = () => {
    const taken = session.has(entry.item);
    button.textContent = taken ? "✓" : "+";
    button.setAttribute("aria-pressed", String(taken));
    button.setAttribute("aria-label", `${nameOf(entry)}: in the session`);
    button.title = taken ? "Remove it from the session" : "Add it to the session";
  };
  button.addEventListener("click", () => session.toggle(entry));
  button.addEventListener("session", show);
  show();
  return button;
}

/**
 * A row of a list.
 * `place`: what stands before it; `note`: a few words or nodes next to the categories; `end`: further
 * buttons; `act`: what a click does, if it does not open the item's page; `mark`: a class.
 */
function row(entry, { place = "", note = "", end = [], act = null, mark = "" }) {
  const support = entry.reason ? evidence(entry.reason) : null;
  const main = el(
    act ? "button" : "a",
    act ? { class: "main", type: "button", on: { click: act } } : { class: "main", href: itemPage(entry.item) },
    el("span", { class: "title" }, nameOf(entry)),
    el("span", { class: "under" }, tags(entry.categories ?? []), note ? el("span", {}, note) : null, support),
    reasonOf(entry),
  );
  const made = el(
    "li",
    { class: `row ${mark}`, "data-item": String(entry.item) },
    el("span", { class: "place", "aria-hidden": "true" }, place),
    main,
    el("span", { class: "end" }, end, act ? aboutLink(entry) : addButton(entry)),
  );
  made.addEventListener("pointerenter", () => onPoint(entry.item));
  made.addEventListener("pointerleave", () => onPoint(null));
  main.addEventListener("focus", () => onPoint(entry.item));
  main.addEventListener("blur", () => onPoint(null));
  return made;
}

/** A list of items; `describe` gives the options of a row, see `row`. */
export function list(label, entries, describe = () => ({})) {
  const rows = entries.map((entry, place) => row(entry, describe(entry, place)));
  const made = el("ol", { class: "rows", "aria-label": label }, rows);
  walked(made, ".main");
  return made;
}

/** A list that can be grouped by the past item that explains most of a row. */
export function reasonedList(label, entries, describe) {
  const groups = Map.groupBy(entries, (entry) => topCause(entry)?.item ?? null);
  const plain = list(label, entries, describe);
  const [[cause, largest]] = [...groups].sort(([, one], [, other]) => other.length - one.length);
  if (cause === null || largest.length < LEAST_GROUP || groups.size < 2) return [plain];
  const place = el("div", {}, plain);
  const button = el("button", { type: "button", class: "button small", "aria-pressed": "false" }, "Group by reason");
  button.addEventListener("click", () => {
    const isGrouped = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!isGrouped));
    place.replaceChildren(...(isGrouped ? [plain] : grouped(label, groups, describe)));
  });
  const words = `${largest.length} of ${entries.length} because of ${causeName(topCause(largest[0]))}`;
  return [el("p", { class: "groups" }, el("span", {}, words), button), place];
}

function grouped(label, groups, describe) {
  return [...groups].map(([cause, entries]) => {
    const name = cause === null ? "Other reasons" : `Because you ${verb} ${causeName(topCause(entries[0]))}`;
    return el("section", { class: "group-of" }, el("h3", {}, name), list(`${label}: ${name}`, entries, describe));
  });
}

/** Let arrow keys walk through the links of a list, of which one alone is a stop of the Tab key. */
export function walked(node, links) {
  const all = () => [...node.querySelectorAll(links)];
  const settle = (link) => {
    for (const other of all()) other.tabIndex = other === link ? 0 : -1;
    for (const button of node.querySelectorAll(".row .end > *")) {
      button.tabIndex = button.closest(".row") === link.closest(".row") ? 0 : -1;
    }
  };
  node.addEventListener("focusin", (event) => {
    const link = event.target.closest(".row")?.querySelector(links) ?? event.target;
    settle(link);
  });
  node.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    const those = all();
    const here = those.indexOf(event.target.closest(".row")?.querySelector(links) ?? event.target);
    const next = Math.min(those.length - 1, Math.max(0, here + steps[event.key]));
    event.preventDefault();
    those[next]?.focus();
  });
  if (all().length) settle(all()[0]);
}

/** How many users have an item, in words. */
export const owners = (count) => `${number(count)} ${count === 1 ? "user has" : "users have"} it`;

/** Users as cards: length of the history, favourite categories, items in common. */
export function userCards(label, users, linkOf = ({ user }) => userPage(user)) {
  const cards = users.map((card) => {
    const facts = `${number(card.count)} ${card.count === 1 ? "event" : "events"}`;
    const shared = card.common === undefined ? "" : `, ${number(card.common)} in common`;
    return el(
      "li",
      {},
      el(
        "a",
        { class: "card", href: linkOf(card) },
        el("b", {}, String(card.user)),
        el("span", {}, facts + shared),
        el("span", { class: "under" }, tags(card.categories)),
      ),
    );
  });
  return el("ul", { class: "cards", "aria-label": label }, cards);
}
