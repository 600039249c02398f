// The public gRPC API from C++: models, a streamed chat, a forced tool call, a deadline, an error.
// The Makefile here makes the stubs and builds it.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "pagewire/common/v1/error.pb.h"
#include "pagewire/frontend/v1/inference.grpc.pb.h"

namespace common = pagewire::common::v1;
namespace api = pagewire::frontend::v1;
using Stub = api::InferenceService::Stub;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{60000};
constexpr char kWeatherSchema[] =
    R"({"type": "object", "required": ["city"], "additionalProperties": false,
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}}})";

void expect(bool is_so, const std::string& otherwise) {
  if (is_so) return;
  std::cerr << otherwise << std::endl;
  std::exit(1);
}

api::ChatRequest ask(const std::string& text) {
  api::ChatRequest request;
  api::ChatMessage* message = request.add_messages();
  message->set_role(api::CHAT_ROLE_USER);
  message->set_content(text);
  return request;
}

// Calls Chat and passes every message on. Ending the context ends the request.
grpc::Status follow(Stub& stub, grpc::ClientContext& context, const api::ChatRequest& request,
                    const std::function<void(const api::ChatResponse&)>& take) {
  auto reader = stub.Chat(&context, request);
  api::ChatResponse response;
  while (reader->Read(&response)) take(response);
  return reader->Finish();
}

void set_timeout(grpc::ClientContext& context, milliseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

void list_models(Stub& stub) {
  grpc::ClientContext context;
  set_timeout(context, kTimeout);
  api::ListModelsResponse response;
  grpc::Status status = stub.ListModels(&context, {}, &response);
  expect(status.ok(), status.error_message());
  bool is_any_ready = false;
  for (const api::Model& model : response.models()) {
    std::cout << "model: " << model.name() << ", " << model.max_model_len() << " tokens\n";
    is_any_ready = is_any_ready || model.is_ready();
  }
  expect(is_any_ready, "no model is ready");
}

void stream_a_chat(Stub& stub) {
  api::ChatRequest request = ask("Tell me a story about a fox.");
  common::SamplingParams* sampling = request.mutable_options()->mutable_sampling();
  sampling->set_temperature(0);
  sampling->set_max_tokens(24);
  grpc::ClientContext context;
  set_timeout(context, kTimeout);
  std::cout << "chat: ";
  grpc::Status status = follow(stub, context, request, [](const api::ChatResponse& response) {
    if (response.has_delta()) std::cout << response.delta().text() << std::flush;
    if (response.has_finished()) std::cout << response.finished().text() << "\n";
    if (response.has_closed()) {
      std::cout << "tokens: " << response.closed().usage().completion_tokens() << "\n";
    }
  });
  expect(status.ok(), status.error_message());
}

void force_a_tool_call(Stub& stub) {
  api::ChatRequest request = ask("What is the weather in Oslo?");
  common::SamplingParams* sampling = request.mutable_options()->mutable_sampling();
  sampling->set_temperature(0);
  sampling->set_max_tokens(128);
  api::Tool* tool = request.add_tools();
  tool->set_name("get_weather");
  tool->set_description("The weather in a city.");
  tool->set_parameters(kWeatherSchema);
  request.set_tool_name("get_weather");
  std::string name, arguments;
  common::FinishReason reason = common::FINISH_REASON_UNSPECIFIED;
  grpc::ClientContext context;
  set_timeout(context, kTimeout);
  grpc::Status status = follow(stub, context, request, [&](const api::ChatResponse& response) {
    for (const api::ToolCallDelta& call : response.delta().tool_calls()) {
      name += call.name();
      arguments += call.arguments();
    }
    if (response.has_finished()) reason = response.finished().reason();
  });
  expect(status.ok(), status.error_message());
  expect(reason == common::FINISH_REASON_TOOL_CALLS,
         "the answer ended with " + common::FinishReason_Name(reason));
  std::cout << "tool call: " << name << " with " << arguments << "\n";
}

void exceed_a_deadline(Stub& stub) {
  api::ChatRequest request = ask("Tell me a long story.");
  common::SamplingParams* sampling = request.mutable_options()->mutable_sampling();
  sampling->set_max_tokens(1500);
  sampling->set_ignore_eos(true);
  grpc::ClientContext context;
  set_timeout(context, milliseconds(50));
  grpc::Status status = follow(stub, context, request, [](const api::ChatResponse&) {});
  expect(status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED, status.error_message());
  std::cout << "deadline: DEADLINE_EXCEEDED\n";
}

void make_a_mistake(Stub& stub) {
  api::ChatRequest request = ask("Hello");
  request.mutable_options()->mutable_sampling()->set_temperature(3);
  grpc::ClientContext context;
  set_timeout(context, kTimeout);
  grpc::Status status = follow(stub, context, request, [](const api::ChatResponse&) {});
  expect(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT, status.error_message());
  const auto& trailers = context.GetServerTrailingMetadata();
  auto found = trailers.find("pagewire-error-bin");
  expect(found != trailers.end(), "the error has no typed detail");
  common::ErrorDetail detail;
  expect(detail.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())),
         "the typed detail cannot be read");
  std::cout << "error: INVALID_ARGUMENT, field " << detail.field() << ": " << detail.message()
            << "\n";
}

int main(int argc, char** argv) {
  expect(argc == 2, "usage: client ADDRESS");
  auto channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  auto stub = api::InferenceService::NewStub(channel);
  list_models(*stub);
  stream_a_chat(*stub);
  force_a_tool_call(*stub);
  exceed_a_deadline(*stub);
  make_a_mistake(*stub);
}
