// The page about the service: its load, events and versions, from GET /metrics and /v1/models.

import * as api from "./api.js";
import { byId, el, fill, number, say, svg } from "./dom.js";
import { figures, when } from "./model.js";
import * as person from "./person.js";
import { empty, part, subject } from "./views.js";

//: Milliseconds between two readings, and readings of the curve.
const EVERY = 2000;
const READINGS = 60;

/** Samples of the Prometheus text format: `{name, labels, value}`. */
export function parseMetrics(text) {
  return text.split("\n").flatMap((line) => {
    const [, name, labels = "", value] = line.match(/^(\w+)(?:\{(.*)\})? ([^ ]+)/) ?? [];
    if (!name) return [];
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, own]) => [key, own]);
    return [{ name, labels: Object.fromEntries(pairs), value: Number(value) }];
  });
}

const isApi = ({ labels }) => labels.route === undefined || labels.route.startsWith("/v1/");

/** The figures of one reading; times are in seconds, buckets by their upper bound. */
function reading(text) {
  const samples = parseMetrics(text);
  const sum = (name, accept = () => true) =>
    samples.filter((one) => one.name === name && accept(one)).reduce((total, { value }) => total + value, 0);
  const buckets = new Map();
  for (const { name, labels, value } of samples.filter(isApi)) {
    if (name !== "transcf_request_seconds_bucket") continue;
    const bound = Number(labels.le.replace("+Inf", "Infinity"));
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return {
    at: performance.now() / 1000,
    requests: sum("transcf_requests_total", isApi),
    failed: sum("transcf_requests_total", (one) => isApi(one) && one.labels.status.startsWith("5")),
    refused: sum("transcf_refused_total"),
    events: sum("transcf_events_total", ({ labels }) => labels.outcome === "stored"),
    lag: sum("transcf_event_lag"),
    active: sum("transcf_requests_in_progress"),
    queued: sum("transcf_queued"),
    ready: sum("transcf_ready"),
    version: sum("transcf_version"),
    buckets,
  };
}

/** The time below which a share of the requests between two readings was answered, in words. */
export function quantile(share, before, after) {
  const counts = [...after].sort(([one], [other]) => one - other).map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)]);
  const total = counts.at(-1)?.[1] ?? 0;
  if (!total) return "–";
  let [low, passed] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= share * total) {
      if (bound === Infinity) return `> ${number(1000 * low)} ms`;
      const part = count > passed ? (share * total - passed) / (count - passed) : 1;
      return `${number(1000 * (low + part * (bound - low)), 1)} ms`;
    }
    [low, passed] = [bound, count];
  }
  return "–";
}

/** Requests a second between a reading and the one before. */
const rateOf = (now, before) => Math.max(0, now.requests - before.requests) / Math.max(0.001, now.at - before.at);

/** Requests a second over time, the newest at the right. */
function curve(readings) {
  const rates = readings.slice(1).map((now, place) => rateOf(now, readings[place]));
  const most = Math.max(0, ...rates);
  const points = rates.map((rate, place) => {
    const across = (300 * (READINGS - rates.length + place)) / (READINGS - 1);
    return `${across.toFixed(1)},${(57 - (54 * rate) / Math.max(1, most)).toFixed(1)}`;
  });
  if (!rates.length) return el("p", { class: "faint" }, "Requests a second: the first figure comes in two seconds.");
  const drawn = svg("svg", { class: "curve", viewBox: "0 0 300 60", preserveAspectRatio: "none", "aria-hidden": "true" });
  drawn.append(svg("polyline", { points: points.join(" ") }));
  return el("figure", {}, drawn, el("figcaption", { class: "faint" }, `Requests a second in the last two minutes: at most ${number(most, 1)}`));
}

function live(readings) {
  const [now, before, first] = [readings.at(-1), readings.at(-2), readings[0]];
  // Without requests in these two minutes, times are those since the start.
  const earlier = now.requests > first.requests ? first.buckets : new Map();
  return [
    figures([
      ["Ready", now.ready ? "yes" : "no"],
      ["Requests a second", before ? number(rateOf(now, before), 1) : "…"],
      ["p50", quantile(0.5, earlier, now.buckets)],
      ["p99", quantile(0.99, earlier, now.buckets)],
      ["In progress", number(now.active)],
      ["Waiting", number(now.queued)],
    ]),
    curve(readings),
    figures([
      ["Requests", number(now.requests)],
      ["Server errors", number(now.failed)],
      ["Refused", number(now.refused)],
      ["Events received", number(now.events)],
      ["Events not learned yet", number(now.lag)],
    ]),
  ];
}

