// The page about the model: figures, settings, versions and checksums.

import { byId, el, fill, number } from "./dom.js";
import * as person from "./person.js";
import { part, subject } from "./views.js";

const FIGURES = { users: "Users", items: "Items", interactions: "Events", seconds: "Seconds of training" };

const when = (seconds) => new Date(1000 * seconds).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });

function written(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? number(value) : String(Number(value.toPrecision(5)));
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function table(entries) {
  const rows = entries.map(([name, value]) => {
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "code" }, written(value)));
  });
  return el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, rows)));
}

function figures(entries) {
  const made = entries.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  return el("dl", { class: "figures" }, made);
}

const size = (bytes) => (bytes < 1e6 ? `${number(bytes / 1024, 1)} KiB` : `${number(bytes / 2 ** 20, 1)} MiB`);

/** Figures and settings of what is served. */
export function modelView(model) {
  const main = Object.entries(FIGURES).filter(([name]) => model.report[name] !== undefined);
  const shown = main.map(([name, title]) => [title, number(model.report[name], name === "seconds" ? 1 : 0)]);
  const rest = Object.entries(model.report).filter(([name, value]) => !(name in FIGURES) && !Array.isArray(value));
  const files = Object.entries(model.files ?? {}).map(([name, { bytes, sha256 }]) => {
    return [name, `${size(bytes)}, sha256 ${[sha256].flat()[0]?.slice(0, 16) ?? ""}…`];
  });
  const versions = (model.versions ?? []).map(({ version, made, current }) => {
    return [`Version ${version}`, `${when(made)}${current ? ", served" : ""}`];
  });
  const refused = (model.refused ?? []).map((entry) => [`Version ${entry.version}`, entry.reason]);
  const able = Object.entries(model.can ?? {}).map(([name, can]) => [name.replaceAll("_", " "), can ? "yes" : "no"]);
  const { last = 0, users = 0 } = model.events ?? {};
  fill(
    byId("content"),
    subject("Model", model.model, `Version ${model.version}, served since ${when(model.since)}, from ${model.folder}`),
    figures(shown),
    part("Events since it was fitted", "", figures([["In the store", number(last)], ["People with new ones", number(users)]])),
    rest.length ? part("Training", "", table(rest)) : null,
    part("Settings", model.class, table(Object.entries(model.parameters))),
    part("What it can do", "", table(able)),
    refused.length ? part("Refused versions", "the served one goes on", table(refused)) : null,
    versions.length ? part("Versions", "", table(versions)) : null,
    part("Files", `transcf ${model.library}`, table(files)),
  );
  person.show(null);
  return "Model";
}
