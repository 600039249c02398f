from vllm import LLM

llm = LLM(
    model="facebook/opt-6.7b",
    speculative_config={"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
)
