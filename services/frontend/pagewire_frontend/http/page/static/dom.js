// Makes elements. Texts are always text nodes: a text of a model never becomes markup.

/** Return an element with attributes and children; null children are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Return a fragment in which `words` in backticks are code. */
export function withCode(text) {
  const fragment = document.createDocumentFragment();
  text.split("`").forEach((part, number) => {
    fragment.append(number % 2 ? make("code", {}, part) : part);
  });
  return fragment;
}

/** Return a <details> whose content is made when it is opened first. */
export function folded(summary, fill, attributes = {}) {
  const details = make("details", attributes, make("summary", {}, summary));
  const open = () => details.append(fill());
  details.addEventListener("toggle", open, { once: true });
  return details;
}
