// Shows the tokens of an answer coloured by probability, and the alternatives of the chosen one.

import { make } from "./dom.js";

const MAX_TOKENS = 4000;
// Smallest probability of each class; the last class has the rest.
const CLASSES = [0.8, 0.5, 0.2, 0.05];

/** The tokens of one answer, in an element that it takes over. */
export class Tokens {
  #place;
  #spans = [];
  #entries = [];
  #decoder = new TextDecoder();
  #chosen = -1;
  #panel = make("div", { class: "alternatives faint" });
  #more = document.createTextNode("");

  constructor(place) {
    this.#place = place;
    place.replaceChildren(this.#more);
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", "Answer; arrow keys choose a token");
    place.after(this.#panel);
    this.#panel.textContent = "Point at a token, or choose one with the arrow keys.";
    place.addEventListener("pointerover", (event) => this.#choose(event.target.dataset?.number));
    place.addEventListener("click", (event) => this.#choose(event.target.dataset?.number));
    place.addEventListener("keydown", (event) => this.#onKey(event));
  }

  /** Add entries of `logprobs.content`; beyond the most that are shown only their text. */
  add(entries) {
    for (const entry of entries) {
      const text = this.#textOf(entry);
      if (this.#spans.length >= MAX_TOKENS) {
        this.#more.appendData(text);
        continue;
      }
      const level = CLASSES.findIndex((least) => Math.exp(entry.logprob) >= least);
      const name = `token p${level < 0 ? CLASSES.length : level}`;
      const span = make("span", { class: name, "data-number": this.#spans.length }, text);
      this.#spans.push(span);
      this.#entries.push(entry);
      this.#more.before(span);
    }
  }

  /** Mark tokens behind the text, such as the end of sequence. */
  finish(numChars) {
    let seen = 0;
    for (const span of this.#spans) {
      if (seen >= numChars) {
        span.classList.add("outside");
      }
      seen += span.textContent.length;
    }
  }

  /** Return the text of a token; a character of several tokens comes with the last of them. */
  #textOf(entry) {
    if (!entry.bytes) {
      return entry.token;
    }
    return this.#decoder.decode(Uint8Array.from(entry.bytes), { stream: true });
  }

  #onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.#choose(Math.min(Math.max(this.#chosen + step, 0), this.#spans.length - 1));
    }
  }

  #choose(number) {
    const chosen = Number(number);
    if (number === undefined || chosen === this.#chosen) {
      return;
    }
    this.#spans[this.#chosen]?.classList.remove("chosen");
    this.#spans[chosen].classList.add("chosen");
    this.#chosen = chosen;
    this.#panel.replaceChildren(alternatives(this.#entries[chosen]));
  }
}

function alternatives(entry) {
  const others = entry.top_logprobs.filter((other) => !isSame(other, entry));
  const rows = [entry, ...others].map((one, number) => {
    const share = Math.exp(one.logprob);
    const token = make("code", {}, JSON.stringify(one.token));
    return make(
      "tr",
      {},
      make("td", {}, number === 0 ? make("strong", {}, token) : token),
      make("td", {}, `${(100 * share).toFixed(1)} %`),
      make("td", {}, one.logprob.toFixed(3).replace("-0.000", "0.000")),
      make("td", {}, make("meter", { value: share, "aria-label": "Probability" })),
    );
  });
  const heads = ["Token", "Probability", "Log-probability", ""];
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function isSame(one, other) {
  return one.token === other.token && String(one.bytes) === String(other.bytes);
}
