// Reads the settings of the chat as fields of a request body.

const NUM_ALTERNATIVES = 5;

/** A setting that cannot be sent. */
export class SettingError extends Error {}

/** Return the system prompt, or "". */
export function systemPrompt() {
  return textOf("system");
}

/** Return the fields of the body besides the messages. Throws SettingError. */
export function readSettings() {
  const body = { model: textOf("model") || undefined };
  for (const [id, field] of [
    ["temperature", "temperature"],
    ["seed", "seed"],
    ["max-tokens", "max_tokens"],
  ]) {
    const input = document.getElementById(id);
    if (input.validity.badInput) {
      throw new SettingError(`${field} is not a number`);
    }
    if (input.value !== "") {
      body[field] = input.valueAsNumber;
    }
  }
  const schema = readSchema();
  if (schema !== null) {
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  }
  if (document.getElementById("logprobs").checked) {
    body.logprobs = true;
    body.top_logprobs = NUM_ALTERNATIVES;
  }
  return body;
}

function readSchema() {
  const text = textOf("schema");
  if (text === "") {
    return null;
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SettingError(`The JSON schema is not JSON: ${error.message}`);
  }
}

function textOf(id) {
  return document.getElementById(id).value.trim();
}
