"""The HTTP gateway."""
