// The openai package of npm against a server of the built-in model, streaming and not; an assertion
// ends it.
// Usage: node openai.mjs URL MODEL [tools]
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, model, what] = process.argv.slice(2);
if (!baseURL || !model) {
  console.error("usage: node openai.mjs URL MODEL");
  process.exit(2);
}

const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const copied = "river, cloud, apple";
const messages = [{ role: "user", content: `Copy this list: ${copied}` }];

async function chat() {
  const answer = await client.chat.completions.create({
    model, messages, temperature: 0, logprobs: true, top_logprobs: 2,
  });
  const [choice] = answer.choices;
  assert.equal(choice.message.content, copied);
  assert.equal(choice.finish_reason, "stop");
  assert.equal(choice.logprobs.content.length, answer.usage.completion_tokens);
  assert.ok(answer._request_id);
}

async function chatStream() {
  const stream = await client.chat.completions.create({
    model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
  });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const last = chunks.pop();
  assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), copied);
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
  assert.deepEqual(last.choices, []);
  assert.ok(last.usage.completion_tokens > 0);
  const runner = client.chat.completions.stream({ model, messages, temperature: 0 });
  assert.equal(await runner.finalContent(), copied);
  // Left early: the connection is closed, and the next request works.
  const story = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Tell me a story." }], stream: true,
  });
  for await (const _ of story) break;
}

async function parsed() {
  const schema = {
    type: "object",
    properties: { word: { enum: ["river", "cloud"] }, is_long: { type: "boolean" } },
    required: ["word", "is_long"],
    additionalProperties: false,
  };
  const answer = await client.chat.completions.parse({
    model, messages, seed: 1, max_tokens: 200,
    response_format: { type: "json_schema", json_schema: { name: "reading", strict: true, schema } },
  });
  const { word, is_long: isLong } = JSON.parse(answer.choices[0].message.content);
  assert.ok(["river", "cloud"].includes(word));
  assert.equal(typeof isLong, "boolean");
}

async function completions() {
  const asked = { model, prompt: "one", max_tokens: 6, temperature: 0 };
  const whole = await client.completions.create(asked);
  let text = "";
  for await (const chunk of await client.completions.create({ ...asked, stream: true })) {
    text += chunk.choices[0].text;
  }
  assert.equal(text, whole.choices[0].text);
  assert.notEqual(text, "");
  const echoed = await client.completions.create({
    model, prompt: "river, cloud", max_tokens: 0, echo: true, logprobs: 0,
  });
  assert.equal(echoed.choices[0].text, "river, cloud");
  assert.equal(echoed.choices[0].logprobs.token_logprobs[0], null);
}

async function embeddings() {
  const input = ["a red fox", "a river"];
  // The client asks for base64 by itself and decodes it.
  const byDefault = await client.embeddings.create({ model, input });
  const asNumbers = await client.embeddings.create({ model, input, encoding_format: "float" });
  byDefault.data.forEach(({ embedding }, index) => {
    const numbers = asNumbers.data[index].embedding;
    assert.equal(embedding.length, numbers.length);
    embedding.forEach((value, i) => assert.ok(Math.abs(value - numbers[i]) < 1e-5));
  });
}

async function models() {
  const ids = [];
  for await (const found of client.models.list()) ids.push(found.id);
  assert.deepEqual(ids, [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
}

async function errors() {
  const cases = [
    [{ model: "nope" }, OpenAI.NotFoundError, "model_not_found", "model"],
    [{ temperature: 3 }, OpenAI.BadRequestError, "invalid_value", "temperature"],
    [{ n: "2" }, OpenAI.BadRequestError, "invalid_type", "n"],
    [{ max_tokens: 5000 }, OpenAI.BadRequestError, "context_length_exceeded", "max_tokens"],
  ];
  for (const stream of [false, true]) {
    for (const [changed, kind, code, param] of cases) {
      await assert.rejects(
        client.chat.completions.create({ model, messages, stream, ...changed }),
        (error) => {
          assert.ok(error instanceof kind);
          assert.deepEqual([error.code, error.param], [code, param]);
          assert.ok(error.requestID);
          return true;
        },
      );
    }
  }
}

async function tools() {
  const parameters = {
    type: "object",
    properties: { word: { enum: ["river", "cloud"] } },
    required: ["word"],
    additionalProperties: false,
  };
  const asked = {
    model, messages, seed: 1, max_tokens: 200,
    tools: [{ type: "function", function: { name: "read", strict: true, parameters } }],
    tool_choice: "required",
  };
  const answer = await client.chat.completions.create(asked);
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  for (const call of answer.choices[0].message.tool_calls) {
    assert.equal(call.function.name, "read");
    assert.ok(["river", "cloud"].includes(JSON.parse(call.function.arguments).word));
  }
  const runner = client.chat.completions.stream(asked);
  const streamed = await runner.finalChatCompletion();
  assert.deepEqual(
    streamed.choices[0].message.tool_calls.map((call) => call.function.arguments),
    answer.choices[0].message.tool_calls.map((call) => call.function.arguments),
  );
}

const everything = [chat, chatStream, parsed, completions, embeddings, models, errors];
for (const part of what === "tools" ? [tools] : everything) await part();
console.log("ok");
