// A form that sends a request to an endpoint, and shows status, headers and answer as they come.

import { make } from "./dom.js";
import { send, texts } from "./server.js";

const MAX_SHOWN_CHARS = 200_000;
const ROWS = 10;

/** Return the form for an operation; `served.models` are names for the field `model`. */
export function tryForm(path, method, operation, served) {
  const inputs = parameterInputs(operation);
  const body = bodyInput(operation, served);
  const stop = make("button", { type: "button", disabled: "" }, "Stop");
  const button = make("button", { class: "main" }, "Send");
  const output = make("output", { "aria-live": "off" });
  const form = make(
    "form",
    { class: "try", "aria-label": `Try ${method.toUpperCase()} ${path}` },
    ...inputs.map((one) => one.label),
    body === null ? null : make("label", {}, "Body", body),
    make("div", { class: "buttons" }, button, stop),
    output,
  );
  let controller = null;
  stop.addEventListener("click", () => controller?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    controller = new AbortController();
    button.disabled = true;
    stop.disabled = false;
    const request = { method: method.toUpperCase(), signal: controller.signal };
    if (body !== null) {
      request.body = body.value;
    }
    await exchange(targetOf(path, inputs), request, output);
    button.disabled = false;
    stop.disabled = true;
  });
  return form;
}

function parameterInputs(operation) {
  return (operation.parameters ?? [])
    .filter((parameter) => parameter.in === "path" || parameter.in === "query")
    .map((parameter) => {
      const input = make("input", parameter.in === "path" ? { required: "" } : {});
      return { parameter, input, label: make("label", {}, parameter.name, input) };
    });
}

function bodyInput(operation, served) {
  const content = operation.requestBody?.content["application/json"];
  if (content === undefined) {
    return null;
  }
  const input = make("textarea", { rows: ROWS, spellcheck: "false" });
  const [model] = served.models;
  const body = { ...(model === undefined ? {} : { model }), ...content.example };
  input.value = JSON.stringify(body, null, 2);
  return input;
}

function targetOf(path, inputs) {
  const query = new URLSearchParams();
  let target = path.slice(1);
  for (const { parameter, input } of inputs) {
    if (parameter.in === "path") {
      // A name may hold slashes, which the server wants as they are.
      const value = input.value.split("/").map(encodeURIComponent).join("/");
      target = target.replace(`{${parameter.name}}`, value);
    } else if (input.value !== "") {
      query.set(parameter.name, input.value);
    }
  }
  return query.size === 0 ? target : `${target}?${query}`;
}

async function exchange(target, request, output) {
  const beganAt = performance.now();
  const status = make("p", {}, "Waiting");
  output.replaceChildren(status);
  try {
    const response = await send(target, request);
    const line = `${response.status} ${response.statusText}`.trim();
    status.textContent = line;
    status.className = response.ok ? "good" : "bad";
    const shown = make("pre", { tabindex: "0", "aria-label": "Answer" });
    output.append(headersOf(response), shown);
    const note = await showText(response, shown);
    const seconds = ((performance.now() - beganAt) / 1000).toFixed(2);
    status.textContent = `${line}, ${seconds} s${note}`;
  } catch (error) {
    status.className = "bad";
    status.textContent = request.signal.aborted ? "Stopped" : error.message;
  }
}

function headersOf(response) {
  const lines = [...response.headers].map(([name, value]) => `${name}: ${value}`);
  const summary = make("summary", {}, "Headers");
  return make("details", {}, summary, make("pre", {}, lines.join("\n")));
}

/** Show a body as it comes; a whole JSON text is indented. Return what the reader should know. */
async function showText(response, place) {
  const node = document.createTextNode("");
  place.append(node);
  for await (const text of texts(response)) {
    node.appendData(text.slice(0, MAX_SHOWN_CHARS - node.length));
    if (node.length >= MAX_SHOWN_CHARS) {
      return "; the rest is not shown";
    }
  }
  if (response.headers.get("content-type")?.startsWith("application/json")) {
    node.data = indented(node.data);
  }
  return "";
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
