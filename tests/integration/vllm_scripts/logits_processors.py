from vllm import LLM, SamplingParams

llm = LLM("facebook/opt-125m")
llm.generate("Hello", SamplingParams(logits_processors=[lambda ids, logits: logits]))
