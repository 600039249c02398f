// Sends requests to this server, with the API key, and reads its answers and events.

const KEY = "pagewire-key";
const MAX_EVENT_CHARS = 4_000_000;

/** An answer with an error status, or an error in a stream. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

/** Send a request and return the response, whatever its status. */
export function send(path, { method = "GET", body, accept, signal } = {}) {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
  if (key !== null) {
    headers.authorization = `Bearer ${key}`;
  }
  if (body !== undefined) {
    headers["content-type"] = "application/json";
  }
  if (accept !== undefined) {
    headers.accept = accept;
  }
  return fetch(path, { method, headers, body, signal, redirect: "error" });
}

/** Send a request and return the response. Throws ServerError for an error status. */
export async function ask(path, options) {
  const response = await send(path, options);
  if (!response.ok) {
    throw new ServerError(await messageOf(response), response.status);
  }
  return response;
}

async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answers with status ${response.status}`;
  }
}

/** Yield the text of a body as it comes; leaving the loop ends the request. */
export async function* texts(response) {
  if (response.body === null) {
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) {
        return;
      }
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Yield the parsed events of a stream. Throws ServerError for an error among them. */
export async function* events(response) {
  let rest = "";
  for await (const text of texts(response)) {
    const parts = (rest + text).split("\n\n");
    rest = parts.pop();
    if (rest.length > MAX_EVENT_CHARS) {
      throw new ServerError("an event of the stream is too large to show", 0);
    }
    for (const part of parts) {
      const line = part.split("\n").find((one) => one.startsWith("data: "));
      const data = line?.slice("data: ".length);
      if (data !== undefined && data !== "[DONE]") {
        yield parsed(data);
      }
    }
  }
}

function parsed(data) {
  const event = JSON.parse(data);
  if (event.error) {
    throw new ServerError(event.error.message, 0);
  }
  return event;
}

/**
 * Ask the server what it is, and show the key field where it needs a key.
 *
 * Calls `onReady` when requests can be sent: at once, or when a key is there; again for a new key.
 * The key is kept in sessionStorage only: it is gone with the tab.
 */
export async function connect(onReady) {
  const form = document.getElementById("key-form");
  const about = await (await ask("./", { accept: "application/json" })).json();
  document.getElementById("version").textContent = about.version;
  form.hidden = !about.is_key_required;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const key = document.getElementById("key").value.trim();
    document.getElementById("key").value = "";
    if (key) {
      sessionStorage.setItem(KEY, key);
      onReady(about);
    } else {
      sessionStorage.removeItem(KEY);
    }
  });
  if (!about.is_key_required || hasKey()) {
    onReady(about);
  }
  return about;
}
