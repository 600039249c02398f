"""Endpoints of the OpenAI API: chat, completions, embeddings, tokenization."""
