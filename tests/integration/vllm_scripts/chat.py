from vllm import LLM, SamplingParams

llm = LLM(model="meta-llama/Llama-3.2-1B-Instruct", max_model_len="1k", dtype="half")
conversation = [
    {"role": "system", "content": "You are a helpful assistant"},
    {"role": "user", "content": "Hello"},
]
outputs = llm.chat(
    [conversation, conversation], sampling_params=SamplingParams(max_tokens=4), use_tqdm=False
)
print(len(outputs), outputs[0].outputs[0].finish_reason)
