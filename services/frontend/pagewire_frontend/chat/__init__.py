"""Turns and tools of a conversation: from the client's words to how an answer is read."""
