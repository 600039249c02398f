"""The Responses API: endpoints, kept responses and background runs."""
