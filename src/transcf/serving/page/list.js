// Lists of items: a row each, walked through by arrow keys, with what the map shows beside it.

import { el, number, percent } from "./dom.js";
import * as session from "./session.js";

//: What counts less is not worth a second name.
const LEAST_SHARE = 0.05;

let onPoint = () => {};

/** Say who is told which item is under the pointer or in focus (null: none). */
export function whenPointed(listener) {
  onPoint = listener;
}

/** Where an item, or a user, has its page. */
export const itemPage = (what) => `#/item/${encodeURIComponent(what)}`;
export const userPage = (who) => `#/user/${encodeURIComponent(who)}`;

/** What people call an item. */
export const nameOf = (entry) => entry.title ?? String(entry.item);

let colorOf = () => null;

/** Say how categories are coloured: from a name to the number of a colour, or null. */
export function colorBy(chooser) {
  colorOf = chooser;
}

/** The categories of an item in words, the first with its colour. */
export function tags(categories) {
  return categories.slice(0, 3).map((category, place) => {
    const color = place === 0 ? colorOf(category) : null;
    return el("span", { class: "tag" }, color === null ? null : dot(color), category);
  });
}

/** A dot in one of the map's colours. */
export function dot(color) {
  const made = el("span", { class: "dot", "aria-hidden": "true" });
  made.style.setProperty("--dot", `var(--c${color})`);
  return made;
}

/** Why an item is recommended: the past items that drew it, with their shares. */
function reasonOf(reason) {
  const effects = (reason?.effects ?? []).filter(({ effect }) => effect > 0);
  const drew = effects.filter(({ share }, place) => place === 0 || share > LEAST_SHARE).slice(0, 2);
  if (!drew.length) return null;
  const named = drew.flatMap((effect, place) => [
    place ? " and " : "",
    el("b", {}, nameOf(effect)),
    ` (${percent(effect.share)})`,
  ]);
  return el("span", { class: "reason" }, "because of ", named);
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
    button.title = taken ? "Take it out of the session" : "Add it to the session";
  };
  button.addEventListener("click", () => session.toggle(entry));
  button.addEventListener("session", show);
  show();
  return button;
}

/**
 * A row of a list.
 * `place`: what stands before it; `note`: a few words beside the categories; `end`: further buttons;
 * `act`: what a click does, if it does not open the item's page.
 */
function row(entry, { place = "", note = "", end = [], act = null }) {
  const main = el(
    act ? "button" : "a",
    act ? { class: "main", type: "button", on: { click: act } } : { class: "main", href: itemPage(entry.item) },
    el("span", { class: "title" }, nameOf(entry)),
    el("span", { class: "under" }, tags(entry.categories ?? []), note ? el("span", {}, note) : null),
    reasonOf(entry.reason),
  );
  const made = el(
    "li",
    { class: "row", "data-item": String(entry.item) },
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

/** A list of items; `describe` gives `place`, `note` and `end` of an entry. */
export function list(label, entries, describe = () => ({})) {
  const rows = entries.map((entry, place) => row(entry, describe(entry, place)));
  const made = el("ol", { class: "rows", "aria-label": label }, rows);
  walked(made, ".main");
  return made;
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

/** How many people have an item, in words. */
export const owners = (count) => `${number(count)} ${count === 1 ? "person has" : "people have"} it`;
