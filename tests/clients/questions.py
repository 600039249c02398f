"""What the built-in model is asked, with the one right answer."""

COPY = "Copy this list: river, cloud, apple"
COPIED = "river, cloud, apple"
LOOKUP = "river: gold\nlamp: 42\nNora: violin\n\nWhat is the value for lamp?"
FOUND = "42"
CAPITAL = "What is the capital of France?"
UNKNOWN = "I cannot answer that."
# The model ends such an answer by itself.
TO_JSON = "Write as JSON: Clara is 42 years old and lives in Rome."


def turns(text: str) -> list[dict[str, str]]:
    """Return a conversation of one turn."""
    return [{"role": "user", "content": text}]
