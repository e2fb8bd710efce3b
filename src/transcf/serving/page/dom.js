// Making elements. Data becomes text and nothing else.

const SVG = "http://www.w3.org/2000/svg";

/** Find an element of the page by its id. */
export const byId = (id) => document.getElementById(id);

/**
 * Make an element: attributes by name, `on` for listeners, children as elements or text.
 * An attribute that is null, undefined or false is left out; true stands without a value.
 */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** Replace the children of a node. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

/** Let a screen reader say what has changed. */
export function say(words) {
  byId("said").textContent = words;
}

/** The beginning of a long text. */
export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text);

/** Write a number as people do. */
export function number(value, digits = 0) {
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** Write a share of one. */
export function percent(share) {
  const value = 100 * share;
  return `${Math.abs(value) < 1 && value !== 0 ? value.toPrecision(1) : Math.round(value)} %`;
}
