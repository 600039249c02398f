"""Words of Ollama and llama.cpp, and commands of vLLM, with what is used for them here."""

from typing import Final

_TEMPERATURE: Final = "use --temperature of pagewire generate and chat, or the field of a request"

LLAMA_CPP: Final[tuple[tuple[str, str], ...]] = (
    ("-m", "write the model as MODEL, a GGUF file, a folder or hub id"),
    ("-hf --hf-repo", "write the hub id as MODEL, or the path of a GGUF file that you fetched"),
    ("-c --ctx-size", "use --max-model-len"),
    ("--n-predict --predict", "use --max-tokens of pagewire generate, or max_tokens"),
    ("-t --threads", "set PAGEWIRE_CPU_THREADS; physical cores by default"),
    ("-ngl --gpu-layers --n-gpu-layers", "--device cuda has all layers on the GPU, cpu none"),
    ("-b --batch-size -ub --ubatch-size", "use --max-num-batched-tokens"),
    ("-np --parallel", "use --max-num-seqs"),
    ("-cb --cont-batching", "leave it out: batches always change with every step"),
    ("-fa --flash-attn", "use --attention-backend"),
    ("-ctk --cache-type-k -ctv --cache-type-v", "use --kv-cache-dtype"),
    ("-a --alias", "use --served-model-name"),
    ("--jinja", "leave it out: chat templates are always rendered"),
    ("--chat-template-file", "use --chat-template FILE"),
    ("--mlock --no-mmap --numa", "leave it out: weights are mapped, then copied or packed"),
    ("--embedding --embeddings", "leave it out: /v1/embeddings always answers"),
    ("--metrics", "leave it out: /metrics always answers"),
    ("--slots", "ask pagewire admin topology"),
    ("--lora", "use --enable-lora --lora-modules NAME=PATH; the adapter as PEFT publishes it"),
    ("-md --model-draft", "name it in --speculative-config, as model"),
    ("--mmproj", "images come later"),
    ("--temp", _TEMPERATURE),
    ("--repeat-penalty", "use --repetition-penalty of pagewire generate and chat"),
    ("--grammar", "use --structured-grammar of pagewire generate, or guided_grammar"),
    ("-j --json-schema", "use --structured-json of pagewire generate, or response_format"),
    ("-p --prompt", "write the prompt as PROMPT of pagewire generate"),
    ("-i --interactive -cnv --conversation", "use pagewire chat"),
)
"""Flags of llama.cpp, with what to do here."""

FLAG_HINTS: Final = {flag: hint for flags, hint in LLAMA_CPP for flag in flags.split()}

OLLAMA: Final[tuple[tuple[str, str], ...]] = (
    ("ollama serve", "`pagewire serve MODEL`: the model is named at the start"),
    ("ollama run MODEL", "`pagewire run MODEL`, the same as `pagewire chat MODEL`"),
    ("ollama run MODEL PROMPT", "`pagewire generate PROMPT --model MODEL`"),
    ("ollama pull MODEL", "`pagewire pull org/name`, from the hub"),
    ("ollama list", "`pagewire models`"),
    ("ollama ps", "`pagewire admin topology`"),
    ("ollama show MODEL", "`pagewire config show`, and the model's own config.json"),
    ("ollama create, Modelfile", "a folder with safetensors; `--chat-template`"),
    ("ollama stop", "Ctrl-C"),
    ("OLLAMA_HOST, port 11434", "`--host`, `--port`, which is 8000"),
    ("OLLAMA_NUM_PARALLEL", "`--max-num-seqs`"),
    ("OLLAMA_CONTEXT_LENGTH, num_ctx", "`--max-model-len`"),
    ("OLLAMA_KV_CACHE_TYPE", "`--kv-cache-dtype`"),
    ("OLLAMA_FLASH_ATTENTION", "`--attention-backend`"),
    ("OLLAMA_KEEP_ALIVE", "nothing: the model stays loaded"),
    ("OLLAMA_ORIGINS", "`--cors-origin`"),
    ("num_predict", "`max_tokens`"),
    ("repeat_penalty", "`repetition_penalty`"),
    ("num_gpu", "`--device cuda`"),
    ("/api/chat", "`POST /v1/chat/completions`"),
    ("/api/generate", "`POST /v1/completions`"),
    ("/api/embed", "`POST /v1/embeddings`"),
    ("/api/tags", "`GET /v1/models`"),
)
"""Commands, settings and routes of Ollama, with their counterparts here, in Markdown."""

VLLM_COMMANDS: Final[tuple[tuple[str, str], ...]] = (
    ("vllm serve MODEL", "`pagewire serve MODEL`"),
    ("python -m vllm.entrypoints.openai.api_server", "`pagewire serve`"),
    ("vllm chat", "`pagewire chat`"),
    ("vllm complete", "`pagewire generate PROMPT`"),
    ("vllm bench serve", "`pagewire bench`"),
    ("vllm run-batch", "nothing yet: send the requests of the file"),
    ("from vllm import LLM, SamplingParams", "`from pagewire import LLM, SamplingParams`"),
)

COMMAND_HINTS: Final = {
    "complete": "use pagewire generate PROMPT",
    "create": "a model is a folder with safetensors: pagewire serve FOLDER",
    "list": "use pagewire models",
    "ls": "use pagewire models",
    "ps": "use pagewire admin topology",
    "rm": "delete the folder of the model",
    "run-batch": "send the requests of the file",
    "show": "use pagewire config show",
    "stop": "end pagewire serve with Ctrl-C",
}
"""Commands of other programs, with what to use here."""
