// The requests behind a view: as curl, as Python, and their answers as JSON.

import { byId, el, fill, say } from "./dom.js";
import * as api from "./api.js";

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const address = (path) => new URL(path, document.baseURI).href;
const LONGEST = 40000;

function asCurl({ path, body }) {
  const token = api.hasToken() ? ' \\\n  -H "Authorization: Bearer $TRANSCF_TOKEN"' : "";
  const data = body === undefined ? "" : ` \\\n  -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
  return `curl ${quoted(address(path))}${token}${data}`;
}

/** A value as Python writes it. */
function python(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, own]) => `${python(name)}: ${python(own)}`).join(", ")}}`;
  return JSON.stringify(value);
}

function asPython({ path, body }) {
  const [first, token] = api.hasToken()
    ? ["import os\n\nimport httpx", ', headers={"Authorization": f"Bearer {os.environ[\'TRANSCF_TOKEN\']}"}']
    : ["import httpx", ""];
  const [method, data] = body === undefined ? ["get", ""] : ["post", `, json=${python(body)}`];
  return `${first}\n\nanswer = httpx.${method}(${python(address(path))}${data}${token}).raise_for_status().json()`;
}

function asJson({ answer }) {
  const text = JSON.stringify(answer, null, 2);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… (${text.length} characters)` : text;
}

const FORMS = { curl: asCurl, Python: asPython, JSON: asJson };

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    say("Copied");
  } catch {
    button.textContent = "Select the text to copy it";
  }
  setTimeout(() => (button.textContent = "Copy"), 1600);
}

function request(call) {
  const shown = el("pre", { tabindex: 0, hidden: true });
  const button = el("button", { type: "button", class: "button small", hidden: true }, "Copy");
  button.addEventListener("click", () => copy(shown.textContent, button));
  const forms = Object.entries(FORMS).map(([name, form]) => {
    const choice = el("button", { type: "button", class: "button small", "aria-pressed": "false" }, name);
    choice.addEventListener("click", () => {
      const isOpen = choice.getAttribute("aria-pressed") === "true";
      for (const other of forms) other.setAttribute("aria-pressed", "false");
      choice.setAttribute("aria-pressed", String(!isOpen));
      shown.hidden = button.hidden = isOpen;
      shown.textContent = form(call);
      shown.setAttribute("aria-label", `${call.path} as ${name}`);
    });
    return choice;
  });
  const method = call.body === undefined ? "GET" : "POST";
  const path = decodeURI(call.path.replaceAll("%25", "%2525"));
  return el("li", {}, el("code", {}, `${method} /${path}`), el("span", { class: "forms" }, forms, button), shown);
}

/** Add the requests of the present view to its end. */
export function addRequests() {
  byId("requests")?.remove();
  const calls = api.recorded();
  if (!calls.length) return;
  const reference = el("a", { href: "#/api", class: "link" }, "API reference");
  const made = el(
    "details",
    { id: "requests", class: "fold" },
    el("summary", {}, "Requests behind this view"),
    el("p", { class: "faint" }, "As curl or Python to copy, or the raw answer. ", reference),
    el("ul", { class: "requests" }, calls.map(request)),
  );
  byId("content").append(made);
}
