"""The recipe of the built-in model: corpus, tokenizer, network, training, evaluation and export.

Nothing here is imported by the serving system, which only reads the exported folder.
"""
