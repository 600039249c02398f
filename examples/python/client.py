"""The public gRPC API from Python: models, a streamed chat, a tool call, a deadline, an error."""

# pip install pagewire       (or only grpcio, with stubs that grpcio-tools makes from protos/)
# python client.py ADDRESS   (such as 127.0.0.1:8001)

import json
import sys

import grpc

from pagewire_protos.common.v1.error_pb2 import ErrorDetail
from pagewire_protos.common.v1.sampling_pb2 import FINISH_REASON_TOOL_CALLS, SamplingParams
from pagewire_protos.frontend.v1.inference_pb2 import (
    CHAT_ROLE_USER,
    ChatMessage,
    ChatRequest,
    GenerationOptions,
    ListModelsRequest,
)
from pagewire_protos.frontend.v1.inference_pb2_grpc import InferenceServiceStub
from pagewire_protos.frontend.v1.tools_pb2 import Tool

TIMEOUT_SECONDS = 60
WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}},
            "required": ["city"],
            "additionalProperties": False,
        }
    ),
)


def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = InferenceServiceStub(channel)
        list_models(stub)
        stream_a_chat(stub)
        force_a_tool_call(stub)
        exceed_a_deadline(stub)
        make_a_mistake(stub)


def ask(text: str, **sampling: object) -> ChatRequest:
    return ChatRequest(
        messages=[ChatMessage(role=CHAT_ROLE_USER, content=text)],
        options=GenerationOptions(sampling=SamplingParams(**sampling)),
    )


def list_models(stub: InferenceServiceStub) -> None:
    models = stub.ListModels(ListModelsRequest(), timeout=TIMEOUT_SECONDS).models
    for model in models:
        print(f"model: {model.name}, {model.max_model_len} tokens")
    expect(any(model.is_ready for model in models), "no model is ready")


def stream_a_chat(stub: InferenceServiceStub) -> None:
    request = ask("Tell me a story about a fox.", temperature=0, max_tokens=24)
    print("chat: ", end="")
    for response in stub.Chat(request, timeout=TIMEOUT_SECONDS):
        match response.WhichOneof("event"):
            case "delta":
                print(response.delta.text, end="", flush=True)
            case "finished":
                print(response.finished.text)
            case "closed":
                print(f"tokens: {response.closed.usage.completion_tokens}")


def force_a_tool_call(stub: InferenceServiceStub) -> None:
    request = ask("What is the weather in Oslo?", temperature=0, max_tokens=128)
    request.tools.append(WEATHER)
    request.tool_name = WEATHER.name
    name, arguments, reason = "", "", None
    for response in stub.Chat(request, timeout=TIMEOUT_SECONDS):
        for call in response.delta.tool_calls:
            name += call.name
            arguments += call.arguments
        if response.HasField("finished"):
            reason = response.finished.reason
    expect(reason == FINISH_REASON_TOOL_CALLS, f"the answer ended with reason {reason}")
    print(f"tool call: {name} for {json.loads(arguments)['city']}")


def exceed_a_deadline(stub: InferenceServiceStub) -> None:
    request = ask("Tell me a long story.", max_tokens=1500, ignore_eos=True)
    try:
        for _ in stub.Chat(request, timeout=0.05):
            pass
    except grpc.RpcError as error:
        expect(error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, f"got {error}")
        print(f"deadline: {error.code().name}")
    else:
        expect(False, "the deadline passed unnoticed")


def make_a_mistake(stub: InferenceServiceStub) -> None:
    try:
        for _ in stub.Chat(ask("Hello", temperature=3), timeout=TIMEOUT_SECONDS):
            pass
    except grpc.RpcError as error:
        expect(error.code() is grpc.StatusCode.INVALID_ARGUMENT, f"got {error}")
        detail = ErrorDetail.FromString(dict(error.trailing_metadata())["pagewire-error-bin"])
        print(f"error: {error.code().name}, field {detail.field}: {detail.message}")
    else:
        expect(False, "the mistake passed unnoticed")


def expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        sys.exit(otherwise)


if __name__ == "__main__":
    main(sys.argv[1])
