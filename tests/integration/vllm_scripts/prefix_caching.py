from vllm import LLM, SamplingParams

prefix = "You are an expert school principal, skilled in managing staff. " * 4
prompts = [prefix + question for question in ("Who are you?", "What do you do?")]
params = SamplingParams(temperature=0.0, max_tokens=6)
regular = LLM(model="facebook/opt-125m", gpu_memory_utilization=0.4)
expected = [output.outputs[0].text for output in regular.generate(prompts, params)]
cached = LLM(model="facebook/opt-125m", enable_prefix_caching=True, gpu_memory_utilization=0.4)
assert [output.outputs[0].text for output in cached.generate(prompts, params)] == expected
print("same texts")
