// The map of the items: WebGL draws the points, names and what is special are drawn above them.

import * as api from "./api.js";
import { byId, el, fill, number, percent, say } from "./dom.js";
import { listen } from "./gestures.js";
import { pointRenderer } from "./gl.js";
import * as labels from "./labels.js";
import { dot } from "./list.js";
import * as overlay from "./overlay.js";
import * as points from "./points.js";

//: Pixels around a point in which it can be pointed at.
const REACH = 12;
//: How fast points grow with the map, and how far one can zoom in.
const GROWTH = 0.35;
const MOST_ZOOM = 200;
//: How much a layout without distances may be stretched along one axis, to fill the window.
const MOST_STRETCH = 1.6;
//: Milliseconds of a drawing from which on it waits for the end of a gesture, and how long that is.
const SLOW = 12;
const REST = 150;
//: So many categories without a colour are left out of the legend until they are asked for.
const LEAST_MORE = 3;
//: Milliseconds after which a layout that is being computed is asked for again.
const AGAIN = 3000;

const plot = byId("plot");
const canvas = byId("points");
const state = byId("map-state");
const tip = byId("tip");

let renderer;
let home = null; // the view that shows everything
let view = null; // {middle, units, width, height}; units: lengths of a pixel along both axes
let scales = null; // diameters by row
let frame = 0;
let buttons = [0, 0, 0, 0]; // the box of the buttons on the map
let drawn = null; // the view that the points are drawn for
let isSlow = false;
let restTimer = null;
let movesUntil = 0; // the time of a gesture
let timer = null;
let onHover = () => {};
let onClick = () => {};
let onLoad = () => {};
let onColor = () => {};
let hasAll = false; // the legend has categories without a colour of their own
let colored = ""; // the number of the items that colours show; empty: categories
byId("legend").open = innerWidth > 1080 || (innerWidth > 760 && innerHeight > 1.2 * innerWidth); // where there is space

/** Set what happens with items that are pointed at (null: none) and clicked, and after loading and colouring. */
export function whenUsed({ hover, click, load: loaded, color }) {
  onHover = hover;
  onClick = click;
  onLoad = loaded;
  onColor = color;
}

/** Fetch and draw it; the earlier one stays until then. */
export async function load() {
  clearTimeout(timer);
  renderer ??= pointRenderer(canvas, setPoints);
  if (!renderer) {
    state.textContent = "This browser has no WebGL2, which draws the map. Lists and explanations work without it.";
    return;
  }
  let found;
  try {
    found = await api.map();
  } catch (error) {
    state.textContent = error.message;
    return;
  }
  if (!found.item.length) {
    state.textContent = "There are no items to show.";
    return;
  }
  points.take(found);
  labels.reset();
  view = drawn = null;
  setPoints();
  resized();
  await colorBy(colored);
  state.hidden = true;
  onLoad();
  if (found.pending) timer = setTimeout(load, AGAIN);
}

// -- drawing -------------------------------------------------------------------------------------

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The colours of the theme; those of a chosen category stand out from the others. */
function palette() {
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  const isOne = points.choice() !== null;
  if (points.isShaded()) {
    const [low, high] = [parse(style("--low")), parse(style("--high"))];
    const between = (share) => [...low.map((value, part) => value + share * (high[part] - value)), 0.85];
    return [...Array.from({ length: 10 }, (_, step) => between(step / 9)), [...parse(style("--c10")), 0.28], [0, 0, 0, 0]];
  }
  return Array.from({ length: 12 }, (_, color) => {
    if (color > 10) return [0, 0, 0, 0];
    return [...parse(style(`--c${color}`)), color === 10 && isOne ? 0.28 : 0.78];
  });
}

/** Give the renderer everything; the most popular items are drawn last, on top. */
function setPoints() {
  const { x, y, users } = points.columns();
  const most = Math.log1p(Math.max(1, users[0]));
  const base = x.length > 20000 ? 2 : x.length > 3000 ? 2.6 : 4;
  scales = Float32Array.from(users, (count) => base + 8 * (Math.log1p(count) / most) ** 3);
  const last = x.length - 1;
  const places = new Float32Array(2 * x.length);
  for (let row = 0; row <= last; row++) [places[2 * (last - row)], places[2 * (last - row) + 1]] = [x[row], y[row]];
  renderer.setPoints(places, scales.slice().reverse());
  recolor();
}

/** Draw in the colours of the present theme and choice. */
export function recolor() {
  if (!points.columns() || !renderer) return;
  const last = points.columns().x.length - 1;
  renderer.setColors(Uint8Array.from({ length: last + 1 }, (_, place) => points.colorAt(last - place)));
  renderer.setPalette(palette());
  redraw();
}

