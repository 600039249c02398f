from vllm import LLM, SamplingParams

llm = LLM(model="facebook/opt-125m", max_logprobs=10, seed=0, disable_log_stats=True)
params = SamplingParams(temperature=0, logprobs=2, prompt_logprobs=1, max_tokens=3, detokenize=True)
(output,) = llm.generate([{"prompt_token_ids": [2, 3, 4]}], params)
assert len(output.outputs[0].logprobs) == 3
print(output.prompt_logprobs[1])
