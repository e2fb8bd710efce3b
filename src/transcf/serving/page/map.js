// The map of the items: plotly draws the points by WebGL, what is special is drawn above them.
//
// No text of the data goes to plotly: hovering shows our own tip.

import * as api from "./api.js";
import { byId, el, fill, percent } from "./dom.js";
import { dot } from "./list.js";
import * as overlay from "./overlay.js";

//: Categories with a colour of their own; the rest shares the last one.
const COLORS = 10;
//: More points than this are drawn by WebGL or not at all.
const MOST_WITHOUT_WEBGL = 3000;

const plot = byId("plot");
const state = byId("map-state");
const tip = byId("tip");

let data = null;
let rows = new Map();
let groups = [];
let hidden = new Set();
let whole = null;
let onHover = () => {};
let onClick = () => {};

/** Say who is told of items under the pointer (null: none) and of those that are clicked. */
export function whenUsed({ hover, click }) {
  onHover = hover;
  onClick = click;
}

/** The number of a category's colour, or null where the map does not know it. */
export function colorOf(category) {
  const place = data?.categories.indexOf(category) ?? -1;
  return place < 0 ? null : groupOf(place);
}

/** Where an item is: [x, y], or null where it is not on the map. */
export function placeOf(item) {
  const row = rows.get(item);
  return row === undefined ? null : [data.x[row], data.y[row]];
}

/** An item as lists have it. */
export function entryOf(item) {
  const row = rows.get(item);
  const category = data.categories[data.category[row]];
  return { item, title: data.title[row], categories: category === undefined ? [] : [category] };
}

/** Whether people are moved toward items. */
export const hasTranslations = () => data?.translations ?? false;

/** Fetch and draw it; what is there already goes on until it is. */
export async function load() {
  let found;
  try {
    found = await api.map();
  } catch (error) {
    state.textContent = error.code === "unsupported" || error.status === 404 ? "This model has no map." : error.message;
    return;
  }
  data = found;
  rows = new Map(data.item.map((item, row) => [item, row]));
  rank();
  if (!data.item.length) return void (state.textContent = "There are no items to show.");
  try {
    await loadPlotly();
  } catch {
    state.textContent = "The plotting library could not be loaded.";
    return;
  }
  await draw();
  legend();
}

function loadPlotly() {
  if (window.Plotly) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const script = el("script", { src: "page/plotly.js" });
    script.addEventListener("load", resolve);
    script.addEventListener("error", reject);
    document.head.append(script);
  });
}

// -- groups of points: one for each coloured category -------------------------------------------

let places = new Map();

/** The categories with most items get the colours. */
function rank() {
  const counts = new Map();
  for (const category of data.category) counts.set(category, (counts.get(category) ?? 0) + 1);
  const named = [...counts.keys()].filter((place) => place >= 0);
  named.sort((one, other) => counts.get(other) - counts.get(one) || one - other);
  places = new Map(named.slice(0, COLORS).map((place, color) => [place, color]));
  groups = [];
  data.category.forEach((place, row) => (groups[groupOf(place)] ??= []).push(row));
}

const groupOf = (place) => (places.size ? places.get(place) ?? COLORS : 0);

function nameOfGroup(group) {
  const place = [...places].find(([, color]) => color === group)?.[0];
  if (place !== undefined) return data.categories[place];
  return places.size ? "Others" : "Items";
}

