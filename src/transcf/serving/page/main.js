// The page as a whole: from the address to a view, shortcuts, and what happens when the service is away.

import * as api from "./api.js";
import { byId, el, fill, say } from "./dom.js";
import { colorBy, itemPage, whenPointed } from "./list.js";
import * as map from "./map.js";
import { modelView } from "./model.js";
import * as person from "./person.js";
import * as points from "./points.js";
import * as search from "./search.js";
import * as session from "./session.js";
import * as theme from "./theme.js";
import { sessionView } from "./trying.js";
import { failed, homeView, itemView, userView } from "./views.js";

const content = byId("content");

let model = null;
let running = null;

/** What the address asks for: the name of a view, and an id where it is about somebody. */
function route() {
  const [, name = "", rest = ""] = location.hash.match(/^#\/([^/]*)\/?(.*)$/s) ?? [];
  let id = rest;
  try {
    id = decodeURIComponent(rest);
  } catch {
    // a broken escape is taken as it stands
  }
  return [["user", "item", "session", "model"].includes(name) ? name : "home", id];
}

const VIEWS = {
  home: (id, given) => homeView(given),
  user: userView,
  item: itemView,
  session: (id, given) => sessionView(given),
  model: (id, given) => modelView(given.model),
};

async function render({ keepsPlace = false } = {}) {
  running?.abort();
  const own = (running = new AbortController());
  const [name, id] = route();
  for (const tab of document.querySelectorAll("[data-tab]")) {
    const isHere = tab.dataset.tab === name || (tab.dataset.tab === "home" && ["user", "item"].includes(name));
    isHere ? tab.setAttribute("aria-current", "page") : tab.removeAttribute("aria-current");
  }
  content.classList.add("busy");
  try {
    if (!model || name === "model") model = await api.models();
    const title = await VIEWS[name](id, { signal: own.signal, model, can: model.can });
    document.title = title ? `${title} · transcf explorer` : "transcf explorer";
    if (!keepsPlace) arrive(title);
  } catch (error) {
    if (own.signal.aborted) return;
    if (!(error instanceof api.ServiceError)) console.error(error);
    failed(error, () => render());
  } finally {
    if (own === running) {
      content.classList.remove("busy");
      document.body.dataset.shown = location.hash.slice(1);
    }
  }
}

function arrive(title) {
  scrollTo({ top: 0 });
  if (document.activeElement === document.body || document.activeElement?.closest("#content")) {
    content.focus({ preventScroll: true });
  }
  say(title);
}

function count(items) {
  const badge = byId("session-count");
  badge.textContent = items.length ? String(items.length) : "";
  badge.hidden = !items.length;
}

// -- the service: tokens, and whether it answers ---------------------------------------------------

function askForToken(wasWrong) {
  const dialog = byId("token-dialog");
  byId("token-title").textContent = wasWrong ? "That token was not right" : "This service asks for a token";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(byId("token").value.trim()), { once: true });
  });
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("token-dialog").close();
});

function reached(isThere) {
  const notice = byId("notice");
  if (isThere === notice.hidden) return;
  notice.hidden = isThere;
  if (isThere) return;
  const again = el("button", { type: "button", class: "button", on: { click: () => start() } }, "Try again");
  fill(notice, el("span", {}, "The service does not answer."), again);
}

// -- shortcuts -------------------------------------------------------------------------------------

function addFocused() {
  const row = document.activeElement?.closest(".row");
  const button = row ? row.querySelector("[data-add], button.main") : content.querySelector(".actions [data-add]");
  button?.click();
}

const SHORTCUTS = {
  "/": search.focus,
  e: () => (location.hash = "#/"),
  s: () => (location.hash = "#/session"),
  m: () => (location.hash = "#/model"),
  t: theme.next,
  a: addFocused,
  "?": () => byId("shortcuts").showModal(),
};

addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, dialog[open]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !(event.key in SHORTCUTS)) return;
  event.preventDefault();
  SHORTCUTS[event.key]();
});
byId("help").addEventListener("click", SHORTCUTS["?"]);

// -- together --------------------------------------------------------------------------------------

function clicked(item) {
  if (route()[0] !== "session") return void (location.hash = itemPage(item));
  session.toggle(points.entryOf(item));
}

/** Another version of the model answers: everything is asked for anew. */
function changed() {
  model = null;
  say("The service has changed over to another version of the model.");
  start();
}

async function start() {
  await Promise.all([render(), map.load()]);
  person.refresh();
}

api.connect({ token: askForToken, reach: reached, change: changed });
colorBy(points.colorOf);
whenPointed(person.point);
map.whenUsed({ hover: person.point, click: clicked });
theme.watch(map.recolor);
session.watch((items) => {
  count(items);
  if (route()[0] === "session") render({ keepsPlace: true });
});
addEventListener("hashchange", () => render());
count(session.all());
start();
