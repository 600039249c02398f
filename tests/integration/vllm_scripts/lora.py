from vllm import LLM, LoRARequest, SamplingParams

llm = LLM(model="meta-llama/Llama-2-7b-hf", enable_lora=True, max_loras=4, max_lora_rank=8)
adapter = LoRARequest("sql", 1, "/adapters/sql")
for output in llm.generate(["Hello"], SamplingParams(max_tokens=4), lora_request=None):
    print(adapter.lora_name, output.outputs[0].text)
