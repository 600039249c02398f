"""Load test of any OpenAI-compatible server."""
