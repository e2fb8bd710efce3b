// Names on the map: regions first, then items by their number of users, as far as there is space.

import { byId, el, shortened } from "./dom.js";
import * as points from "./points.js";

const board = byId("labels");
const pool = [];
//: Names of items at most, and a pixel area that one of them needs at least.
const MOST = 60;
const AREA = 16000;
//: Longest name, in characters; heights of lines in pixels, as in style.css.
const LONGEST = 26;
const [LINE, REGION_LINE] = [15, 22];
//: Only so many items with most users are named where the map fits the window; more when it is larger.
const KNOWN = 400;
//: Regions are named until the map is this much larger than the window.
const REGIONS_UNTIL = 5;

let regions = [];
let names = new Map(); // by row: text and width
let preferred = new Set(); // rows that are named before others
let measure = null;

/** Name these items before others, from the next drawing on. */
export function prefer(items) {
  preferred = new Set(items.map(points.rowOf).filter((row) => row !== undefined));
}

/** Start over for other points. */
export function reset() {
  measure ??= document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(board).fontFamily;
  measure.font = `700 15px ${family}`;
  regions = points.regions().map((region) => ({ ...region, half: measure.measureText(region.name).width / 2 + 4 }));
  measure.font = `500 11.5px ${family}`;
  names = new Map();
}

function nameAt(row) {
  if (!names.has(row)) {
    const name = points.nameAt(row);
    const short = shortened(name, LONGEST);
    names.set(row, [short, measure.measureText(short).width]);
  }
  return names.get(row);
}

/** Whether a box is free; if so, it is taken. */
function take(taken, box, size) {
  const [left, top, right, bottom] = box;
  if (left < 2 || top < 2 || right > size[0] - 2 || bottom > size[1] - 2) return false;
  if (taken.some(([l, t, r, b]) => left < r && right > l && top < b && bottom > t)) return false;
  taken.push(box);
  return true;
}

function put(place, kind, words, x, y) {
  const node = (pool[place] ??= board.appendChild(el("span")));
  if (node.textContent !== words) node.textContent = words;
  if (node.className !== kind) node.className = kind;
  node.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  node.hidden = false;
}

/**
 * Write names for a view: `pixel` takes a place to a pixel, `size` is that of the map in pixels,
 * `zoom` how much larger it is than the window, `radius(row)` that of a point.
 * `reserved`: boxes that stay free.
 */
export function write({ pixel, size, zoom, radius, reserved }) {
  const taken = [...reserved];
  let used = 0;
  const { x, y, item, category } = points.columns();
  const only = points.choice();
  const nameItem = (row, kind) => {
    const [across, down] = pixel([x[row], y[row]]);
    if (across < 0 || down < 0 || across > size[0] || down > size[1]) return;
    const [name, wide] = nameAt(row);
    const isFirst = kind !== "name"; // in bold letters, next to a ring
    const away = Math.max(radius(row), isFirst ? 7 : 0) + 3;
    const long = wide * (isFirst ? 1.1 : 1) + 2;
    for (const left of [across + away, across - away - long]) {
      if (!take(taken, [left - 2, down - LINE / 2, left + long + 2, down + LINE / 2], size)) continue;
      return put(used++, kind, name, left, down - LINE / 2);
    }
  };
  for (const row of preferred) nameItem(row, "name first");
  for (const { name, place, half, category: own } of zoom < REGIONS_UNTIL ? regions : []) {
    if (only !== null && own !== only) continue;
    const [across, down] = pixel(place);
    const box = [across - half, down - REGION_LINE / 2, across + half, down + REGION_LINE / 2];
    if (take(taken, box, size)) put(used++, "region", name, box[0] + 4, box[1]);
  }
  const most = used + Math.min(MOST, Math.ceil((size[0] * size[1]) / AREA));
  let left = KNOWN * Math.max(1, zoom) ** 2;
  for (let row = 0; row < item.length && used < most && left > 0; row++) {
    if (preferred.has(row) || (only !== null && !category[row].includes(only))) continue;
    left--;
    nameItem(row, "name");
  }
  for (const node of pool.slice(used)) node.hidden = true;
}
