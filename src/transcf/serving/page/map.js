// The map of the items: plotly draws the points by WebGL, what is special is drawn above them.
//
// No text of the data goes to plotly: hovering shows our own tip.

import * as api from "./api.js";
import { byId, el, fill, number, percent } from "./dom.js";
import { dot } from "./list.js";
import { movable } from "./moving.js";
import * as overlay from "./overlay.js";
import * as points from "./points.js";

//: More points than this are drawn by WebGL or not at all.
const MOST_WITHOUT_WEBGL = 3000;

const plot = byId("plot");
const state = byId("map-state");
const tip = byId("tip");

const hidden = new Set(); // colours
let whole = null; // ranges that show everything, once it is drawn
byId("legend").open = innerWidth > 1080;
let onHover = () => {};
let onClick = () => {};

/** Say who is told of items under the pointer (null: none) and of those that are clicked. */
export function whenUsed({ hover, click }) {
  onHover = hover;
  onClick = click;
}

/** Fetch and draw it; what is there already goes on until it is. */
export async function load() {
  try {
    points.take(await api.map());
  } catch (error) {
    state.textContent = error.message;
    return;
  }
  if (!points.columns().item.length) {
    state.textContent = "There are no items to show.";
    return;
  }
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
    const script = el("script", { src: new URL("plotly.js", import.meta.url).href });
    script.addEventListener("load", resolve);
    script.addEventListener("error", reject);
    document.head.append(script);
  });
}

function legend() {
  const { of, shares, item, count } = points.columns();
  const buttons = points.byColor().map(({ color, members }, trace) => {
    const button = el(
      "button",
      { type: "button", "aria-pressed": String(!hidden.has(color)) },
      dot(color),
      el("span", { class: "name" }, points.nameOfColor(color)),
      el("span", { class: "faint" }, number(members.length)),
    );
    button.addEventListener("click", () => {
      if (!hidden.delete(color)) hidden.add(color);
      button.setAttribute("aria-pressed", String(!hidden.has(color)));
      window.Plotly.restyle(plot, { visible: !hidden.has(color) }, [trace]);
    });
    return button;
  });
  fill(byId("categories"), buttons);
  const from = of === "interactions" ? "who has what (this model keeps no vectors)" : "the model’s item vectors";
  const some = item.length < count ? ` Shown are the ${number(item.length)} items that most people have.` : "";
  const carried = percent(shares[0] + shares[1]);
  byId("map-note").textContent = `The two main directions of ${from}: ${carried} of the spread.${some}`;
}

// -- drawing -------------------------------------------------------------------------------------

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function hasWebGL() {
  const context = document.createElement("canvas").getContext("webgl");
  return context !== null;
}

/** Popular items are drawn larger: between 4 and 13 pixels. */
function sizes(members) {
  const { users } = points.columns();
  const most = Math.log1p(Math.max(1, users[0]));
  return members.map((row) => 4 + 9 * (Math.log1p(users[row]) / most) ** 2);
}

/** A trace for each colour, of at most `most` points. */
function traces(kind, most) {
  const { x, y } = points.columns();
  return points.byColor().map(({ color, members }) => {
    const shown = members.slice(0, most);
    const marker = { size: sizes(shown), color: style(`--c${color}`), opacity: 0.72, line: { width: 0 } };
    return {
      type: kind,
      mode: "markers",
      x: shown.map((row) => x[row]),
      y: shown.map((row) => y[row]),
      customdata: shown,
      marker,
      hoverinfo: "none",
      visible: !hidden.has(color),
    };
  });
}

function layout() {
  const axis = { visible: false, showgrid: false, zeroline: false, fixedrange: false };
  return {
    margin: { l: 0, r: 0, t: 0, b: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    dragmode: false, // we do it, more smoothly
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
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
    return [(low + high) / 2, Math.max(high - low, 1e-6)];
  };
  const columns = points.columns();
  const [[x, across], [y, upward]] = [spread(columns.x), spread(columns.y)];
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
  const most = byWebGL ? Infinity : Math.ceil(MOST_WITHOUT_WEBGL / points.byColor().length);
  const config = {
    scrollZoom: false,
    displayModeBar: false,
    doubleClick: false,
    showTips: false,
    plotGlPixelRatio: Math.min(2, devicePixelRatio),
  };
  const isFirst = plot.layout === undefined;
  await window.Plotly.react(plot, traces(byWebGL ? "scattergl" : "scatter", most), layout(), config);
  state.hidden = true;
  if (isFirst) listen();
  overlay.look(whole);
}

function listen() {
  const { isMoving, wasMoved } = movable(plot, { drawn: ranges, look: glance, settle: show });
  plot.on("plotly_hover", (event) => isMoving() || hovered(event.points[0]));
  plot.on("plotly_unhover", () => hovered(null));
  plot.on("plotly_click", (event) => wasMoved() || onClick(itemAt(event.points[0])));
  observer.observe(plot);
}

/** Look at ranges that are not drawn yet. */
function glance(ranges) {
  tip.hidden = true;
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

async function show([x, y]) {
  overlay.look([x, y]);
  await window.Plotly.relayout(plot, { "xaxis.range": [...x], "yaxis.range": [...y] });
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

const itemAt = (point) => points.columns().item[point.customdata];

function hovered(point) {
  plot.style.cursor = point ? "pointer" : "";
  onHover(point ? itemAt(point) : null);
}

/** Show what an item is called beside its point; null hides it. */
export function label(item, note = "") {
  const place = item === null ? null : points.placeOf(item);
  tip.hidden = place === null || whole === null;
  if (tip.hidden) return;
  const { title, categories } = points.entryOf(item);
  const lines = [...categories, note].filter((words) => words !== "");
  fill(tip, el("strong", {}, title ?? String(item)), lines.map((words) => el("span", {}, words)));
  const [left, top] = overlay.pixel(place);
  const [width, height] = overlay.size();
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  const within = (value, size, all) => Math.max(6, Math.min(value, all - size - 6));
  let [x, y] = [left + 16, within(top - high / 2, high, height)];
  if (x + wide > width - 6) x = left - 16 - wide;
  if (x < 6) {  // no room on either side: above or below the point
    x = within(left - wide / 2, wide, width);
    y = top - 16 - high < 6 ? top + 16 : top - 16 - high;
  }
  tip.style.left = `${x}px`;
  tip.style.top = `${y}px`;
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
  if (whole) window.Plotly.restyle(plot, { "marker.color": points.byColor().map(({ color }) => style(`--c${color}`)) });
}
