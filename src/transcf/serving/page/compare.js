// Two lists side by side: those of two users, or of two versions of the model for one user.

import * as api from "./api.js";
import { byId, el, fill, number } from "./dom.js";
import { filterBar, readFilters } from "./filters.js";
import { list, userCards, userPage } from "./list.js";
import * as person from "./person.js";
import { chooser, part, subject, userField } from "./views.js";

const content = byId("content");
const address = (view, ...ids) => `#/${view}/${ids.map(encodeURIComponent).join("/")}`;

/** Two lists, `{answer, title, words}` each, with a mark at the items of both. */
function columns(both) {
  const [left, right] = both.map(({ answer }) => new Set(answer.items.map(({ item }) => item)));
  const common = left.intersection(right);
  const describe = (entry) => {
    const isCommon = common.has(entry.item);
    return { place: entry.rank, mark: isCommon ? "both" : "", note: isCommon ? "in both lists" : "" };
  };
  const made = both.map(({ answer, title, words, label }) => {
    const rows = list(`Recommendations ${label}`, answer.items, describe);
    return el("section", { class: "column" }, el("header", {}, el("h2", {}, title), el("p", { class: "faint" }, words)), rows);
  });
  const most = Math.max(left.size, right.size);
  return [`${common.size} of ${most} recommendations are the same`, el("div", { class: "columns" }, made)];
}

/** The page for one user, who is to be compared, or for two: ids separated by a slash. */
export async function compareView([one, other = ""], { signal, can, query }) {
  const choice = chooser("Compare", [["Second user", userField(other)]], (second) => address("compare", one, second));
  if (!other) {
    const similar = can.similar_users ? await api.similarUsers(one, signal).catch(() => null) : null;
    const cards = similar ? userCards("Similar users", similar.users, ({ user }) => address("compare", one, user)) : null;
    fill(content, subject("Compare", `${one} with another user`, ""), choice, cards ? part("Similar users", "", cards) : null);
    person.show(null);
    return `Compare ${one}`;
  }
  const filters = readFilters(query);
  const sides = [one, other].map(async (id) => {
    const [answer, facts] = await Promise.all([
      api.recommendations(id, filters, signal),
      api.user(id, 1, signal).catch(() => null),
    ]);
    const title = el("a", { href: userPage(answer.user), class: "link" }, String(answer.user));
    const words = facts ? `${number(facts.count)} items in the history` : "unknown to the model: popular items";
    return { answer, title, words, label: `for ${answer.user}` };
  });
  const [controls, ...both] = await Promise.all([filterBar(filters), ...sides]);
  const [words, lists] = columns(both);
  fill(content, subject("Compare", `${one} and ${other}`, words), controls, lists, choice);
  person.show(null);
  return `Compare ${one} and ${other}`;
}

const ONLY_ONE = [
  "The service has one version of the model only. ", el("code", {}, "transcf refresh"),
  " adds a version that has learned from new events; the folder of another model can be copied next to the versions.",
];

/** The page for a user and two versions of the model: an id and two numbers. */
export async function versionsView([user, first, second], { signal, query, model }) {
  const versions = model.versions.filter(({ made }) => made !== null);
  const numbers = versions.map(({ version }) => version);
  const others = numbers.filter((version) => version !== model.version);
  const chosen = [first, second].map(Number);
  const pair = chosen.every((version) => numbers.includes(version)) ? chosen : [model.version, others.at(-1)];
  if (!others.length) {
    fill(content, subject("Compare", "Two versions of the model", ONLY_ONE));
    person.show(null);
    return "Compare versions";
  }
  const about = (version) => versions.find((one) => one.version === version);
  const kindOf = (version) => `${about(version).class ?? "unknown"}${version === model.version ? ", served" : ""}`;
  const select = (value) => {
    const options = numbers.map((version) => el("option", { value: version, selected: version === value }, `${version}: ${kindOf(version)}`));
    return el("select", {}, options);
  };
  const fields = [["User", userField(user)], ["Version", select(pair[0])], ["with version", select(pair[1])]];
  const choice = chooser("Compare", fields, (...values) => address("versions", ...values));
  person.show(null);
  if (!user) {
    const { users } = await api.search("", 8, signal);
    const cards = userCards("Example users", users, (card) => address("versions", card.user, ...pair));
    fill(content, subject("Compare", "Two versions of the model", ""), choice, part("Example users", "", cards));
    return "Compare versions";
  }
  const filters = readFilters(query);
  const sides = pair.map(async (version) => {
    const answer = await api.recommendationsBy(version, user, filters, signal);
    const { interactions } = about(version);
    const words = interactions === undefined ? kindOf(version) : `${kindOf(version)}, trained on ${number(interactions)} events`;
    return { answer, title: `Version ${version}`, words, label: `of version ${version}` };
  });
  const [controls, ...both] = await Promise.all([filterBar(filters), ...sides]);
  const [words, lists] = columns(both);
  fill(content, subject("Compare", `Versions ${pair.join(" and ")} for user ${user}`, words), choice, controls, lists);
  return `Compare versions ${pair.join(" and ")}`;
}
