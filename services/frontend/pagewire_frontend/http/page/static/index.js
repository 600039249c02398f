// The page at /: asks for the state of the cell again and again, and starts the chat.

import { Chat } from "./chat.js";
import { ask, connect } from "./server.js";
import { showModels, showState, showTrouble } from "./state.js";

const SECONDS = 3;
let timer;

new Chat();
try {
  const about = await connect(refresh);
  if (about.is_key_required) {
    // A link sends no key; the API page can.
    document.getElementById("metrics").href = "docs#get-metrics";
  }
} catch (error) {
  showTrouble(error.message);
}

async function refresh(about) {
  clearTimeout(timer);
  try {
    const state = await (await ask("state")).json();
    showState(state);
    showModels(state.models);
  } catch (error) {
    showTrouble(error.message);
    if (error.status === 401 && about.is_key_required) {
      // The next key starts this again.
      return;
    }
  }
  timer = setTimeout(() => whenVisible(() => refresh(about)), 1000 * SECONDS);
}

/** Call a function now, or when the page is seen again: a page in the background asks nothing. */
function whenVisible(callback) {
  if (!document.hidden) {
    callback();
  } else {
    document.addEventListener("visibilitychange", () => whenVisible(callback), { once: true });
  }
}
