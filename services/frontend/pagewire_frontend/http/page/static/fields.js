// Shows a JSON Schema as a table of fields, with nested schemas inside it and links to them.

import { folded, make, withCode } from "./dom.js";

const MAX_DEPTH = 5;
const PREFIX = "#/components/schemas/";

/** Return a table of the fields of a schema, or its type where it has no fields. */
export function schemaTable(schema, api, depth = 0) {
  const whole = resolved(schema, api);
  const fields = Object.entries(whole.properties ?? {});
  if (fields.length === 0) {
    return make("p", {}, typeOf(schema));
  }
  const required = new Set(whole.required ?? []);
  const rows = fields.map(([name, field]) => row(name, field, required.has(name), api, depth));
  const heads = ["Field", "Type", "What it does"];
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const table = make("table", { class: "fields" }, make("thead", {}, head));
  table.append(make("tbody", {}, ...rows));
  return depth === 0 ? make("div", { class: "scroll" }, table) : table;
}

function row(name, field, isRequired, api, depth) {
  const first = make("td", {}, make("code", {}, name));
  if (isRequired) {
    first.append(" ", make("span", { class: "required" }, "required"));
  }
  const last = make("td", {}, withCode(field.description ?? ""));
  const names = [name];
  if (depth < MAX_DEPTH) {
    for (const nested of nestedOf(field, api)) {
      const title = make("span", {}, "Fields of ", nested.title);
      last.append(folded(title, () => schemaTable(nested.schema, api, depth + 1)));
      names.push(...fieldNames(nested.schema, api, depth + 1));
    }
  }
  const words = names.join(" ").toLowerCase();
  return make("tr", { "data-fields": words }, first, make("td", {}, typeOf(field)), last);
}

/** Return the names of the fields of a schema and of those nested in it. */
export function fieldNames(schema, api, depth = 0) {
  const names = [];
  for (const [name, field] of Object.entries(resolved(schema, api).properties ?? {})) {
    names.push(name);
    if (depth < MAX_DEPTH) {
      names.push(...nestedOf(field, api).flatMap((one) => fieldNames(one.schema, api, depth + 1)));
    }
  }
  return names;
}

/** Return the schemas with fields that a schema consists of: in lists and alternatives, too. */
function nestedOf(schema, api) {
  if (schema.$ref !== undefined) {
    const hasFields = resolved(schema, api).properties !== undefined;
    return hasFields ? [{ title: nameOf(schema), schema }] : [];
  }
  if (schema.properties !== undefined) {
    return [{ title: "the object", schema }];
  }
  const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), schema.items];
  const found = parts.filter((part) => part instanceof Object).flatMap((part) => nestedOf(part, api));
  return found.filter((one, at) => found.findIndex((other) => other.title === one.title) === at);
}

/** Return the type of a schema in words, as nodes; a named schema is a link. */
export function typeOf(schema) {
  const fragment = document.createDocumentFragment();
  if (schema.$ref !== undefined) {
    fragment.append(make("a", { href: `#schema-${nameOf(schema)}` }, nameOf(schema)));
    return fragment;
  }
  const options = schema.anyOf ?? schema.oneOf;
  if (options !== undefined) {
    const shown = options.filter((option) => option.type !== "null");
    shown.forEach((option, number) => fragment.append(number ? " or " : "", typeOf(option)));
    return fragment;
  }
  if ("const" in schema) {
    fragment.append(make("code", {}, JSON.stringify(schema.const)));
  } else if (schema.enum !== undefined) {
    const values = schema.enum.filter((value) => value !== null);
    values.forEach((value, number) => {
      fragment.append(number ? ", " : "", make("code", {}, JSON.stringify(value)));
    });
  } else if (schema.type === "array") {
    fragment.append("list of ", schema.items ? typeOf(schema.items) : "any");
  } else {
    const types = [schema.type ?? "any"].flat().filter((type) => type !== "null");
    fragment.append(types.join(" or "));
  }
  return fragment;
}

function resolved(schema, api) {
  return schema.$ref === undefined ? schema : api.components.schemas[nameOf(schema)] ?? {};
}

function nameOf(schema) {
  return schema.$ref.replace(PREFIX, "");
}
