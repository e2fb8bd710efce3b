// Two users side by side: what both get, and what only one gets.

import * as api from "./api.js";
import { byId, el, fill, number } from "./dom.js";
import { filterBar, readFilters } from "./filters.js";
import { list, userCards, userPage } from "./list.js";
import * as person from "./person.js";
import { part, subject } from "./views.js";

const content = byId("content");
const address = (one, other) => `#/compare/${encodeURIComponent(one)}/${encodeURIComponent(other)}`;

function chooser(one, other) {
  const field = el("input", { id: "other-user", required: true, autocomplete: "off", value: other });
  const form = el("form", { class: "choose" }, el("label", { for: "other-user" }, "Second user"), field, el("button", { class: "button first" }, "Compare"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address(one, field.value.trim());
  });
  return form;
}

function column(answer, facts, common) {
  const describe = (entry) => ({ place: entry.rank, mark: common.has(entry.item) ? "both" : "", note: common.has(entry.item) ? "both" : "" });
  const head = el("h2", {}, el("a", { href: userPage(answer.user), class: "link" }, String(answer.user)));
  const words = facts ? `${number(facts.count)} items in the history` : "unknown to the model: popular items";
  return el("section", { class: "column" }, head, el("p", { class: "faint" }, words), list(`Recommendations for ${answer.user}`, answer.items, describe));
}

/** The page for one user, who is to be compared, or for two: ids separated by a slash. */
export async function compareView(ids, { signal, can, query }) {
  const [one, other = ""] = ids;
  if (!other) {
    const similar = can.similar_users ? await api.similarUsers(one, signal).catch(() => null) : null;
    const cards = similar ? userCards("Similar users", similar.users, ({ user }) => address(one, user)) : null;
    fill(content, subject("Compare", `${one} with another user`, ""), chooser(one, ""), cards ? part("Similar users", "", cards) : null);
    person.show(null);
    return `Compare ${one}`;
  }
  const filters = readFilters(query);
  const [controls, ...answers] = await Promise.all([filterBar(filters), ...[one, other].map((id) => api.recommendations(id, filters, signal))]);
  const facts = await Promise.all([one, other].map((id) => api.user(id, 1, signal).catch(() => null)));
  const [left, right] = answers.map(({ items }) => new Set(items.map(({ item }) => item)));
  const common = new Set([...left].filter((item) => right.has(item)));
  const words = `${common.size} of ${Math.max(left.size, right.size)} recommendations are the same`;
  fill(
    content,
    subject("Compare", `${one} and ${other}`, words),
    controls,
    el("div", { class: "columns" }, answers.map((answer, place) => column(answer, facts[place], common))),
    chooser(one, other),
  );
  person.show(null);
  return `Compare ${one} and ${other}`;
}
