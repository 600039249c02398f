"""What of a text has to wait for more of it. Pure."""


def num_held(text: str, marker: str) -> int:
    """Return the length of the longest end of `text` that begins `marker` without being it."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[len(text) - length :]):
            return length
    return 0
