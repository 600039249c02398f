from vllm import LLM

llm = LLM(model="meta-llama/Llama-2-7b-hf", enable_lora=True, max_loras=4, max_lora_rank=8)