const zoom = () => (home ? home.units[0] / view.units[0] : 1);
const growth = () => Math.min(1, Math.max(0.6, view.width / 700)) * Math.min(4, Math.max(1, zoom() ** GROWTH));
const corners = ({ middle, units, width, height }) =>
  [width, height].map((size, axis) => [-1, 1].map((side) => middle[axis] + (side * units[axis] * size) / 2));

/** From a place of the map to pixels, and back. */
const pixel = ([x, y]) => [(x - view.middle[0]) / view.units[0] + view.width / 2, (view.middle[1] - y) / view.units[1] + view.height / 2];
const place = ([x, y]) => [view.middle[0] + (x - view.width / 2) * view.units[0], view.middle[1] - (y - view.height / 2) * view.units[1]];

/** Draw at the next frame. */
export function redraw() {
  if (view && !frame) frame = requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  if (!view.width || !view.height) return;
  drawPoints();
  const [size, grown] = [[view.width, view.height], growth()];
  overlay.look(pixel);
  const reserved = [...overlay.boxes(), buttons];
  labels.write({ pixel, size, zoom: zoom(), radius: (row) => (scales[row] * grown) / 2, reserved });
  plot.view = corners(view);
}

/** Draw the points; without a fast graphics card the last drawing is shifted until a gesture ends. */
function drawPoints() {
  const isMoving = performance.now() < movesUntil;
  if (drawn && isSlow && isMoving && drawn.width === view.width && drawn.height === view.height) {
    clearTimeout(restTimer);
    restTimer = setTimeout(redraw, REST);
    const [x, y] = pixel(drawn.middle);
    canvas.style.transform = `translate(${x - view.width / 2}px, ${y - view.height / 2}px) scale(${drawn.units[0] / view.units[0]})`;
    return;
  }
  const isFirst = drawn === null;
  drawn = view;
  canvas.style.transform = "";
  renderer.draw({ ...view, zoom: growth() });
  if (!isFirst) return;
  renderer.finish();
  const started = performance.now();
  renderer.draw({ ...view, zoom: growth() });
  renderer.finish();
  isSlow = performance.now() - started > SLOW;
}

/** The view that shows all points. */
function everything() {
  const [x0, x1, y0, y1] = points.extent();
  const { clientWidth: width, clientHeight: height } = plot;
  const needed = [(x1 - x0) / Math.max(width, 1), (y1 - y0) / Math.max(height, 1)];
  const stretch = points.columns().layout === "tsne" ? MOST_STRETCH : 1;
  const units = needed.map((unit) => 1.1 * Math.max(unit, Math.max(...needed) / stretch));
  return { middle: [(x0 + x1) / 2, (y0 + y1) / 2], units, width, height };
}

function resized() {
  if (!points.columns()) return;
  const isHome = !view || zoom() === 1;
  home = everything();
  view = isHome ? home : { ...home, middle: view.middle, units: home.units.map((unit) => unit / zoom()) };
  const { offsetLeft: left, offsetTop: top, offsetWidth: wide, offsetHeight: high } = document.querySelector(".zoom");
  buttons = [left, top, left + wide, top + high];
  redraw();
}
new ResizeObserver(resized).observe(plot);

/** Move by pixels, and zoom by a factor around a pixel. */
function turn([right, down], factor = 1, around = [view.width / 2, view.height / 2]) {
  if (!view) return;
  const scale = Math.min(2 * zoom(), Math.max(zoom() / MOST_ZOOM, factor));
  const units = view.units.map((unit) => unit * scale);
  const [x, y] = place(around);
  const [across, upward] = [view.middle[0] - x, view.middle[1] - y];
  view = { ...view, units, middle: [x + across * scale - right * units[0], y + upward * scale + down * units[1]] };
  tip.hidden = true;
  movesUntil = performance.now() + REST / 2;
  redraw();
}

// -- legend --------------------------------------------------------------------------------------

const LAYOUTS = {
  tsne: (from) => `Items near each other are similar: t-SNE of ${from}. Distances between far regions mean nothing. A user is placed at the items nearest to the user’s vector.`,
  pca: (from, shares) => `The two main directions of ${from}: ${percent(shares[0] + shares[1])} of the variance.`,
};

/** Colour items by a number of theirs: "users", or a column of the table of items; empty: by category. */
async function colorBy(name) {
  let ends = null;
  try {
    const known = points.columns();
    const values = name === "" ? null : name === "users" ? known.users : (await api.attribute(name)).values;
    ends = points.shade(values);
    if (ends) points.choose(null);
    colored = name;
  } catch (error) {
    say(error.message);
  }
  recolor();
  legend(ends);
  onColor();
}

function colorChoice() {
  const names = [["", "category"], ["users", "number of users"], ...points.columns().attributes.map((name) => [name, name])];
  const options = names.map(([value, words]) => el("option", { value, selected: value === colored }, words));
  const choice = el("select", { id: "color-by" }, options);
  choice.addEventListener("change", async () => {
    await colorBy(choice.value);
    byId("color-by").focus();
  });
  return el("label", { class: "color-by" }, "Colour: ", choice);
}

