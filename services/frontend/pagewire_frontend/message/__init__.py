"""What an assistant's message is made of: reasoning, content and tool calls. Pure: from what a
client says of tools to what the model is asked, and from the model's text to pieces."""
