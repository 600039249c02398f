// The public gRPC API from Node: models, a streamed chat, a forced tool call, a deadline, an error.
// No code is generated: the .proto files are read at start.
//
//     npm install
//     node client.js ADDRESS [PROTO_FOLDER]    # such as 127.0.0.1:8001
"use strict";

const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const [address, protoFolder = path.join(__dirname, "../../protos")] = process.argv.slice(2);
const definition = protoLoader.loadSync(
  ["pagewire/frontend/v1/inference.proto", "pagewire/common/v1/error.proto"],
  { includeDirs: [protoFolder], keepCase: true, longs: Number, enums: String, oneofs: true, defaults: true },
);
const { InferenceService } = grpc.loadPackageDefinition(definition).pagewire.frontend.v1;
const ErrorDetail = definition["pagewire.common.v1.ErrorDetail"];

const TIMEOUT_MS = 60000;
const WEATHER = {
  name: "get_weather",
  description: "The weather in a city.",
  parameters: JSON.stringify({
    type: "object",
    properties: { city: { type: "string", enum: ["Oslo", "Lima"] } },
    required: ["city"],
    additionalProperties: false,
  }),
};

async function main() {
  const client = new InferenceService(address, grpc.credentials.createInsecure());
  await listModels(client);
  await streamAChat(client);
  await forceAToolCall(client);
  await exceedADeadline(client);
  await makeAMistake(client);
  client.close();
}

function ask(text, sampling) {
  return { messages: [{ role: "CHAT_ROLE_USER", content: text }], options: { sampling } };
}

function chat(client, request, timeoutMs = TIMEOUT_MS) {
  return client.Chat(request, { deadline: Date.now() + timeoutMs });
}

async function listModels(client) {
  const { models } = await new Promise((resolve, reject) => {
    const done = (error, response) => (error ? reject(error) : resolve(response));
    client.ListModels({}, { deadline: Date.now() + TIMEOUT_MS }, done);
  });
  for (const model of models) console.log(`model: ${model.name}, ${model.max_model_len} tokens`);
  expect(models.some((model) => model.is_ready), "no model is ready");
}

async function streamAChat(client) {
  const request = ask("Tell me a story about a fox.", { temperature: 0, max_tokens: 24 });
  process.stdout.write("chat: ");
  for await (const response of chat(client, request)) {
    if (response.event === "delta") process.stdout.write(response.delta.text);
    if (response.event === "finished") console.log(response.finished.text);
    if (response.event === "closed") console.log(`tokens: ${response.closed.usage.completion_tokens}`);
  }
}

async function forceAToolCall(client) {
  const request = ask("What is the weather in Oslo?", { temperature: 0, max_tokens: 128 });
  let [name, args, reason] = ["", "", ""];
  for await (const response of chat(client, { ...request, tools: [WEATHER], tool_name: WEATHER.name })) {
    for (const call of response.delta?.tool_calls ?? []) {
      name += call.name ?? "";
      args += call.arguments;
    }
    if (response.event === "finished") reason = response.finished.reason;
  }
  expect(reason === "FINISH_REASON_TOOL_CALLS", `the answer ended with reason ${reason}`);
  console.log(`tool call: ${name} for ${JSON.parse(args).city}`);
}

async function exceedADeadline(client) {
  const request = ask("Tell me a long story.", { max_tokens: 1500, ignore_eos: true });
  const error = await failure(chat(client, request, 50));
  expect(error?.code === grpc.status.DEADLINE_EXCEEDED, `the deadline gave ${error}`);
  console.log(`deadline: ${grpc.status[error.code]}`);
}

async function makeAMistake(client) {
  const error = await failure(chat(client, ask("Hello", { temperature: 3 })));
  expect(error?.code === grpc.status.INVALID_ARGUMENT, `the mistake gave ${error}`);
  const detail = ErrorDetail.deserialize(error.metadata.get("pagewire-error-bin")[0]);
  console.log(`error: ${grpc.status[error.code]}, field ${detail.field}: ${detail.message}`);
}

async function failure(stream) {
  try {
    for await (const _ of stream);
  } catch (error) {
    return error;
  }
  return undefined;
}

function expect(isSo, otherwise) {
  if (!isSo) throw new Error(otherwise);
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
