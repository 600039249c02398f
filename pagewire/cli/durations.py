"""Durations as flags have them."""

import argparse
from typing import Final

LONGEST_SECONDS: Final = 3600.0


def waiting_seconds(text: str) -> float:
    """Return how long an answer may take: more than nothing, at most an hour.

    Raises:
        argparse.ArgumentTypeError: It is no such number.
    """
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    # At least a millisecond, which is what goes over the wire; nan compares with nothing.
    if not 0.001 <= seconds <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.001 and {LONGEST_SECONDS:g}")
    return seconds
