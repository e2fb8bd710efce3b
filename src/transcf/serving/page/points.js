// The points of the map: where items are, what they are called, and which colour they have.

//: Categories with a colour of their own; other items have the next one.
export const COLORS = 10;
//: Cells of the grid that finds points near a place, along each axis.
const CELLS = 96;
//: Cells of the grid that finds where a category is at home; items that it needs there.
const HOMES = 16;
const LEAST_AT_HOME = 4;

let data = null;
let rows = new Map();
let colors = new Map(); // from the number of a category to the number of a colour
let chosen = null; // the number of the one category that has a colour
let shades = null; // numbers of colours by row, where a number of the items is shown instead
let bounds = null; // [x0, x1, y0, y1]
let cells = null;

/** Take the answer of the service; items with most users come first. */
export function take(found) {
  data = found;
  rows = new Map(data.item.map((item, row) => [item, row]));
  const named = sizes().filter(({ count }) => count > 0);
  colors = new Map(named.slice(0, COLORS).map(({ place }, color) => [place, color]));
  if (chosen !== null && !data.categories[chosen]) chosen = null;
  bounds = [...spread(data.x), ...spread(data.y)];
  cells = shades = null;
}

/**
 * Colour items by a number each (null: by their categories), in as many steps as there are colours,
 * with as many items in each. Returns the smallest and the largest number.
 */
export function shade(values) {
  if (values === null) return (shades = null);
  const sorted = Float64Array.from(values.filter((value) => value !== null)).sort();
  const limits = Array.from({ length: COLORS - 1 }, (_, step) => sorted[Math.floor(((step + 1) * sorted.length) / COLORS)]);
  shades = values.map((value) => (value === null ? COLORS : limits.filter((limit) => value >= limit).length));
  return [sorted[0], sorted.at(-1)];
}

/** Whether items are coloured by a number. */
export const isShaded = () => shades !== null;

function spread(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return high > low ? [low, high] : [low - 0.5, low + 0.5];
}

/** Categories by their number of items: `{place, name, count}`. */
export function sizes() {
  const counts = data.categories.map(() => 0);
  for (const places of data.category) for (const place of places) counts[place]++;
  const all = data.categories.map((name, place) => ({ place, name, count: counts[place] }));
  return all.sort((one, other) => other.count - one.count || one.place - other.place);
}

/** The columns of the service's answer, or null before it has come. */
export const columns = () => data;

/** Where the points are: [x0, x1, y0, y1]. */
export const extent = () => bounds;

/** Give one category a colour and no other (its number; null: each its own). */
export function choose(place) {
  chosen = place;
}
export const choice = () => chosen;

/** The number of a row's colour: its rarest category's, or whether it is of the chosen one. */
export function colorAt(row) {
  if (shades) return shades[row];
  const places = data.category[row];
  if (chosen !== null) return places.includes(chosen) ? colors.get(chosen) ?? 0 : COLORS;
  if (!colors.size) return 0;
  const own = places.flatMap((place) => colors.get(place) ?? []); // colours are numbered by size
  return own.length ? Math.max(...own) : COLORS;
}

/** The number of a category's colour, or null where the map does not show it. */
export function colorOf(category) {
  if (shades) return null;
  const place = data?.categories.indexOf(category) ?? -1;
  return place < 0 ? null : colors.get(place) ?? COLORS;
}

/** Where an item is: [x, y], or null where it is not on the map. */
export function placeOf(item) {
  const row = rows.get(item);
  return row === undefined ? null : [data.x[row], data.y[row]];
}

/** The row of an item, or undefined. */
export const rowOf = (item) => rows.get(item);

/** An item of the map as lists have it. */
export function entryOf(item) {
  const row = rows.get(item);
  return { item, title: data.title[row], categories: data.category[row].map((place) => data.categories[place]) };
}

/** What a row is called. */
export const nameAt = (row) => data.title[row] ?? String(data.item[row]);

/** Whether the model translates users toward items. */
export const hasTranslations = () => data?.translations ?? false;

const cellOf = (value, low, high, cells) => Math.min(cells - 1, Math.max(0, Math.floor(((value - low) / (high - low)) * cells)));

/** The row nearest to a place within an ellipse with these half-axes; null if there is none. */
export function nearest([x, y], [wide, high]) {
  const [x0, x1, y0, y1] = bounds;
  if (!cells) {
    cells = Array.from({ length: CELLS * CELLS }, () => []);
    data.x.forEach((own, row) => cells[cellOf(own, x0, x1, CELLS) + CELLS * cellOf(data.y[row], y0, y1, CELLS)].push(row));
  }
  const [left, right] = [cellOf(x - wide, x0, x1, CELLS), cellOf(x + wide, x0, x1, CELLS)];
  const [bottom, top] = [cellOf(y - high, y0, y1, CELLS), cellOf(y + high, y0, y1, CELLS)];
  let [best, least] = [null, 1];
  for (let line = bottom; line <= top; line++) {
    for (let column = left; column <= right; column++) {
      for (const row of cells[column + CELLS * line]) {
        const away = ((data.x[row] - x) / wide) ** 2 + ((data.y[row] - y) / high) ** 2;
        if (away < least || (away === least && row < best)) [best, least] = [row, away];
      }
    }
  }
  return best;
}

/**
 * Names of regions: each category where its share of the items is highest.
 * `{name, place, strength}`, the clearest first.
 */
export function regions() {
  const [x0, x1, y0, y1] = bounds;
  const totals = new Float64Array(HOMES * HOMES);
  const counts = data.categories.map(() => new Float64Array(HOMES * HOMES));
  const own = data.x.map((x, row) => cellOf(x, x0, x1, HOMES) + HOMES * cellOf(data.y[row], y0, y1, HOMES));
  own.forEach((cell, row) => {
    totals[cell]++;
    for (const place of data.category[row]) counts[place][cell]++;
  });
  const around = (values, cell) => {
    const [column, line] = [cell % HOMES, Math.floor(cell / HOMES)];
    let sum = 0;
    for (let up = Math.max(0, line - 1); up <= Math.min(HOMES - 1, line + 1); up++) {
      for (let right = Math.max(0, column - 1); right <= Math.min(HOMES - 1, column + 1); right++) sum += values[right + HOMES * up];
    }
    return sum;
  };
  const found = [];
  data.categories.forEach((name, place) => {
    const share = counts[place].reduce((sum, count) => sum + count, 0) / data.x.length;
    let [home, strength] = [-1, 0];
    for (let cell = 0; cell < totals.length; cell++) {
      const here = around(counts[place], cell);
      if (here < LEAST_AT_HOME) continue;
      const lift = (here / around(totals, cell) - share) * Math.sqrt(here);
      if (lift > strength) [home, strength] = [cell, lift];
    }
    if (home < 0) return;
    const there = own.flatMap((cell, row) => (cell === home && data.category[row].includes(place) ? [row] : []));
    const middle = (values) => there.reduce((sum, row) => sum + values[row], 0) / there.length;
    if (there.length) found.push({ name, place: [middle(data.x), middle(data.y)], category: place, strength });
  });
  return found.sort((one, other) => other.strength - one.strength);
}
