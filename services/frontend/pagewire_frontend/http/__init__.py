"""The OpenAI-style HTTP gateway: shapes, errors and streams. Everything behind it is the
engine's."""
