"""The served models: tokenizer, chat template, limits and defaults."""
