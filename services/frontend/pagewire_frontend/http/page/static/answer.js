// One answer: its text or its tokens, and how it ended.

import { make } from "./dom.js";
import { Tokens } from "./tokens.js";

const REASONS = {
  stop: "",
  length: "cut off: most tokens reached",
};

/** An answer that comes in chunks of /v1/chat/completions. */
export class Answer {
  text = "";
  isFailed = false;
  #item = make("li", { class: "answer", "aria-busy": "true" }, make("h3", {}, "Answer"));
  #body = make("div", { class: "text" });
  #textNode = document.createTextNode("");
  #reasoning = null;
  #tokens = null;
  #end = make("p", { class: "end faint" });
  #reason = null;
  #usage = null;
  #beganAt = performance.now();
  #firstAt = null;

  constructor(list) {
    this.#body.append(this.#textNode);
    this.#item.append(this.#body, this.#end);
    list.append(this.#item);
    this.#item.scrollIntoView({ block: "end" });
  }

  /** Show a chunk. */
  take(chunk) {
    this.#usage = chunk.usage ?? this.#usage;
    const choice = chunk.choices[0];
    if (choice === undefined) {
      return;
    }
    this.#reason = choice.finish_reason ?? this.#reason;
    if (choice.delta.reasoning_content) {
      this.#think(choice.delta.reasoning_content);
    }
    const text = choice.delta.content ?? "";
    if (text !== "") {
      this.#firstAt ??= performance.now();
      this.text += text;
    }
    if (choice.logprobs?.content?.length) {
      this.#tokens ??= new Tokens(this.#body);
      this.#tokens.add(choice.logprobs.content);
    }
    if (this.#tokens === null) {
      this.#textNode.appendData(text);
    }
  }

  /** Say how it ended; without a note as the server says. */
  end(note = null, isFailed = false) {
    this.isFailed = isFailed;
    this.#item.setAttribute("aria-busy", "false");
    this.#tokens?.finish(this.text.length);
    const reason = note ?? REASONS[this.#reason] ?? `ended: ${this.#reason}`;
    const parts = [reason, this.#spent(), this.#history()].filter((part) => part !== "");
    this.#end.textContent = parts.join(" · ");
    this.#end.classList.toggle("bad", isFailed);
  }

  #think(text) {
    if (this.#reasoning === null) {
      this.#reasoning = document.createTextNode("");
      this.#body.before(make("div", { class: "text reasoning" }, this.#reasoning));
    }
    this.#reasoning.appendData(text);
  }

  #spent() {
    if (this.#usage === null || this.#firstAt === null) {
      return "";
    }
    const { prompt_tokens: prompt, completion_tokens: tokens } = this.#usage;
    const first = Math.round(this.#firstAt - this.#beganAt);
    const seconds = (performance.now() - this.#firstAt) / 1000;
    const rate = tokens > 1 && seconds > 0 ? `, ${Math.round((tokens - 1) / seconds)} a second` : "";
    return `${prompt} + ${tokens} tokens${rate}, first after ${first} ms`;
  }

  /** Return what the request survived, such as the loss of a worker; "" for nothing. */
  #history() {
    const migrations = (this.#usage?.timeline ?? [])
      .map((one) => one?.num_migrations ?? 0)
      .reduce((sum, one) => sum + one, 0);
    return migrations === 0 ? "" : `moved to another worker: ${migrations}`;
  }
}
