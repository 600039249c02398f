// The conversation: sends it, shows the answer as it comes, and stops it.

import { Answer } from "./answer.js";
import { make } from "./dom.js";
import { ask, events } from "./server.js";
import { readSettings, systemPrompt } from "./settings.js";

const MAX_ANSWER_CHARS = 1_000_000;

/** The chat of the page at /. */
export class Chat {
  #messages = [];
  #controller = null;
  #list = document.getElementById("messages");
  #prompt = document.getElementById("prompt");
  #fault = document.getElementById("fault");

  constructor() {
    document.getElementById("chat").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#send();
      }
    });
    // Leaving the settings with Enter must not load the page again.
    document.getElementById("settings").addEventListener("submit", (e) => e.preventDefault());
    document.getElementById("stop").addEventListener("click", () => this.#controller?.abort());
    document.getElementById("clear").addEventListener("click", () => this.#clear());
  }

  async #send() {
    const text = this.#prompt.value;
    if (this.#controller !== null || text.trim() === "") {
      return;
    }
    let settings;
    this.#fault.textContent = "";
    try {
      settings = readSettings();
    } catch (error) {
      this.#fault.textContent = error.message;
      return;
    }
    this.#begin();
    this.#prompt.value = "";
    const said = this.#showSaid(text);
    const answer = new Answer(this.#list);
    const controller = this.#controller;
    const messages = [...this.#messages, { role: "user", content: text }];
    try {
      await this.#stream({ ...settings, messages }, answer, controller.signal);
    } catch (error) {
      if (controller.signal.aborted) {
        answer.end("stopped");
      } else {
        answer.end(error.message, true);
      }
    }
    if (this.#controller === controller) {
      this.#finish();
      if (answer.text !== "") {
        this.#messages = [...messages, { role: "assistant", content: answer.text }];
      } else if (answer.isFailed || controller.signal.aborted) {
        // The message is not part of the conversation; it can be sent again.
        said.remove();
        this.#prompt.value ||= text;
      }
    }
  }

  async #stream(body, answer, signal) {
    const system = systemPrompt();
    const first = system === "" ? [] : [{ role: "system", content: system }];
    const whole = {
      ...body,
      messages: [...first, ...body.messages],
      stream: true,
      stream_options: { include_usage: true },
    };
    const response = await ask("v1/chat/completions", {
      method: "POST",
      body: JSON.stringify(whole),
      signal,
    });
    for await (const chunk of events(response)) {
      this.#following(() => answer.take(chunk));
      if (answer.text.length > MAX_ANSWER_CHARS) {
        answer.end("stopped: the answer is too long for this page");
        return;
      }
    }
    answer.end();
  }

  #begin() {
    this.#controller = new AbortController();
    document.getElementById("send").disabled = true;
    document.getElementById("stop").disabled = false;
  }

  #finish() {
    this.#controller = null;
    document.getElementById("send").disabled = false;
    document.getElementById("stop").disabled = true;
  }

  #clear() {
    this.#controller?.abort();
    this.#finish();
    this.#messages = [];
    this.#list.replaceChildren();
    this.#fault.textContent = "";
    this.#prompt.focus();
  }

  #showSaid(text) {
    const item = make("li", { class: "said" }, make("h3", {}, "You"));
    item.append(make("div", { class: "text" }, text));
    this.#list.append(item);
    item.scrollIntoView({ block: "end" });
    return item;
  }

  /** Change the list, and stay at its end where the end was seen. */
  #following(change) {
    const list = this.#list;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    change();
    if (isAtEnd) {
      list.scrollTop = list.scrollHeight;
    }
  }
}
