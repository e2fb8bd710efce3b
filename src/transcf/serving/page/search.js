// The search box: a combobox that finds users and items while one types.

import * as api from "./api.js";
import { byId, el, fill, number, say } from "./dom.js";
import { itemPage, nameOf, tags, userPage } from "./list.js";

const PAUSE = 120;
const input = byId("query");
const box = byId("found");

let timer = null;
let running = null;
let chosen = -1;

const options = () => [...box.querySelectorAll(".option")];

function open(isOpen) {
  box.hidden = !isOpen;
  input.setAttribute("aria-expanded", String(isOpen));
  if (!isOpen) choose(-1);
}

function choose(place) {
  const those = options();
  chosen = place;
  those.forEach((option, number) => option.setAttribute("aria-selected", String(number === place)));
  if (place < 0) return input.removeAttribute("aria-activedescendant");
  input.setAttribute("aria-activedescendant", those[place].id);
  those[place].scrollIntoView({ block: "nearest" });
}

function go(href) {
  open(false);
  input.value = "";
  input.blur();
  location.hash = href;
}

function option(number, href, ...children) {
  const made = el("div", { class: "option", role: "option", id: `found-${number}`, "aria-selected": "false" }, ...children);
  made.addEventListener("pointerdown", (event) => event.preventDefault());
  made.addEventListener("click", () => go(href));
  made.addEventListener("pointermove", () => choose(options().indexOf(made)));
  made.dataset.href = href;
  return made;
}

const heading = (words) => el("div", { class: "group", role: "presentation" }, words);

function show({ items, users, categories }, text) {
  const rows = [];
  let count = 0;
  if (users.length) rows.push(heading(text ? "Users" : "Users with most events"));
  for (const found of users) {
    const meta = el("span", { class: "meta" }, `${number(found.count)} events`);
    rows.push(option(count++, userPage(found.user), el("span", { class: "name" }, String(found.user)), meta));
  }
  if (items.length) rows.push(heading(text ? "Items" : "Popular items"));
  for (const found of items) {
    const meta = el("span", { class: "meta" }, tags(found.categories.slice(0, 1)));
    rows.push(option(count++, itemPage(found.item), el("span", { class: "name" }, nameOf(found)), meta));
  }
  if (text && categories.length) rows.push(heading("Categories"));
  for (const found of text ? categories : []) {
    const meta = el("span", { class: "meta" }, `${number(found.items)} items`);
    const href = `#/session?category=${encodeURIComponent(found.category)}`;
    rows.push(option(count++, href, el("span", { class: "name" }, found.category), meta));
  }
  if (!count) rows.push(el("div", { class: "nothing", role: "presentation" }, `Nothing has “${text}” in its id, title or category.`));
  fill(box, rows);
  open(true);
  say(count ? `${count} found` : "Nothing found");
  if (text && count) choose(0);
}

async function look() {
  clearTimeout(timer);
  timer = null;
  running?.abort();
  running = new AbortController();
  const text = input.value.trim();
  try {
    show(await api.search(text, 6, running.signal), text);
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(box, el("div", { class: "nothing", role: "presentation" }, error.message));
    open(true);
  }
}

/** Go to the chosen one; before the answer has come, to the first one found. */
async function enter() {
  if (timer !== null) await look();
  if (input.value && chosen >= 0) go(options()[chosen].dataset.href);
}

input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(look, PAUSE);
});
input.addEventListener("focus", look);
input.addEventListener("blur", () => {
  clearTimeout(timer);
  timer = null;
  running?.abort();
  open(false);
});
input.addEventListener("keydown", (event) => {
  const last = options().length - 1;
  if (event.key === "Escape") {
    input.value = "";
    input.blur();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (last < 0) return;
    const step = event.key === "ArrowDown" ? 1 : -1;
    const next = chosen + step;
    choose(next > last ? 0 : next < 0 ? last : next);
  } else if (event.key === "Enter") {
    event.preventDefault();
    enter();
  }
});

/** Bring the keyboard to the search box. */
export const focus = () => input.focus();
