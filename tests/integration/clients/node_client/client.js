// Streams one Chat and one Complete from the public gRPC API and embeds two texts; prints every event
// as a JSON line.
// Usage: node client.js ADDRESS PROTO_FOLDER [MODEL]
"use strict";

const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const [address, protoFolder, model] = process.argv.slice(2);
if (!address || !protoFolder) {
  console.error("usage: node client.js ADDRESS PROTO_FOLDER [MODEL]");
  process.exit(2);
}

const definition = protoLoader.loadSync(
  path.join(protoFolder, "pagewire/frontend/v1/inference.proto"),
  { includeDirs: [protoFolder], keepCase: true, longs: String, enums: String, oneofs: true },
);
const { InferenceService } = grpc.loadPackageDefinition(definition).pagewire.frontend.v1;

const options = { sampling: { temperature: 0, max_tokens: 8, ignore_eos: true } };
const asks = {
  Chat: { messages: [{ role: "CHAT_ROLE_USER", content: "Tell me a story." }], options },
  Complete: { text: "Once upon a time", options },
};

function stream(client, rpc, request) {
  return new Promise((resolve, reject) => {
    const call = client[rpc]({ ...(model ? { model } : {}), ...request });
    call.on("data", (message) => {
      console.log(JSON.stringify({ rpc, event: message.event, [message.event]: message[message.event] }));
    });
    call.on("error", reject);
    call.on("end", resolve);
  });
}

async function main() {
  const client = new InferenceService(address, grpc.credentials.createInsecure());
  for (const [rpc, request] of Object.entries(asks)) {
    await stream(client, rpc, request);
  }
  await new Promise((resolve, reject) => {
    const inputs = [{ text: "a red fox" }, { token_ids: { ids: [5, 6, 7] } }];
    client.Embed({ inputs, dimensions: 8 }, (error, response) => {
      if (error) return reject(error);
      console.log(JSON.stringify({ rpc: "Embed", event: "embedded", embeddings: response.embeddings }));
      return resolve();
    });
  });
  // A mistake must come back as a status that names the field.
  await new Promise((resolve) => {
    const call = client.Complete({ text: "" });
    call.on("data", () => {});
    call.on("end", () => {});
    call.on("error", (error) => {
      const detail = error.metadata.get("pagewire-error-bin").length > 0;
      console.log(JSON.stringify({ rpc: "Complete", event: "error", code: grpc.status[error.code], detail }));
      resolve();
    });
  });
  client.close();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
