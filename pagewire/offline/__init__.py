"""The offline API: LLM, its prompts and its outputs."""
