from vllm import LLM, SamplingParams
from vllm.sampling_params import GuidedDecodingParams

llm = LLM(model="Qwen/Qwen2.5-3B-Instruct", max_model_len=100, guided_decoding_backend="xgrammar")
params = SamplingParams(
    guided_decoding=GuidedDecodingParams(choice=["Positive", "Negative"]), max_tokens=16
)
text = llm.generate("Classify this sentiment: vLLM is wonderful!", params)[0].outputs[0].text
assert text in ("Positive", "Negative"), text
print(text)