/** The ends of the scale of colours, with what it goes through. */
const scale = (ends) => {
  const [low, high] = ends.map((value) => String(Number(value.toPrecision(6))));
  return el("span", { class: "scale" }, low, el("i", {}), high);
};

function legend(ends = null) {
  const { of, layout, pending, shares, item, count } = points.columns();
  fill(byId("categories"), colorChoice(), ends ? scale(ends) : categoryButtons());
  const from = of === "interactions" ? "who has what" : "the item vectors";
  const some = item.length < count ? ` Shown are the ${number(item.length)} items with most users.` : "";
  const later = pending ? " A layout that keeps neighbours together is being computed." : "";
  byId("map-note").textContent = LAYOUTS[layout ?? "pca"](from, shares) + some + later;
}

/** Buttons of the categories: those with a colour of their own, and the others on request. */
function categoryButtons() {
  const all = points.sizes().filter((one) => one.count);
  const isColored = ({ place, name }) => points.colorOf(name) < points.COLORS || place === points.choice();
  const colored = all.filter(isColored);
  if (hasAll || all.length - colored.length < LEAST_MORE) return all.map(categoryButton);
  const more = el("button", { type: "button" }, `${number(all.length - colored.length)} more …`);
  more.addEventListener("click", () => {
    hasAll = true;
    legend();
    byId("categories").querySelectorAll("button")[colored.length].focus();
  });
  return [...colored.map(categoryButton), more];
}

function categoryButton({ place, name, count }) {
  const isChosen = points.choice() === place;
  const button = el(
    "button",
    { type: "button", "data-place": place, "aria-pressed": String(isChosen), title: isChosen ? "Colour all categories" : `Colour ${name} only` },
    dot(points.colorOf(name)),
    el("span", { class: "name" }, name),
    el("span", { class: "faint" }, number(count)),
  );
  button.addEventListener("click", () => {
    points.choose(points.choice() === place ? null : place);
    recolor();
    legend();
    byId("categories").querySelector(`[data-place="${place}"]`)?.focus();
  });
  return button;
}

// -- pointer and keyboard ------------------------------------------------------------------------

/** The item at a pixel, or null. */
function itemAt(at) {
  const row = view ? points.nearest(place(at), view.units.map((unit) => REACH * unit)) : null;
  return row === null ? null : points.columns().item[row];
}

let pointed = null;

function hovered(at) {
  const item = at && itemAt(at);
  plot.classList.toggle("pointing", item !== null);
  if (item === pointed && !(item !== null && tip.hidden)) return;
  pointed = item;
  onHover(item);
}

/** Show what an item is called next to its point; null hides it. */
export function label(item, note = "") {
  const at = item === null ? null : points.placeOf(item);
  tip.hidden = at === null || view === null;
  if (tip.hidden) return;
  const { title, categories } = points.entryOf(item);
  const lines = [categories.slice(0, 3).join(", "), note].filter((words) => words !== "");
  fill(tip, el("strong", {}, title ?? String(item)), lines.map((words) => el("span", {}, words)));
  const [left, top] = pixel(at);
  const { width, height } = view;
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  const within = (value, size, all) => Math.max(6, Math.min(value, all - size - 6));
  const sides = [left + 16, left - 16 - wide].filter((start) => start >= 6 && start + wide <= width - 6);
  const [toward] = overlay.user() ?? [left]; // lines lead there
  const away = (start) => Math.abs(start + wide / 2 - toward);
  let [x, y] = [sides.sort((one, other) => away(other) - away(one))[0], within(top - high / 2, high, height)];
  if (x === undefined) {  // no space on either side: above or below the point
    x = within(left - wide / 2, wide, width);
    y = top - 16 - high < 6 ? top + 16 : top - 16 - high;
  }
  tip.style.left = `${x}px`;
  tip.style.top = `${y}px`;
}

const step = (right, up) => turn([-right * view.width, up * view.height]);
const KEYS = {
  ArrowLeft: () => step(-0.12, 0), ArrowRight: () => step(0.12, 0),
  ArrowUp: () => step(0, 0.12), ArrowDown: () => step(0, -0.12),
  "+": () => turn([0, 0], 0.75), "=": () => turn([0, 0], 0.75), "-": () => turn([0, 0], 1 / 0.75),
  "0": () => {
    view = home;
    redraw();
  },
};

plot.addEventListener("keydown", (event) => {
  if (!view || !(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  KEYS[event.key]();
});
for (const [name, key] of [["in", "+"], ["out", "-"], ["all", "0"]]) {
  document.querySelector(`[data-zoom="${name}"]`).addEventListener("click", () => view && KEYS[key]());
}
listen(plot, {
  turn: (...how) => view && turn(...how),
  hover: hovered,
  click: (at) => {
    const item = itemAt(at);
    if (item !== null) onClick(item);
  },
});
