"""LoRA adapters of a replica: which matrices they change, their slots, and how they are loaded."""
