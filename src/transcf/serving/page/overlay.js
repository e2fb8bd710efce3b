// What is special on the map: the person, the history, what is recommended, and translations.

import { byId, fill, svg } from "./dom.js";

const board = byId("overlay");

let ranges = null;
let shown = { me: null, name: "", history: [], picks: [], target: null, moved: [] };

/** Width and height of the map in pixels. */
export const size = () => [board.clientWidth, board.clientHeight];

/** From a place of the map to pixels. */
export function pixel([x, y]) {
  const [[x0, x1], [y0, y1]] = ranges;
  const [width, height] = size();
  return [((x - x0) / (x1 - x0)) * width, ((y1 - y) / (y1 - y0)) * height];
}

/** Look at another part of the map. */
export function look(changed) {
  ranges = changed;
  draw();
}

/**
 * Show something else; what is not named stays.
 * me: where the person stands; history, picks: places; target: the item that is looked at;
 * moved: where the person is moved for it, `{place, share}` each.
 */
export function show(changed) {
  shown = { ...shown, ...changed };
  byId("map").classList.toggle("peopled", shown.me !== null);
  byId("signs").hidden = shown.me === null;
  draw();
}

function circle(kind, place, r) {
  const [cx, cy] = pixel(place);
  return svg("circle", { class: kind, cx, cy, r });
}

function way(from, to, share) {
  const [[x1, y1], [x2, y2]] = [pixel(from), pixel(to)];
  return svg("line", { class: "way", x1, y1, x2, y2, opacity: 0.25 + 0.75 * share });
}

function diamond([x, y], r) {
  return svg("path", { class: "me", d: `M${x} ${y - r} L${x + r} ${y} L${x} ${y + r} L${x - r} ${y} Z` });
}

function draw() {
  if (!ranges) return;
  const { me, name, history, picks, target, moved } = shown;
  const largest = Math.max(0, ...moved.map(({ share }) => share));
  const strength = (share) => (largest ? share / largest : 1);
  const [x, y] = me ? pixel(me) : [0, 0];
  fill(
    board,
    history.map((place) => circle("history", place, 5.5)),
    picks.map((place) => circle("pick", place, 7)),
    me ? moved.map(({ place, share }) => way(me, place, strength(share))) : [],
    moved.map(({ place, share }) => circle("moved", place, 2.5 + 4 * strength(share))),
    target ? circle("target", target, 10) : null,
    me ? diamond([x, y], 9) : null,
    me && name ? svg("text", { x: x + 13, y: y + 4 }, name) : null,
  );
}
