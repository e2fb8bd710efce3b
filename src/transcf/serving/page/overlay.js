// What is special on the map: the user, the history, recommendations, neighbours and translations.

import { byId, fill, shortened, svg } from "./dom.js";

const board = byId("overlay");
const NOTHING = { me: null, name: "", history: [], picks: [], target: null, moved: [], links: [] };

//: Longest name of a user, in characters, and a character's width in pixels.
const LONGEST = 26;
const WIDE = 8;

let pixel = null;
let shown = NOTHING;

/** Look at another part of the map: `pixel` takes a place to a pixel. */
export function look(changed) {
  pixel = changed;
  draw();
}

/**
 * Show something else; what is not named stays.
 * me: where the user is; history, picks: places; target: the item that is looked at; links: places
 * of its neighbours; moved: where the user is translated for it, `{place, share}` each.
 */
export function show(changed) {
  shown = { ...shown, ...changed };
  byId("map").classList.toggle("special", shown.me !== null || shown.links.length > 0);
  byId("signs").hidden = shown.me === null && !shown.picks.length;
  for (const sign of document.querySelectorAll("[data-sign]")) {
    const value = shown[sign.dataset.sign];
    sign.hidden = Array.isArray(value) ? !value.length && sign.dataset.sign !== "moved" : value === null;
  }
  draw();
}

/** The pixel of the user, or null. */
export const user = () => (shown.me && pixel ? pixel(shown.me) : null);

/** The name of the user next to the mark at x: its text, and the pixels that it takes, to the right if there is space. */
function nameplate(x) {
  const text = shortened(shown.name, LONGEST);
  const [wide, right] = [WIDE * text.length, board.getBoundingClientRect().width];
  const isLeft = x + 20 + wide > right && x > right / 2;
  return { text, isLeft, from: isLeft ? x - 20 - wide : x - 12, to: isLeft ? x + 12 : x + 20 + wide };
}

/** Boxes of pixels that names of items keep free: the user with the name, and rings. */
export function boxes() {
  const around = (r) => (place) => {
    const [x, y] = pixel(place);
    return [x - r, y - r, x + r, y + r];
  };
  const rings = [...shown.history.map(around(4)), ...shown.picks.map(around(6))];
  if (!shown.me) return rings;
  const [x, y] = pixel(shown.me);
  const { from, to } = nameplate(x);
  return [...rings, [from, y - 12, to, y + 12]];
}

function circle(kind, place, r) {
  const [cx, cy] = pixel(place);
  return svg("circle", { class: kind, cx, cy, r });
}

function line(kind, from, to, opacity = 1) {
  const [[x1, y1], [x2, y2]] = [pixel(from), pixel(to)];
  return svg("line", { class: kind, x1, y1, x2, y2, opacity });
}

function diamond([x, y], r) {
  return svg("path", { class: "me", d: `M${x} ${y - r} L${x + r} ${y} L${x} ${y + r} L${x - r} ${y} Z` });
}

function draw() {
  if (!pixel) return;
  const { me, name, history, picks, target, moved, links } = shown;
  const largest = Math.max(0, ...moved.map(({ share }) => share));
  const strength = (share) => (largest ? share / largest : 1);
  const [x, y] = me ? pixel(me) : [0, 0];
  const { text, isLeft } = nameplate(x);
  fill(
    board,
    target ? links.map((place) => line("link", target, place)) : [],
    history.map((place) => circle("history", place, 5)),
    picks.map((place) => circle("pick", place, 7)),
    me ? moved.map(({ place, share }) => line("way", me, place, 0.25 + 0.75 * strength(share))) : [],
    moved.map(({ place, share }) => circle("moved", place, 2.5 + 4 * strength(share))),
    target ? circle("target", target, 10) : null,
    me ? diamond([x, y], 9) : null,
    me && name ? svg("text", { x: isLeft ? x - 13 : x + 13, y: y + 4, "text-anchor": isLeft ? "end" : "start" }, text) : null,
  );
}
