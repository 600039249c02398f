// Shows the state of the cell, and the models among which the chat chooses.

import { make } from "./dom.js";

const place = document.getElementById("state");

/** Show the answer of /state. */
export function showState(state) {
  const reason = state.why_not_ready;
  const ready = reason === null
    ? make("p", { class: "good" }, "Ready")
    : make("p", { class: "bad" }, `Not ready: ${reason}`);
  replace([ready, ...state.models.map(described), openRequests(state)]);
}

/** Show a sentence instead, such as that the server does not answer. */
export function showTrouble(message) {
  replace([make("p", { class: "bad" }, message)]);
}

/** Offer the models to the chat; the choice stays where it still exists. */
export function showModels(models) {
  const select = document.getElementById("model");
  const names = models.map((model) => model.id);
  const shown = [...select.options].map((option) => option.value);
  if (names.join("\n") === shown.join("\n")) {
    return;
  }
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  if (names.includes(chosen)) {
    select.value = chosen;
  }
}

function replace(parts) {
  const texts = (nodes) => [...nodes].map((node) => node.textContent).join("\n");
  // A status that did not change is not read out again.
  if (texts(parts) !== texts(place.children)) {
    place.replaceChildren(...parts);
  }
}

function described(model) {
  const rows = [
    ["Context", model.max_model_len === null ? "unknown" : `${model.max_model_len} tokens`],
    ["Workers", String(model.num_workers)],
  ];
  if (!model.has_chat_template) {
    rows.push(["Chat", "no chat template"]);
  }
  return make("div", { class: "model" }, make("strong", {}, model.id), list(rows));
}

function openRequests(state) {
  return list([["Open requests", String(state.num_open_requests)]]);
}

function list(rows) {
  const parts = rows.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]);
  return make("dl", {}, ...parts);
}
