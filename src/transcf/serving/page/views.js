// The pages about people and items: each fetches, then fills the content.

import * as api from "./api.js";
import { byId, el, fill, number, percent } from "./dom.js";
import { list, nameOf, owners, tags, userPage } from "./list.js";
import * as person from "./person.js";
import * as session from "./session.js";

const HISTORY = 30;
const MOST_HISTORY = 1000;
const content = byId("content");

/** A part of a page: a heading, a note beside it, and what it holds. */
export function part(title, note, ...children) {
  const beside = note ? el("span", { class: "faint" }, note) : null;
  return el("section", { class: "part" }, el("header", {}, el("h2", {}, title), beside), children);
}

/** What stands where there is nothing to show. */
export function empty(title, words, action = null) {
  return el("div", { class: "empty" }, el("h2", {}, title), el("p", {}, words), action);
}

/** The head of a page: what kind of thing it is, its name, facts and buttons. */
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
  popular: "Nobody knows this person yet: these are the items that most people have.",
  folded_in: "There are events since the model was fitted: the person was placed anew by the whole history.",
};

/** Recommendations as a list, with a line that says where they come from. */
export function recommended(answer, label = "Recommendations", act = () => null) {
  const words = SOURCES[answer.source];
  const note = answer.items[0]?.reason ? "with the past items that drew them" : "";
  const rows = list(label, answer.items, (entry) => ({ place: entry.rank, act: act(entry) }));
  const none = empty("Nothing to recommend", "The person has everything that the model knows.");
  const source = words ? el("p", { class: "source" }, words) : null;
  return part("Recommendations", note, source, answer.items.length ? rows : none);
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

function similarPeople(answer) {
  if (!answer?.users.length) return null;
  const links = answer.users.map(({ user }) => el("a", { class: "chip", href: userPage(user) }, String(user)));
  return part("Similar users", "", el("div", { class: "chips" }, links));
}

/** A user: recommendations with reasons, history, similar users. */
export async function userView(id, { signal, can }) {
  const answer = await api.recommendations(id, 12, signal);
  const isKnown = answer.source !== "popular";
  const [facts, others] = await Promise.all([
    isKnown ? api.user(id, HISTORY, signal) : null,
    isKnown && can.similar_users ? api.similarUsers(id, signal).catch(() => null) : null,
  ]);
  const who = { user: answer.user, name: String(answer.user) };
  const draw = (known) => {
    const words = known ? counted(known.count) : "The model does not know this user.";
    fill(
      content,
      subject("User", String(answer.user), words, ...(known ? [tryOutButton(known)] : [])),
      recommended(answer),
      known ? history(known, async () => draw(await api.user(id, MOST_HISTORY))) : null,
      similarPeople(others),
    );
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

/** Why an item is, or is not, for the person that the map shows. */
async function reasonFor(who, item, signal) {
  const answer = await api.explanation(who, item, signal).catch(() => null);
  if (!answer) return null;
  const effects = answer.effects.map((effect) => ({ ...effect, categories: [] }));
  const describe = ({ effect, share }) => ({
    note: `${effect > 0 ? "drew it" : "pushed it away"}, ${percent(Math.abs(share))}`,
  });
  return part(
    `Why, for ${who.session ? "the session" : who.name}`,
    `score ${number(answer.score, 3)}`,
    effects.length ? list("Reasons", effects, describe) : null,
    el("p", { class: "faint" }, answer.notes[0] ?? ""),
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
    return part("Similar items", "", rows);
  }
  const why = isKnown
    ? "This model cannot say what is similar."
    : "The model was fitted before this item came: it is not recommended yet.";
  return part("Similar items", "", empty("None to show", why));
}

/** The button that adds an item to the session, or takes it out. */
function sessionButton(facts) {
  const button = el("button", { type: "button", class: "button first", "data-add": String(facts.item) });
  const label = () => {
    button.textContent = session.has(facts.item) ? "Take it out of the session" : "Add to the session";
  };
  button.addEventListener("click", () => session.toggle(facts));
  button.addEventListener("session", label);
  label();
  return button;
}

/** An item: facts, why it is for whom the map shows, similar items. */
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
    reason,
    similarPart(similar, facts.known),
    factsTable(facts.facts ?? {}),
  );
  person.rest(facts.item, similar?.items.map(({ item }) => item) ?? []);
  return nameOf(facts);
}

/** Where one starts: what is served, people and items to begin with. */
export async function homeView({ signal, model }) {
  const found = await api.search("", "all", 10, signal);
  const links = found.users.map(({ user }) => el("a", { class: "chip", href: userPage(user) }, String(user)));
  const { users, items, interactions } = model.report;
  const sizes = [[users, "users"], [items, "items"], [interactions, "events"]];
  const words = sizes.filter(([count]) => count !== undefined).map(([count, name]) => `${number(count)} ${name}`);
  const popular = list("Popular items", found.items, (entry, place) => ({
    place: place + 1,
    note: owners(entry.users),
  }));
  fill(
    content,
    subject("Explorer", `What ${model.model} knows`, words.join(" · ")),
    part("Somebody to begin with", "users with most events", el("div", { class: "chips" }, links)),
    part("What most people have", "add some to a session, or open one", popular),
  );
  person.show(null);
  return "";
}

/** What is shown when a page cannot be: the sentence of the service, and a way on. */
export function failed(error, retry) {
  const again = el("button", { type: "button", class: "button", on: { click: retry } }, "Try again");
  const home = el("a", { class: "button", href: "#/" }, "Back to the start");
  const titles = { unknown: "Nobody and nothing has this id", away: "The service is away" };
  const title = titles[error.code] ?? "That did not work";
  fill(content, empty(title, error.message, error.code === "unknown" ? home : again));
  person.show(null);
}
