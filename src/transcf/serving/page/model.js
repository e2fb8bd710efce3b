// The page about the model: how good it is, what it was trained on, settings, card and files.

import * as api from "./api.js";
import { byId, el, fill, number, percent } from "./dom.js";
import { bar } from "./list.js";
import * as person from "./person.js";
import { empty, fold, part, subject } from "./views.js";

const FIGURES = { users: "Users", items: "Items", interactions: "Events", seconds: "Seconds of training" };
const MEANINGS = {
  HitRate: "the share of users with a held-out item in their first 10",
  NDCG: "1 if held-out items always come first, 0 if they are never among the first 10",
};
const BASES = {
  new_events: "On events that are newer than the model",
  held_out: "On events that were held out to choose the epoch, before the model was fitted on all events",
};

/** A time as people write it. */
export const when = (seconds) => new Date(1000 * seconds).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });

function written(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? number(value) : String(Number(value.toPrecision(5)));
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A table of names and values. */
export function table(entries) {
  const rows = entries.map(([name, value]) => {
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "code" }, written(value)));
  });
  return el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, rows)));
}

/** Large figures with their names. */
export function figures(entries) {
  const made = entries.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  return el("dl", { class: "figures" }, made);
}

const size = (bytes) => (bytes < 1e6 ? `${number(bytes / 1024, 1)} KiB` : `${number(bytes / 2 ** 20, 1)} MiB`);

function check({ basis, users, model, popularity }, name) {
  const scores = [[name, model], ["Popularity", popularity]];
  const most = (metric) => Math.max(...scores.map(([, values]) => values[metric]), 1e-9);
  const rows = Object.keys(model).flatMap((metric) =>
    scores.map(([who, values]) =>
      el("tr", {}, el("th", { scope: "row" }, `${who} `, el("span", { class: "faint metric" }, metric)), el("td", {}, bar(values[metric] / most(metric), number(values[metric], 4)))),
    ),
  );
  const meanings = Object.keys(model).flatMap((name) => {
    const words = MEANINGS[name.replace(/@10$/, "")];
    return words ? [`${name}: ${words}. `] : [];
  });
  const [metric] = Object.keys(model);
  const [own, floor] = [model[metric], popularity[metric]];
  const ratio = floor > 0 ? `${number(own / floor, 1)} times that of the most popular items` : "where the most popular items have 0";
  const words = `${metric} is ${number(own, 4)}, ${ratio} (${number(users)} users).`;
  return [el("p", { class: "verdict" }, words), el("p", { class: "faint" }, `${BASES[basis]}. `, meanings), el("table", { class: "checks" }, el("tbody", {}, rows))];
}

const NOT_MEASURED = [
  "The model was fitted without held-out events, and there are not enough new ones yet. ", el("code", {}, "transcf fit"),
  " holds events out and measures the accuracy on them.",
];

function qualityPart({ coverage, checks }, model) {
  if (!checks.length) return part("Accuracy", "", empty("Not measured", NOT_MEASURED));
  const covered = coverage === null ? null : el("p", {}, `${percent(coverage)} of the items are in at least one list of a sample of users (coverage).`);
  return part("Accuracy", "against recommending the most popular items", checks.map((one) => check(one, model.model)), covered);
}

/** What is served, how good it is and what it was trained on. */
export async function modelView({ model, signal }) {
  const found = await api.quality(signal).catch(() => ({ coverage: null, checks: [] }));
  const main = Object.entries(FIGURES).filter(([name]) => model.report[name] !== undefined);
  const shown = main.map(([name, title]) => [title, number(model.report[name], name === "seconds" ? 1 : 0)]);
  const rest = Object.entries(model.report).filter(([name, value]) => !(name in FIGURES) && !Array.isArray(value));
  const files = Object.entries(model.files ?? {}).map(([name, { bytes, sha256 }]) => {
    return [name, `${size(bytes)}, sha256 ${[sha256].flat()[0]?.slice(0, 16) ?? ""}…`];
  });
  const able = Object.entries(model.can ?? {}).map(([name, can]) => [name.replaceAll("_", " "), can ? "yes" : "no"]);
  const trained = model.report.fitted_on ? el("p", { class: "faint" }, `Fitted on ${model.report.fitted_on}.`) : null;
  fill(
    byId("content"),
    subject("Model", model.model, `Version ${model.version}, served since ${when(model.since)}, from ${model.folder}`),
    qualityPart(found, model),
    part("Trained on", model.report.dataset ? String(model.report.dataset) : "", figures(shown), trained),
    part(
      "More",
      "",
      fold("Parameters", el("p", { class: "faint" }, model.class), table(Object.entries(model.parameters))),
      rest.length ? fold("Report of the training", table(rest)) : null,
      fold("What it can do", table(able)),
      model.card ? fold("Model card", el("pre", { tabindex: 0, "aria-label": "Model card" }, model.card)) : null,
      fold("Files", el("p", { class: "faint" }, `transcf ${model.library}`), table(files)),
    ),
  );
  person.show(null);
  return "Model";
}
