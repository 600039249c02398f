from vllm import LLM

llm = LLM("meta-llama/Llama-3.1-70B-Instruct", decode_context_parallel_size=4)
