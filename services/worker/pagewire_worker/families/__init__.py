"""Families of decoders: one module per family makes a ModelPlan from config.json."""
