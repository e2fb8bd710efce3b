// The pages about users and items: each fetches, then fills the content.

import * as api from "./api.js";
import { addRequests } from "./code.js";
import { byId, el, fill, number } from "./dom.js";
import { filterBar, readFilters } from "./filters.js";
import { bar, list, nameOf, owners, reasonedList, tags, userCards, userPage } from "./list.js";
import * as person from "./person.js";
import * as session from "./session.js";

const HISTORY = 30;
const MOST_HISTORY = 1000;
const content = byId("content");

/** A part of a page: a heading, a note next to it, and its content. */
export function part(title, note, ...children) {
  const aside = note ? el("span", { class: "faint" }, note) : null;
  return el("section", { class: "part" }, el("header", {}, el("h2", {}, title), aside), children);
}

/** Something that is opened on request. */
export const fold = (title, ...children) => el("details", { class: "fold" }, el("summary", {}, title), children);

/** What stands where there is nothing to show. */
export function empty(title, words, action = null) {
  return el("div", { class: "empty" }, el("h2", {}, title), el("p", {}, words), action);
}

/** The head of a page: its kind, name, facts and buttons. */
export function subject(kind, name, facts, ...actions) {
  return el(
    "div",
    { class: "subject" },
    el("p", { class: "kind" }, kind),
    el("h1", {}, name),
    facts ? el("p", { class: "facts" }, facts) : null,
    actions.length ? el("div", { class: "actions" }, actions) : null,
  );
}

const SOURCES = {
  popular: "The model does not know this user yet: these are the most popular items.",
  folded_in: "The user has events that are newer than the model: the list uses the whole history.",
};

/** Recommendations as a list, with filters and a line that says where they come from. */
export function recommended(answer, { label = "Recommendations", describe = () => ({}), filters = null } = {}) {
  const words = SOURCES[answer.source];
  const rows = (entry) => ({ place: entry.rank, ...describe(entry) });
  const none = empty("Nothing to recommend", "No other item of the model fits these filters.");
  const source = words ? el("p", { class: "source" }, words) : null;
  const shown = answer.items.length ? reasonedList(label, answer.items, rows) : none;
  const note = answer.items[0]?.reason ? "dots: strength of the evidence" : "";
  return part("Recommendations", note, filters, source, shown);
}

const when = (seconds) => new Date(1000 * seconds).toLocaleDateString("en", { dateStyle: "medium" });

function history(answer, more) {
  const shown = answer.history.length;
  const describe = ({ from, time }) => ({
    note: from === "event" ? `new${time === null ? "" : `, ${when(time)}`}` : "",
  });
  const count = shown < answer.count ? `${number(shown)} of ${number(answer.count)}` : number(answer.count);
  const made = part("History", `${count}, newest first`, list("History", answer.history, describe));
  if (shown < Math.min(answer.count, MOST_HISTORY)) {
    made.append(el("button", { type: "button", class: "more", on: { click: more } }, "Show all of it"));
  }
  return made;
}

/** A user: recommendations with reasons, history, similar users. */
export async function userView(id, { signal, can, query, model }) {
  const filters = readFilters(query);
  const [answer, controls] = await Promise.all([api.recommendations(id, filters, signal), filterBar(filters)]);
  const isKnown = answer.source !== "popular";
  const [facts, others] = await Promise.all([
    isKnown ? api.user(id, HISTORY, signal) : null,
    isKnown && can.similar_users ? api.similarUsers(id, signal).catch(() => null) : null,
  ]);
  const who = { user: answer.user, name: String(answer.user) };
  const compare = el("a", { class: "button", href: `#/compare/${encodeURIComponent(answer.user)}` }, "Compare with another user");
  const versions = el("a", { class: "button", href: `#/versions/${encodeURIComponent(answer.user)}` }, "Compare versions");
  const buttons = [compare, ...(model.versions.length > 1 ? [versions] : [])];
  const draw = (known) => {
    const words = known ? counted(known.count) : "The model does not know this user.";
    const similar = others?.users.length ? userCards("Similar users", others.users) : null;
    fill(
      content,
      subject("User", String(answer.user), words, ...(known ? [tryOutButton(known), ...buttons] : [])),
      recommended(answer, { filters: controls }),
      similar ? part("Similar users", "by what the model learned", similar) : null,
      known ? history(known, showAll) : null,
    );
  };
  const showAll = async () => {
    draw(await api.user(id, MOST_HISTORY));
    addRequests();
  };
  draw(facts);
  const past = facts?.history.map(({ item }) => item) ?? [];
  person.show(facts ? who : null, past, answer.items.map(({ item }) => item));
  return String(answer.user);
}

const counted = (count) => `${number(count)} ${count === 1 ? "item" : "items"} in the history`;

function tryOutButton({ history: newestFirst, count }) {
  const click = () => {
    session.replace([...newestFirst].reverse());
    location.hash = "#/session";
  };
  const what = newestFirst.length < count ? `the newest ${newestFirst.length}` : "this history";
  return el("button", { type: "button", class: "button", on: { click } }, `Try ${what} as a session`);
}

