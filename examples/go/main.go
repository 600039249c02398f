// The public gRPC API from Go: models, a streamed chat, a forced tool call, a deadline, an error.
// The Makefile here makes the stubs and builds it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	commonv1 "pagewire/common/v1"
	frontendv1 "pagewire/frontend/v1"
)

const timeout = time.Minute

const weatherSchema = `{"type": "object", "required": ["city"], "additionalProperties": false,
  "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}}}`

func main() {
	log.SetFlags(0)
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	check(err)
	defer connection.Close()
	client := frontendv1.NewInferenceServiceClient(connection)
	listModels(client)
	streamAChat(client)
	forceAToolCall(client)
	exceedADeadline(client)
	makeAMistake(client)
}

func ask(text string, sampling *commonv1.SamplingParams) *frontendv1.ChatRequest {
	return &frontendv1.ChatRequest{
		Messages: []*frontendv1.ChatMessage{{Role: frontendv1.ChatRole_CHAT_ROLE_USER, Content: text}},
		Options:  &frontendv1.GenerationOptions{Sampling: sampling},
	}
}

func listModels(client frontendv1.InferenceServiceClient) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	response, err := client.ListModels(ctx, &frontendv1.ListModelsRequest{})
	check(err)
	isAnyReady := false
	for _, model := range response.Models {
		fmt.Printf("model: %s, %d tokens\n", model.Name, model.GetMaxModelLen())
		isAnyReady = isAnyReady || model.IsReady
	}
	expect(isAnyReady, "no model is ready")
}

func streamAChat(client frontendv1.InferenceServiceClient) {
	request := ask("Tell me a story about a fox.",
		&commonv1.SamplingParams{Temperature: proto.Float32(0), MaxTokens: proto.Uint32(24)})
	fmt.Print("chat: ")
	check(follow(client, request, timeout, func(response *frontendv1.ChatResponse) {
		switch event := response.Event.(type) {
		case *frontendv1.ChatResponse_Delta:
			fmt.Print(event.Delta.Text)
		case *frontendv1.ChatResponse_Finished:
			fmt.Println(event.Finished.Text)
		case *frontendv1.ChatResponse_Closed:
			fmt.Println("tokens:", event.Closed.Usage.CompletionTokens)
		}
	}))
}

func forceAToolCall(client frontendv1.InferenceServiceClient) {
	request := ask("What is the weather in Oslo?",
		&commonv1.SamplingParams{Temperature: proto.Float32(0), MaxTokens: proto.Uint32(128)})
	request.Tools = []*frontendv1.Tool{{
		Name:        "get_weather",
		Description: proto.String("The weather in a city."),
		Parameters:  proto.String(weatherSchema),
	}}
	request.ToolChoice = &frontendv1.ChatRequest_ToolName{ToolName: "get_weather"}
	name, arguments, reason := "", "", commonv1.FinishReason_FINISH_REASON_UNSPECIFIED
	check(follow(client, request, timeout, func(response *frontendv1.ChatResponse) {
		for _, call := range response.GetDelta().GetToolCalls() {
			name += call.GetName()
			arguments += call.Arguments
		}
		if finished := response.GetFinished(); finished != nil {
			reason = finished.Reason
		}
	}))
	expect(reason == commonv1.FinishReason_FINISH_REASON_TOOL_CALLS, "the answer ended with "+reason.String())
	var weather struct{ City string }
	check(json.Unmarshal([]byte(arguments), &weather))
	fmt.Printf("tool call: %s for %s\n", name, weather.City)
}

func exceedADeadline(client frontendv1.InferenceServiceClient) {
	request := ask("Tell me a long story.",
		&commonv1.SamplingParams{MaxTokens: proto.Uint32(1500), IgnoreEos: proto.Bool(true)})
	err := follow(client, request, 50*time.Millisecond, func(*frontendv1.ChatResponse) {})
	expect(status.Code(err) == codes.DeadlineExceeded, fmt.Sprint("the deadline gave ", err))
	fmt.Println("deadline: DEADLINE_EXCEEDED")
}

func makeAMistake(client frontendv1.InferenceServiceClient) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	stream, err := client.Chat(ctx, ask("Hello", &commonv1.SamplingParams{Temperature: proto.Float32(3)}))
	check(err)
	_, err = stream.Recv()
	expect(status.Code(err) == codes.InvalidArgument, fmt.Sprint("the mistake gave ", err))
	found := stream.Trailer().Get("pagewire-error-bin")
	expect(len(found) == 1, "the error has no typed detail")
	detail := &commonv1.ErrorDetail{}
	check(proto.Unmarshal([]byte(found[0]), detail))
	fmt.Printf("error: INVALID_ARGUMENT, field %s: %s\n", detail.GetField(), detail.Message)
}

// follow calls Chat and passes every message on. Ending the context ends the request.
func follow(
	client frontendv1.InferenceServiceClient, request *frontendv1.ChatRequest,
	limit time.Duration, take func(*frontendv1.ChatResponse),
) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stream, err := client.Chat(ctx, request)
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		take(response)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(isSo bool, otherwise string) {
	if !isSo {
		log.Fatal(otherwise)
	}
}
