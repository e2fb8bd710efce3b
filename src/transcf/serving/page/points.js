// The points of the map: where items are, what they are called, and which colour they have.

//: Categories with a colour of their own; the rest shares the next one.
const COLORS = 10;

let data = null;
let rows = new Map();
let colors = new Map(); // from a place in `categories` to the number of a colour
let groups = [];

/** Take what the service says; rows of the most popular items come first. */
export function take(found) {
  data = found;
  rows = new Map(data.item.map((item, row) => [item, row]));
  const counts = new Map();
  for (const place of data.category) counts.set(place, (counts.get(place) ?? 0) + 1);
  const named = [...counts.keys()].filter((place) => place >= 0);
  named.sort((one, other) => counts.get(other) - counts.get(one) || one - other);
  colors = new Map(named.slice(0, COLORS).map((place, color) => [place, color]));
  const members = new Map();
  data.category.forEach((place, row) => {
    const color = colorAt(place);
    if (!members.has(color)) members.set(color, []);
    members.get(color).push(row);
  });
  groups = [...members].sort(([one], [other]) => one - other).map(([color, own]) => ({ color, members: own }));
}

const colorAt = (place) => (colors.size ? colors.get(place) ?? COLORS : 0);

/** The columns of the service's answer, or null before it has come. */
export const columns = () => data;

/** Points of one colour each: `{color, members}`, members being rows. */
export const byColor = () => groups;

/** What the points of a colour have in common. */
export function nameOfColor(color) {
  const place = [...colors].find(([, own]) => own === color)?.[0];
  if (place !== undefined) return data.categories[place];
  return colors.size ? "Others" : "Items";
}

/** The number of a category's colour, or null where the map does not know it. */
export function colorOf(category) {
  const place = data?.categories.indexOf(category) ?? -1;
  return place < 0 ? null : colorAt(place);
}

/** Where an item is: [x, y], or null where it is not on the map. */
export function placeOf(item) {
  const row = rows.get(item);
  return row === undefined ? null : [data.x[row], data.y[row]];
}

/** An item of the map as lists have it. */
export function entryOf(item) {
  const row = rows.get(item);
  const category = data.categories[data.category[row]];
  return { item, title: data.title[row], categories: category === undefined ? [] : [category] };
}

/** Whether people are moved toward items. */
export const hasTranslations = () => data?.translations ?? false;
