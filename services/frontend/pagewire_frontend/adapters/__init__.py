"""LoRA adapters of a frontend: their names, their content, and where they may come from."""
