// The public gRPC API from Java: models, a streamed chat, a forced tool call, a deadline, an error.
// The Makefile here makes the stubs and builds it.

import ai.pagewire.common.v1.ErrorDetail;
import ai.pagewire.common.v1.FinishReason;
import ai.pagewire.common.v1.SamplingParams;
import ai.pagewire.frontend.v1.ChatMessage;
import ai.pagewire.frontend.v1.ChatRequest;
import ai.pagewire.frontend.v1.ChatResponse;
import ai.pagewire.frontend.v1.ChatRole;
import ai.pagewire.frontend.v1.GenerationOptions;
import ai.pagewire.frontend.v1.InferenceServiceGrpc;
import ai.pagewire.frontend.v1.InferenceServiceGrpc.InferenceServiceBlockingStub;
import ai.pagewire.frontend.v1.ListModelsRequest;
import ai.pagewire.frontend.v1.Model;
import ai.pagewire.frontend.v1.Tool;
import ai.pagewire.frontend.v1.ToolCallDelta;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

public final class Client {
  private static final long TIMEOUT_MS = 60000;
  private static final Metadata.Key<byte[]> ERROR =
      Metadata.Key.of("pagewire-error-bin", Metadata.BINARY_BYTE_MARSHALLER);
  private static final Tool WEATHER =
      Tool.newBuilder()
          .setName("get_weather")
          .setDescription("The weather in a city.")
          .setParameters(
              "{\"type\": \"object\", \"required\": [\"city\"], \"additionalProperties\": false,"
                  + " \"properties\": {\"city\": {\"type\": \"string\","
                  + " \"enum\": [\"Oslo\", \"Lima\"]}}}")
          .build();

  private final InferenceServiceBlockingStub stub;

  private Client(ManagedChannel channel) {
    stub = InferenceServiceGrpc.newBlockingStub(channel);
  }

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    try {
      Client client = new Client(channel);
      client.listModels();
      client.streamAChat();
      client.forceAToolCall();
      client.exceedADeadline();
      client.makeAMistake();
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  private static ChatRequest.Builder ask(String text, SamplingParams.Builder sampling) {
    return ChatRequest.newBuilder()
        .addMessages(ChatMessage.newBuilder().setRole(ChatRole.CHAT_ROLE_USER).setContent(text))
        .setOptions(GenerationOptions.newBuilder().setSampling(sampling));
  }

  private InferenceServiceBlockingStub within(long milliseconds) {
    return stub.withDeadlineAfter(milliseconds, TimeUnit.MILLISECONDS);
  }

  private void listModels() {
    boolean isAnyReady = false;
    for (Model model :
        within(TIMEOUT_MS).listModels(ListModelsRequest.getDefaultInstance()).getModelsList()) {
      System.out.printf("model: %s, %d tokens%n", model.getName(), model.getMaxModelLen());
      isAnyReady = isAnyReady || model.getIsReady();
    }
    expect(isAnyReady, "no model is ready");
  }

  private void streamAChat() {
    SamplingParams.Builder sampling =
        SamplingParams.newBuilder().setTemperature(0).setMaxTokens(24);
    System.out.print("chat: ");
    follow(
        TIMEOUT_MS,
        ask("Tell me a story about a fox.", sampling).build(),
        response -> {
          if (response.hasDelta()) System.out.print(response.getDelta().getText());
          if (response.hasFinished()) System.out.println(response.getFinished().getText());
          if (response.hasClosed()) {
            System.out.println("tokens: " + response.getClosed().getUsage().getCompletionTokens());
          }
        });
  }

  private void forceAToolCall() {
    SamplingParams.Builder sampling =
        SamplingParams.newBuilder().setTemperature(0).setMaxTokens(128);
    ChatRequest request =
        ask("What is the weather in Oslo?", sampling)
            .addTools(WEATHER)
            .setToolName(WEATHER.getName())
            .build();
    StringBuilder name = new StringBuilder();
    StringBuilder called = new StringBuilder();
    FinishReason[] reason = {FinishReason.FINISH_REASON_UNSPECIFIED};
    follow(
        TIMEOUT_MS,
        request,
        response -> {
          for (ToolCallDelta call : response.getDelta().getToolCallsList()) {
            name.append(call.getName());
            called.append(call.getArguments());
          }
          if (response.hasFinished()) reason[0] = response.getFinished().getReason();
        });
    expect(
        reason[0] == FinishReason.FINISH_REASON_TOOL_CALLS, "the answer ended with " + reason[0]);
    System.out.printf("tool call: %s with %s%n", name, called);
  }

  private void exceedADeadline() {
    SamplingParams.Builder sampling =
        SamplingParams.newBuilder().setMaxTokens(1500).setIgnoreEos(true);
    try {
      follow(50, ask("Tell me a long story.", sampling).build(), response -> {});
    } catch (StatusRuntimeException error) {
      expect(error.getStatus().getCode() == Status.Code.DEADLINE_EXCEEDED, "got " + error);
      System.out.println("deadline: " + error.getStatus().getCode());
      return;
    }
    expect(false, "the deadline passed unnoticed");
  }

  private void makeAMistake() throws Exception {
    SamplingParams.Builder sampling = SamplingParams.newBuilder().setTemperature(3);
    try {
      follow(TIMEOUT_MS, ask("Hello", sampling).build(), response -> {});
    } catch (StatusRuntimeException error) {
      expect(error.getStatus().getCode() == Status.Code.INVALID_ARGUMENT, "got " + error);
      ErrorDetail detail = ErrorDetail.parseFrom(error.getTrailers().get(ERROR));
      System.out.printf(
          "error: %s, field %s: %s%n",
          error.getStatus().getCode(), detail.getField(), detail.getMessage());
      return;
    }
    expect(false, "the mistake passed unnoticed");
  }

  private void follow(long timeoutMs, ChatRequest request, Consumer<ChatResponse> take) {
    Iterator<ChatResponse> responses = within(timeoutMs).chat(request);
    responses.forEachRemaining(take);
  }

  private static void expect(boolean isSo, String otherwise) {
    if (!isSo) throw new IllegalStateException(otherwise);
  }
}
