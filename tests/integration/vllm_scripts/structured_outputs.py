from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

llm = LLM(model="Qwen/Qwen2.5-3B-Instruct", max_model_len=100)
params = SamplingParams(
    structured_outputs=StructuredOutputsParams(regex=r"\w+@\w{2,5}\.com"),
    max_tokens=40,
    stop=["\n"],
)
print(llm.generate("An email address:", sampling_params=params)[0].outputs[0].text)