function legend() {
  const buttons = groups.map((members, group) => {
    const button = el(
      "button",
      { type: "button", "aria-pressed": "true" },
      dot(group),
      el("span", { class: "name" }, nameOfGroup(group)),
      el("span", { class: "faint" }, members.length.toLocaleString("en")),
    );
    button.addEventListener("click", () => {
      hidden.has(group) ? hidden.delete(group) : hidden.add(group);
      button.setAttribute("aria-pressed", String(!hidden.has(group)));
      window.Plotly.restyle(plot, { visible: !hidden.has(group) }, [traceOf(group)]);
    });
    return button;
  });
  fill(byId("categories"), buttons);
  byId("legend").open = innerWidth > 1080;
  const [x, y] = data.shares;
  const some = data.item.length < data.count ? ` The ${data.item.length.toLocaleString("en")} items that most people have.` : "";
  const from = data.of === "interactions" ? "who has what (this model keeps no vectors)" : "the model’s item vectors";
  byId("map-note").textContent = `The two main directions of ${from}: ${percent(x + y)} of the spread.${some}`;
}

// -- drawing -------------------------------------------------------------------------------------

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawnGroups = () => groups.map((members, group) => group).filter((group) => groups[group]);
const traceOf = (group) => drawnGroups().indexOf(group);

function hasWebGL() {
  const context = document.createElement("canvas").getContext("webgl");
  return context !== null;
}

/** Popular items are drawn larger: between 4 and 13 pixels. */
function sizes(members) {
  const most = Math.log1p(Math.max(1, data.users[0])); // they come with the most popular first
  return members.map((row) => 4 + 9 * (Math.log1p(data.users[row]) / most) ** 2);
}

function traces(kind, most) {
  return drawnGroups().map((group) => {
    const members = groups[group].slice(0, most);
    return {
      type: kind,
      mode: "markers",
      x: members.map((row) => data.x[row]),
      y: members.map((row) => data.y[row]),
      customdata: members,
      marker: { size: sizes(members), color: style(`--c${group}`), opacity: 0.72, line: { width: 0 } },
      hoverinfo: "none",
      visible: !hidden.has(group),
    };
  });
}

