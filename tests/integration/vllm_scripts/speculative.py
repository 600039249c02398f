from vllm import LLM, SamplingParams

llm = LLM(
    model="facebook/opt-6.7b",
    speculative_config={"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
)
print(llm.generate("The future of AI is", SamplingParams(temperature=0.8))[0].outputs[0].text)
