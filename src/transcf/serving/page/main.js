// The page as a whole: from the address to a view, shortcuts, and what happens without the service.

import * as api from "./api.js";
import { addRequests } from "./code.js";
import { byId, el, fill, say } from "./dom.js";
import { colorBy, colorTags, itemPage, whenPointed, wordReasons } from "./list.js";
import * as map from "./map.js";
import * as person from "./person.js";
import * as points from "./points.js";
import * as search from "./search.js";
import * as session from "./session.js";
import * as theme from "./theme.js";
import { sessionView } from "./trying.js";
import { failed, homeView, itemView, userView } from "./views.js";

const content = byId("content");
const isNarrow = matchMedia("(max-width: 760px)");

let model = null;
let running = null;
let isMapAsked = false;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a broken escape is taken as it stands
  }
}

/** What the address asks for: the name of a view, ids, and filters. */
function route() {
  const [, name = "", rest = "", query = ""] = location.hash.match(/^#\/([^/?]*)\/?([^?]*)\??(.*)$/s) ?? [];
  return [name in VIEWS ? name : "home", rest, new URLSearchParams(query)];
}

//: Views by name, some of which are loaded when they are opened first.
const VIEWS = {
  home: (rest, given) => homeView(given),
  user: (rest, given) => userView(decoded(rest), given),
  item: (rest, given) => itemView(decoded(rest), given),
  session: (rest, given) => sessionView(given),
  compare: async (rest, given) => (await import("./compare.js")).compareView(rest.split("/").map(decoded), given),
  versions: async (rest, given) => (await import("./compare.js")).versionsView(rest.split("/").map(decoded), given),
  model: async (rest, given) => (await import("./model.js")).modelView(given),
  service: async (rest, given) => (await import("./service.js")).serviceView(given),
  api: async (rest, given) => (await import("./reference.js")).referenceView(given),
};
//: Views that have the map next to them.
const WITH_MAP = ["home", "user", "item", "session"];

async function render({ keepsPlace = false } = {}) {
  running?.abort();
  const own = (running = new AbortController());
  const asked = location.hash.slice(1);
  const [name, rest, query] = route();
  const tab = ["user", "item", "compare", "versions"].includes(name) ? "home" : name;
  for (const link of document.querySelectorAll("[data-tab]")) {
    link.dataset.tab === tab ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  document.body.classList.toggle("without-map", !WITH_MAP.includes(name));
  content.classList.add("busy");
  api.startRecording();
  try {
    const isAbout = ["model", "service", "versions"].includes(name);
    if (!model || isAbout) model = await api.models(isAbout);
    wordReasons(model.verb);
    const title = await VIEWS[name](rest, { signal: own.signal, model, can: model.can, query });
    addRequests();
    document.title = title ? `${title} · transcf explorer` : "transcf explorer";
    if (!keepsPlace) arrive(title);
  } catch (error) {
    if (own.signal.aborted) return;
    if (!(error instanceof api.ServiceError)) console.error(error);
    failed(error, () => render());
  } finally {
    if (own === running) {
      content.classList.remove("busy");
      document.body.dataset.shown = asked;
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
  byId("token").value = "";
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
  const isTyping = event.target.closest("input, select, dialog[open]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !(event.key in SHORTCUTS)) return;
  event.preventDefault();
  SHORTCUTS[event.key]();
});
byId("help").addEventListener("click", SHORTCUTS["?"]);

// -- the map ---------------------------------------------------------------------------------------

/** Show the list or the map where there is space for one of them only. */
function showPane(name) {
  document.body.dataset.pane = name;
  for (const button of document.querySelectorAll("[data-show]")) {
    button.setAttribute("aria-pressed", String(button.dataset.show === name));
  }
}

/** Fetch the map once it can be seen. */
async function loadMap() {
  const isHidden = isNarrow.matches && document.body.dataset.pane !== "map";
  if (isMapAsked || isHidden || !WITH_MAP.includes(route()[0])) return;
  isMapAsked = true;
  await map.load();
}

for (const button of document.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => {
    showPane(button.dataset.show);
    loadMap();
  });
}
isNarrow.addEventListener("change", loadMap);

function clicked(item) {
  if (route()[0] !== "session") return void (location.hash = itemPage(item));
  session.toggle(points.entryOf(item));
}

// -- together --------------------------------------------------------------------------------------

/** The service has switched to another version of the model: fetch everything again. */
function changed() {
  model = null;
  say("The service has switched to another version of the model.");
  start();
}

async function start() {
  isMapAsked = false;
  await render(); // the content first: the map is the largest answer
  await loadMap();
}

api.connect({ token: askForToken, reach: reached, change: changed });
colorBy(points.colorOf);
whenPointed(person.point);
map.whenUsed({ hover: person.point, click: clicked, load: person.reload, color: colorTags });
theme.watch(map.recolor);
session.watch((items) => {
  count(items);
  if (route()[0] === "session") render({ keepsPlace: true });
});
addEventListener("hashchange", async () => {
  showPane("list");
  await render();
  await loadMap();
});
count(session.all());
document.body.dataset.pane = "list";
start();
