// The page at /docs: the endpoints of openapi.json, with their fields, a search and a way to try.

import { folded, make, withCode } from "./dom.js";
import { fieldNames, schemaTable, typeOf } from "./fields.js";
import { ask, connect } from "./server.js";
import { tryForm } from "./try.js";

const operations = document.getElementById("operations");
const search = document.getElementById("search");
const found = document.getElementById("found");
const about = document.getElementById("about");
/** What the server serves, as far as a key has shown it. */
const served = { models: [] };

try {
  connect(readModels).catch((error) => { about.textContent = error.message; });
  const api = await (await ask("openapi.json")).json();
  about.replaceChildren(withCode(api.info.description));
  show(api);
  search.addEventListener("input", filter);
  // Something may have been typed before the page knew its endpoints.
  filter();
  openNamed();
  window.addEventListener("hashchange", openNamed);
} catch (error) {
  about.textContent = error.message;
}

async function readModels() {
  try {
    served.models = (await (await ask("state")).json()).models.map((model) => model.id);
  } catch (error) {
    about.textContent = error.message;
  }
}

function show(api) {
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      operations.append(shownOperation(api, path, method, operation));
    }
  }
  const schemas = document.getElementById("schemas");
  for (const [name, schema] of Object.entries(api.components.schemas)) {
    const inside = () => make("div", { class: "inside" }, schemaTable(schema, api));
    schemas.append(folded(make("code", {}, name), inside, { id: `schema-${name}` }));
  }
}

function shownOperation(api, path, method, operation) {
  const name = make("code", {}, make("span", { class: "method" }, method.toUpperCase()), path);
  const note = make("span", { class: "faint" }, " ", firstSentence(operation.description));
  const line = make("span", {}, name, note);
  const id = `${method}${path}`.replace(/\W+/g, "-").replace(/-$/, "");
  const details = folded(line, () => insideOf(api, path, method, operation), { id });
  const body = bodySchema(operation);
  const fields = body === null ? [] : fieldNames(body, api);
  details.dataset.words = [method, path, operation.description, ...fields].join(" ").toLowerCase();
  return details;
}

function firstSentence(text = "") {
  return withCode(text.split(/[.;:]\s/)[0].replace(/\.$/, ""));
}

function insideOf(api, path, method, operation) {
  const inside = make("div", { class: "inside" });
  inside.append(make("p", {}, withCode(operation.description ?? "")));
  const body = bodySchema(operation);
  if (body !== null) {
    inside.append(make("h3", {}, "Body: ", typeOf(body)), schemaTable(body, api));
  }
  inside.append(make("h3", {}, "Answers"), answers(operation));
  inside.append(tryForm(path, method, operation, served));
  mark(inside);
  return inside;
}

function bodySchema(operation) {
  return operation.requestBody?.content["application/json"]?.schema ?? null;
}

function answers(operation) {
  const rows = Object.entries(operation.responses).map(([status, response]) => {
    const types = Object.entries(response.content ?? {}).map(([type, content]) => {
      const schema = content["x-event-schema"] ?? content.schema ?? {};
      return make("div", {}, make("code", {}, type), " ", typeOf(schema));
    });
    return make(
      "tr",
      {},
      make("td", {}, status),
      make("td", {}, withCode(response.description)),
      make("td", {}, ...types),
    );
  });
  return make("div", { class: "scroll" }, make("table", {}, ...rows));
}

/** Show the endpoints that have every word of the search in their path, text or fields. */
function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
  let count = 0;
  for (const details of operations.children) {
    details.hidden = !words.every((word) => details.dataset.words.includes(word));
    count += details.hidden ? 0 : 1;
  }
  found.textContent = words.length === 0 ? "" : `${count} of ${operations.children.length}`;
  mark(operations);
}

/** Mark the rows of the fields that the search names, and of those that hold them. */
function mark(place) {
  const words = search.value.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
  for (const row of place.querySelectorAll("tr[data-fields]")) {
    row.classList.toggle("match", words.some((word) => row.dataset.fields.includes(word)));
  }
}

/** Open the part that the address names. */
function openNamed() {
  const details = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (details !== null && details.tagName === "DETAILS") {
    details.open = true;
    details.scrollIntoView();
  }
}
