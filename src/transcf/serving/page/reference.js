// The reference of the API, from its OpenAPI description.

import * as api from "./api.js";
import { byId, el, fill } from "./dom.js";
import * as person from "./person.js";
import { fold, part, subject } from "./views.js";

/** The type of a value in words, and the names of the schemas it refers to. */
function typeOf(schema, named) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    named.add(name);
    return name;
  }
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, named)).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${schema.items ? typeOf(schema.items, named) : "values"}`;
  return schema.type ?? "value";
}

/** A table of fields, `[name, schema, is required]` each. */
function fields(entries, named) {
  const rows = entries.map(([name, schema, isRequired]) => {
    const value = schema.default === undefined ? "" : `, ${JSON.stringify(schema.default)} if not given`;
    const type = `${typeOf(schema, named)}${isRequired ? ", required" : value}`;
    return el("tr", {}, el("th", { scope: "row", class: "code" }, name), el("td", {}, schema.description ?? ""), el("td", { class: "faint" }, type));
  });
  return el("div", { class: "scroll" }, el("table", { class: "wide" }, el("tbody", {}, rows)));
}

const fieldsOf = ({ properties = {}, required = [] }) =>
  Object.entries(properties).map(([name, schema]) => [name, schema, required.includes(name)]);

function schemas(names, known, depth = 0) {
  const deeper = new Set();
  const made = [...names].map((name) => [el("h3", {}, name), fields(fieldsOf(known[name]), deeper)]);
  const others = new Set([...deeper].filter((name) => !names.has(name)));
  return [made, others.size && depth < 3 ? schemas(others, known, depth + 1) : []];
}

function route(method, path, { description = "", parameters = [], requestBody, responses }, known) {
  const [sent, answered] = [new Set(), new Set()];
  const content = (body) => body?.content?.["application/json"]?.schema ?? {};
  typeOf(content(requestBody), sent);
  typeOf(content(responses["200"]), answered);
  const given = parameters.map(({ name, schema, required, description: words }) => [name, { description: words, ...schema }, required]);
  return el(
    "section",
    { class: "route" },
    el("h2", {}, el("code", {}, `${method.toUpperCase()} ${path}`)),
    el("p", {}, description.split("\n")[0]),
    given.length ? fold("Parameters", fields(given, new Set())) : null,
    sent.size ? fold("Body", schemas(sent, known)) : null,
    answered.size ? fold("Answer", schemas(answered, known)) : null,
  );
}

/** All routes, with what they take and answer. */
export async function referenceView({ signal }) {
  const { paths, components } = await api.reference(signal);
  const routes = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => route(method, path, about, components.schemas)),
  );
  const machines = part("For machines", "", el("p", {}, "OpenAPI: ", el("code", {}, new URL("openapi.json", document.baseURI).href)));
  fill(byId("content"), subject("API", "Reference", "Requests and answers are JSON."), machines, routes);
  person.show(null);
  return "API reference";
}
