"""Names that users bring from vLLM, and what each of them does here."""