function layout() {
  const axis = { visible: false, showgrid: false, zeroline: false, fixedrange: false };
  return {
    margin: { l: 0, r: 0, t: 0, b: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    dragmode: "pan",
    hovermode: "closest",
    hoverdistance: 12,
    showlegend: false,
    xaxis: { ...axis, range: whole[0] },
    yaxis: { ...axis, range: whole[1] },
  };
}

/** Ranges that show all points, a unit as long across as upward: [[x0, x1], [y0, y1]]. */
function everything() {
  const { clientWidth: width, clientHeight: height } = plot;
  const spread = (values) => {
    const [low, high] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    return [(low + high) / 2, Math.max(high - low, 1e-6)];
  };
  const [[x, across], [y, upward]] = [spread(data.x), spread(data.y)];
  const unit = 1.12 * Math.max(across / Math.max(width, 1), upward / Math.max(height, 1));
  return [
    [x - (unit * width) / 2, x + (unit * width) / 2],
    [y - (unit * height) / 2, y + (unit * height) / 2],
  ];
}

const observer = new ResizeObserver(() => whole && resized());

async function draw() {
  whole = everything();
  const byWebGL = hasWebGL();
  const share = Math.min(1, MOST_WITHOUT_WEBGL / data.item.length);
  const most = byWebGL ? Infinity : Math.ceil(share * data.item.length / Math.max(1, drawnGroups().length));
  const config = { scrollZoom: true, displayModeBar: false, plotGlPixelRatio: Math.min(2, devicePixelRatio), doubleClick: false, responsive: false, showTips: false };
  const isFirst = plot.layout === undefined;
  await window.Plotly.react(plot, traces(byWebGL ? "scattergl" : "scatter", most), layout(), config);
  state.hidden = true;
  if (isFirst) listen();
  overlay.look(whole);
}

function listen() {
  plot.on("plotly_hover", (event) => hovered(event.points[0]));
  plot.on("plotly_unhover", () => hovered(null));
  plot.on("plotly_click", (event) => onClick(data.item[event.points[0].customdata]));
  plot.on("plotly_doubleclick", () => show(whole));
  plot.on("plotly_relayouting", moved);
  plot.on("plotly_relayout", moved);
  observer.observe(plot);
}

function moved(event) {
  const ranges = [0, 1].map((which) => {
    const name = which ? "yaxis" : "xaxis";
    const low = event[`${name}.range[0]`] ?? event[`${name}.range`]?.[0] ?? plot.layout[name].range[0];
    const high = event[`${name}.range[1]`] ?? event[`${name}.range`]?.[1] ?? plot.layout[name].range[1];
    return [low, high];
  });
  overlay.look(ranges);
}

function resized() {
  const isWhole = JSON.stringify(ranges()) === JSON.stringify(whole);
  const [[x0, x1], [y0, y1]] = ranges();
  whole = everything();
  const unit = (x1 - x0) / Math.max(1, overlay.size()[0]);
  const [width, height] = [plot.clientWidth, plot.clientHeight];
  const kept = [
    [(x0 + x1 - unit * width) / 2, (x0 + x1 + unit * width) / 2],
    [(y0 + y1 - unit * height) / 2, (y0 + y1 + unit * height) / 2],
  ];
  const [x, y] = isWhole ? whole : kept;
  window.Plotly.relayout(plot, { width, height, "xaxis.range": x, "yaxis.range": y });
  overlay.look([x, y]);
}

const ranges = () => [[...plot.layout.xaxis.range], [...plot.layout.yaxis.range]];

function show([x, y]) {
  window.Plotly.relayout(plot, { "xaxis.range": [...x], "yaxis.range": [...y] });
}

/** Zoom by a factor around the middle, and move by shares of the width and height. */
function turn(factor, right = 0, up = 0) {
  if (!whole) return;
  const changed = ranges().map(([low, high], which) => {
    const middle = (low + high) / 2 + (which ? up : right) * (high - low);
    const half = (factor * (high - low)) / 2;
    return [middle - half, middle + half];
  });
  show(changed);
}

// -- pointer and keyboard ------------------------------------------------------------------------

function hovered(point) {
  const row = point?.customdata;
  plot.style.cursor = point ? "pointer" : "";
  onHover(point ? data.item[row] : null);
}

/** Show what an item is called beside its point; null hides it. */
export function label(item, note = "") {
  const row = item === null ? undefined : rows.get(item);
  tip.hidden = row === undefined || whole === null;
  if (tip.hidden) return;
  const name = data.title[row] ?? String(data.item[row]);
  const category = data.categories[data.category[row]];
  fill(tip, el("strong", {}, name), category ? el("span", {}, category) : null, note ? el("span", {}, note) : null);
  const [left, top] = overlay.pixel([data.x[row], data.y[row]]);
  const [width, height] = overlay.size();
  const beside = left + 16 + tip.offsetWidth > width ? left - 16 - tip.offsetWidth : left + 16;
  tip.style.left = `${Math.max(6, Math.min(beside, width - tip.offsetWidth - 6))}px`;
  tip.style.top = `${Math.max(6, Math.min(top - tip.offsetHeight / 2, height - tip.offsetHeight - 6))}px`;
}

const KEYS = {
  ArrowLeft: () => turn(1, -0.12), ArrowRight: () => turn(1, 0.12),
  ArrowUp: () => turn(1, 0, 0.12), ArrowDown: () => turn(1, 0, -0.12),
  "+": () => turn(0.75), "=": () => turn(0.75), "-": () => turn(1 / 0.75), "0": () => whole && show(whole),
};

plot.addEventListener("keydown", (event) => {
  if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  KEYS[event.key]();
});
for (const [name, key] of [["in", "+"], ["out", "-"], ["all", "0"]]) {
  document.querySelector(`[data-zoom="${name}"]`).addEventListener("click", KEYS[key]);
}

/** Draw in the colours of the present theme. */
export function recolor() {
  if (!whole) return;
  drawnGroups().forEach((group, trace) => {
    window.Plotly.restyle(plot, { "marker.color": style(`--c${group}`) }, [trace]);
  });
}
