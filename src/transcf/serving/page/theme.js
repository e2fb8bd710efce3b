// Light, dark, or as in the system.

import { byId } from "./dom.js";

const KEY = "transcf-theme";
const WORDS = { system: "as in the system", light: "light", dark: "dark" };
const SIGNS = { system: "◐", light: "☀", dark: "☾" };

const button = byId("theme");
const isDark = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

let chosen = localStorage.getItem(KEY) in WORDS ? localStorage.getItem(KEY) : "system";

function apply() {
  const dark = chosen === "dark" || (chosen === "system" && isDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  button.textContent = SIGNS[chosen];
  button.setAttribute("aria-label", `Colours: ${WORDS[chosen]}`);
  button.title = `Colours: ${WORDS[chosen]} (t)`;
  for (const listener of listeners) listener();
}

/** Call a listener when colours change. */
export const watch = (listener) => listeners.push(listener);

/** Go on to the next of the three. */
export function next() {
  const names = Object.keys(WORDS);
  chosen = names[(names.indexOf(chosen) + 1) % names.length];
  localStorage.setItem(KEY, chosen);
  apply();
}

button.addEventListener("click", next);
isDark.addEventListener("change", apply);
apply();
