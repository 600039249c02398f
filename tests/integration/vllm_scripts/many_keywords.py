from vllm import LLM, SamplingParams

llm = LLM(
    model="facebook/opt-125m",
    tokenizer_mode="auto",
    trust_remote_code=False,
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    swap_space=4,
    cpu_offload_gb=0,
    enforce_eager=True,
    max_num_seqs=64,
    max_num_batched_tokens=2048,
    enable_chunked_prefill=True,
    num_scheduler_steps=1,
    scheduling_policy="fcfs",
    disable_custom_all_reduce=False,
    speculative_config=None,
    quantization=None,
    kv_cache_dtype="auto",
)
print(llm.generate("Hello", SamplingParams(n=2, max_tokens=3))[0].outputs[1].text)
