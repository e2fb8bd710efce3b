// Filters of recommendations: category, length and seen items. They are part of the address.

import * as api from "./api.js";
import { el } from "./dom.js";

const LENGTHS = [12, 24, 50, 100];

let known = null; // names of categories

/** Filters from the query of an address: `{k, category, seen}`. */
export function readFilters(query) {
  const k = Number(query.get("k"));
  return { k: LENGTHS.includes(k) ? k : LENGTHS[0], category: query.get("category") ?? "", seen: query.get("seen") === "1" };
}

function write({ k, category, seen }) {
  const query = new URLSearchParams();
  if (k !== LENGTHS[0]) query.set("k", String(k));
  if (category) query.set("category", category);
  if (seen) query.set("seen", "1");
  const [path] = location.hash.split("?");
  location.hash = String(query) ? `${path}?${query}` : path;
}

/** The controls; a change goes to the address, which draws the view again. */
export async function filterBar(filters) {
  known ??= (await api.categories().catch(() => ({ categories: [] }))).categories.map(({ category }) => category);
  const option = (value, words, isChosen) => el("option", { value, selected: isChosen }, words);
  const category = el(
    "select",
    { "aria-label": "Category", on: { change: () => write({ ...filters, category: category.value }) } },
    option("", "All categories", !filters.category),
    known.map((name) => option(name, name, name === filters.category)),
  );
  const length = el(
    "select",
    { "aria-label": "Length of the list", on: { change: () => write({ ...filters, k: Number(length.value) }) } },
    LENGTHS.map((k) => option(k, `${k} items`, k === filters.k)),
  );
  const seen = el("input", { type: "checkbox", checked: filters.seen, on: { change: () => write({ ...filters, seen: seen.checked }) } });
  return el("div", { class: "filters" }, known.length ? category : null, length, el("label", {}, seen, "with items of the history"));
}
