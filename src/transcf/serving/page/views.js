// The pages about users and items: each fetches, then fills the content.

import * as api from "./api.js";
import { addRequests } from "./code.js";
import { byId, el, fill, number, percent, shortened } from "./dom.js";
import { filterBar, readFilters } from "./filters.js";
import { bar, itemPage, list, nameOf, owners, reasonedList, tags, userCards, userPage } from "./list.js";
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

/** A form with labelled fields and a button; `open` takes their values to an address. */
export function chooser(button, fields, open) {
  const labelled = fields.map(([words, field]) => el("label", {}, words, field));
  const form = el("form", { class: "choose" }, labelled, el("button", { class: "button first" }, button));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = open(...fields.map(([, field]) => field.value.trim()));
  });
  return form;
}

export const userField = (value) => el("input", { required: true, autocomplete: "off", value });

const SOURCES = {
  popular: "The model does not know this user yet: these are the most popular items.",
  empty: "The session is empty: these are the most popular items.",
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
  const compare = el("a", { class: "button", href: `#/compare/${encodeURIComponent(answer.user)}` }, "Compare users");
  const versions = el("a", { class: "button", href: `#/versions/${encodeURIComponent(answer.user)}` }, "Compare versions");
  const buttons = [compare, ...(model.versions.length > 1 ? [versions] : [])];
  const draw = (known) => {
    const words = known ? [counted(known.count), ...taste(known.history)] : "The model does not know this user.";
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

/** The most frequent categories of the newest items. */
function taste(history) {
  const counts = new Map();
  for (const category of history.flatMap(({ categories }) => categories)) counts.set(category, (counts.get(category) ?? 0) + 1);
  const names = [...counts].sort(([, one], [, other]) => other - one).map(([name]) => name);
  return names.length ? [", lately mostly ", el("span", { class: "inline" }, tags(names))] : [];
}

const counted = (count) => `${number(count)} ${count === 1 ? "item" : "items"} in the history`;

function tryOutButton({ history: newestFirst, count }) {
  const click = () => {
    session.replace([...newestFirst].reverse());
    location.hash = "#/session";
  };
  const what = newestFirst.length < count ? `The newest ${newestFirst.length} items` : "This history";
  return el("button", { type: "button", class: "button", title: `${what} as a session that can be changed`, on: { click } }, "Try as a session");
}

/** What the rest of the history adds. */
function otherReasons({ others, others_drew: drew, others_pushed: pushed }) {
  const parts = [[drew, "for it"], [pushed, "against it"]].filter(([share]) => share);
  const words = parts.map(([share, way]) => `${percent(Math.abs(share))} ${way}`);
  return `${number(others)} other past ${others === 1 ? "item" : "items together"}: ${words.join(", ") || "0 %"}.`;
}

/** Why an item is recommended, or not, to the user or session that the map shows. */
async function reasonFor(who, item, signal) {
  const answer = await api.explanation(who, item, signal).catch(() => null);
  if (!answer) return null;
  const effects = answer.effects.map((effect) => ({ ...effect, categories: [] }));
  const describe = ({ effect, share }, place) => ({ place: place + 1, note: [effect > 0 ? "speaks for it " : "speaks against it ", bar(share)] });
  const whose = who.session ? "The session" : `User ${who.name}`;
  const level = `${answer.evidence[0].toUpperCase()}${answer.evidence.slice(1)} evidence`;
  const words = [
    ...(answer.seen ? [`${whose} has it already, so it is not recommended.`] : []),
    `Scores higher than ${number(answer.percentile, 1)} % of all items.`,
    `${level}: ${owners(answer.users)}, ${counted(answer.effects.length + answer.others)}.`,
  ];
  const formula = [
    el("p", {}, answer.sentence),
    el("p", { class: "faint" }, `Score ${number(answer.score, 4)}. ${answer.meaning}`),
    answer.notes.map((note) => el("p", { class: "faint" }, note)),
  ];
  return part(
    `Why, for ${who.session ? "the session" : `user ${who.name}`}`,
    effects.length ? "shares of the score" : "",
    el("p", { class: "verdict" }, words.join(" ")),
    effects.length ? list("Reasons", effects, describe) : null,
    answer.others ? el("p", { class: "faint" }, otherReasons(answer)) : null,
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

/** The user that the address names, who is put on the map, or whom the map shows. */
async function personOf(asked, signal) {
  const shown = person.current();
  if (asked === null || asked === String(shown?.user)) return shown;
  const facts = await api.user(asked, HISTORY, signal);
  person.show({ user: facts.user, name: String(facts.user) }, facts.history.map(({ item }) => item));
  return person.current();
}

const explained = (item, user) => `${itemPage(item)}?user=${encodeURIComponent(user)}`;

/** What asks for the user of an explanation. */
function askForUser(item) {
  const form = chooser("Explain", [["User", userField("")]], (user) => explained(item, user));
  return part("Why is it recommended, or not?", "", el("p", { class: "faint" }, "Name a user, or come back from a user or a session."), form);
}

/** An item: facts, why it is recommended to the user on the map, similar items. */
export async function itemView(id, { signal, can, query }) {
  const [facts, who] = await Promise.all([api.item(id, signal), personOf(query.get("user"), signal)]);
  const [similar, reason] = await Promise.all([
    can.similar_items && facts.known ? api.similarItems(id, signal).catch(() => null) : null,
    who && can.explain && facts.known ? reasonFor(who, facts.item, signal) : null,
  ]);
  const actions = facts.known ? [sessionButton(facts)] : [];
  if (who?.user !== undefined) actions.push(el("a", { class: "button", href: userPage(who.user) }, `Back to ${shortened(who.name, 30)}`));
  const about = [owners(facts.users), ...(facts.title === null ? [] : [`id ${facts.item}`])];
  const line = el("span", { class: "under" }, tags(facts.categories), about.map((words) => el("span", {}, words)));
  fill(
    content,
    subject("Item", nameOf(facts), line, ...actions),
    reason ?? (facts.known && can.explain && !who ? askForUser(facts.item) : null),
    similarPart(similar, facts.known),
    factsTable(facts.facts ?? {}),
  );
  person.rest(facts.item, similar?.items.map(({ item }) => item) ?? []);
  // The explanation can be reloaded and sent to others.
  if (who?.user !== undefined) window.history.replaceState(null, "", explained(facts.item, who.user));
  return nameOf(facts);
}

/** The accuracy that was measured when the model was fitted, in a sentence. */
function verdict(compared) {
  if (!compared) return "Its accuracy has not been measured yet.";
  const { metric, model, popularity } = compared;
  const ratio = popularity > 0 ? `${number(model / popularity, 1)} times that of` : "where 0 is that of";
  return `On held-out events its ${metric} is ${model.toPrecision(2)}, ${ratio} recommending the most popular items.`;
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
  const lead = ["Open a user to see what is recommended and why. Open an item to see similar ones. Try items of your own ", el("a", { class: "link", href: "#/session" }, "as a session"), "."];
  fill(
    content,
    subject("Explorer", `What ${model.model} recommends`, words.join(" · ")),
    el("p", { class: "lead" }, lead),
    el("p", { class: "good" }, el("a", { class: "link", href: "#/model" }, "Is the model any good?"), " ", verdict(model.report.held_out_metric)),
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