async function serve(number, button) {
  if (!confirm(`Serve version ${number} to everyone from now on?`)) return;
  button.disabled = true;
  try {
    await api.serveVersion(number);
    button.textContent = "Loading it …";
    say(`Version ${number} will be served`);
  } catch (error) {
    button.disabled = false;
    byId("version-error").textContent = error.status === 403 ? "This needs a token with the scope admin." : error.message;
    byId("other-token").hidden = error.status !== 403;
  }
}

/** How a refresh compared a version with the one served then. */
function refreshed(validation) {
  if (!validation) return "–";
  const { metric, old, new: own, users } = validation;
  if (own == null || old == null) return "too few new events";
  return `${metric} ${number(own, 4)}, ${own < old ? "worse" : "not worse"} than ${number(old, 4)} (${number(users)} users)`;
}

const COLUMNS = ["Version", "Written", "Model", "Trained on", "Validated by the refresh"];

function versionsTable(versions) {
  const rows = [...versions].reverse().map(({ version, made, current, interactions, validation, ...own }) => {
    const button = el("button", { type: "button", class: "button small" }, `Serve version ${version}`);
    button.addEventListener("click", () => serve(version, button));
    return el(
      "tr",
      { class: current ? "current" : null },
      el("th", { scope: "row" }, String(version)),
      el("td", { "data-name": COLUMNS[1] }, made === null ? "incomplete" : when(made)),
      el("td", { "data-name": COLUMNS[2] }, own.class ?? "–"),
      el("td", { "data-name": COLUMNS[3], title: own.fitted_on }, interactions === undefined ? "–" : `${number(interactions)} events`),
      el("td", { "data-name": COLUMNS[4] }, refreshed(validation)),
      el("td", {}, current ? "served" : made === null ? "" : button),
    );
  });
  const head = el("tr", {}, COLUMNS.map((name) => el("th", { scope: "col" }, name)), el("td", {}));
  return el("table", { class: "wide versions" }, el("thead", {}, head), el("tbody", {}, rows));
}

function tokenButton() {
  const button = el("button", { type: "button", class: "button small", id: "other-token", hidden: true }, "Use another token");
  button.addEventListener("click", async () => {
    await api.changeToken();
    button.hidden = true;
    byId("version-error").textContent = "";
  });
  return button;
}

/** The page; it reads the metrics again until another view is opened. */
export async function serviceView({ model, signal }) {
  const place = el("div", { class: "live" });
  const links = [["#/versions", "Compare two versions"], ["#/api", "API reference"]];
  if (!api.hasToken()) links.push(["metrics", "Prometheus metrics"]); // a link sends no token
  const refused = (model.refused ?? []).map(({ version, reason }) => el("p", { class: "source" }, `Version ${version} was refused: ${reason}`));
  fill(
    byId("content"),
    subject("Service", "Load, events and versions", `Version ${model.version} is served since ${when(model.since)}`),
    part("Now", "every two seconds; times of the last two minutes", place),
    part("Versions and refreshes", "transcf refresh writes them", versionsTable(model.versions ?? []), el("p", { id: "version-error", class: "bad", role: "alert" }), tokenButton(), refused),
    el("p", { class: "links" }, links.map(([href, words]) => el("a", { href, class: "link" }, words))),
  );
  person.show(null);
  const readings = [];
  const update = async () => {
    try {
      const now = reading(await api.metrics(signal));
      if (signal.aborted) return;
      readings.push(now);
      readings.splice(0, readings.length - READINGS - 1);
      fill(place, live(readings));
      if (now.version !== model.version) await api.models(); // a new version draws the page again
    } catch (error) {
      if (signal.aborted) return;
      fill(place, empty("No figures", error.status === 404 ? "GET /metrics is not reachable at this address." : error.message));
      byId("other-token").hidden = error.status !== 403;
    }
    setTimeout(() => signal.aborted || update(), EVERY);
  };
  await update();
  return "Service";
}
