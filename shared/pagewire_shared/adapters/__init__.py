"""LoRA adapters as PEFT publishes them: their identity, settings and tensors, checked early."""
