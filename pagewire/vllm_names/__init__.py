"""The table of names of vLLM 0.6 to 0.13, and of words of Ollama and llama.cpp, with its users."""