const LEVELS = {
  strong: "Strong evidence",
  fair: "Fair evidence",
  weak: "Weak evidence: few events",
};

/** Why an item is recommended, or not, to the user or session that the map shows. */
async function reasonFor(who, item, signal) {
  const answer = await api.explanation(who, item, signal).catch(() => null);
  if (!answer) return null;
  const effects = answer.effects.map((effect) => ({ ...effect, categories: [] }));
  const describe = ({ effect, share }) => ({ note: [effect > 0 ? "speaks for it " : "speaks against it ", bar(share)] });
  const words = [
    `Scores higher than ${number(answer.percentile, 1)} % of all items.`,
    `${LEVELS[answer.evidence]} (${owners(answer.users)}).`,
  ];
  const formula = [
    el("p", {}, answer.sentence),
    el("p", { class: "faint" }, `Score ${number(answer.score, 4)}. ${answer.meaning}`),
    answer.notes.map((note) => el("p", { class: "faint" }, note)),
  ];
  return part(
    `Why, for ${who.session ? "the session" : who.name}`,
    "",
    el("p", { class: "verdict" }, words.join(" ")),
    effects.length ? list("Reasons", effects, describe) : null,
    fold("Details: score and formula", formula),
  );
}

function factsTable(facts) {
  const rows = Object.entries(facts).map(([name, value]) => {
    const words = typeof value === "number" ? number(value, 4) : String(value);
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, words));
  });
  return rows.length ? part("Facts", "", el("table", {}, el("tbody", {}, rows))) : null;
}

function similarPart(similar, isKnown) {
  if (similar) {
    const rows = list("Similar items", similar.items, (entry) => ({ place: entry.rank }));
    return part("Similar items", "joined to it on the map", rows);
  }
  const why = isKnown
    ? "This model has no similarity of items."
    : "The model was fitted before this item appeared: it is not recommended yet.";
  return part("Similar items", "", empty("None to show", why));
}

/** The button that adds an item to the session, or removes it. */
function sessionButton(facts) {
  const button = el("button", { type: "button", class: "button first", "data-add": String(facts.item) });
  const label = () => {
    button.textContent = session.has(facts.item) ? "Remove from the session" : "Add to the session";
  };
  button.addEventListener("click", () => session.toggle(facts));
  button.addEventListener("session", label);
  label();
  return button;
}

const NO_USER = "Open a user, or try a session, and come back to see why this item is recommended or not.";

/** An item: facts, why it is recommended to the user on the map, similar items. */
export async function itemView(id, { signal, can }) {
  const facts = await api.item(id, signal);
  const who = person.current();
  const [similar, reason] = await Promise.all([
    can.similar_items && facts.known ? api.similarItems(id, signal).catch(() => null) : null,
    who && can.explain && facts.known ? reasonFor(who, facts.item, signal) : null,
  ]);
  const actions = facts.known ? [sessionButton(facts)] : [];
  if (who?.user !== undefined) actions.push(el("a", { class: "button", href: userPage(who.user) }, `Back to ${who.name}`));
  const about = [owners(facts.users), ...(facts.title === null ? [] : [`id ${facts.item}`])];
  const line = el("span", { class: "under" }, tags(facts.categories), about.map((words) => el("span", {}, words)));
  fill(
    content,
    subject("Item", nameOf(facts), line, ...actions),
    reason ?? (facts.known && can.explain && !who ? el("p", { class: "lead" }, NO_USER) : null),
    similarPart(similar, facts.known),
    factsTable(facts.facts ?? {}),
  );
  person.rest(facts.item, similar?.items.map(({ item }) => item) ?? []);
  return nameOf(facts);
}

/** The start: what is served, users and items to begin with. */
export async function homeView({ signal, model }) {
  const found = await api.search("", 8, signal);
  const { users, items, interactions } = model.report;
  const sizes = [[users, "users"], [items, "items"], [interactions, "events"]];
  const words = sizes.filter(([count]) => count !== undefined).map(([count, name]) => `${number(count)} ${name}`);
  const popular = list("Popular items", found.items, (entry, place) => ({
    place: place + 1,
    note: owners(entry.users),
  }));
  const lead = "Open a user to see what is recommended and why. Open an item to see similar ones. Try items of your own as a session.";
  fill(
    content,
    subject("Explorer", `What ${model.model} recommends`, words.join(" · "), el("a", { class: "button", href: "#/model" }, "Is the model any good?")),
    el("p", { class: "lead" }, lead),
    part("Example users", "with most events", userCards("Example users", found.users)),
    part("Popular items", "", popular),
  );
  person.show(null);
  return "";
}

/** What is shown when a page cannot be: the sentence of the service, and a way on. */
export function failed(error, retry) {
  const again = el("button", { type: "button", class: "button", on: { click: retry } }, "Try again");
  const home = el("a", { class: "button", href: "#/" }, "Back to the start");
  const titles = { unknown: "There is no user or item with this id", away: "The service is away" };
  const title = titles[error.code] ?? "That did not work";
  const way = error.code === "unknown" ? home : again;
  fill(content, el("div", { class: "empty" }, el("h1", {}, title), el("p", {}, error.message), way));
  person.show(null);
}
