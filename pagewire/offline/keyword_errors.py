"""Turns the flags in errors of a start into keywords, as scripts give them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pagewire_shared.errors import StartupError

_FLAG = re.compile(r"--([a-z][a-z-]*[a-z])")


@contextmanager
def in_keywords() -> Iterator[None]:
    """Context in which "--max-model-len: ..." of a StartupError becomes "max_model_len: ..."."""
    try:
        yield
    except StartupError as error:
        error.message = _FLAG.sub(lambda found: found.group(1).replace("-", "_"), error.message)
        raise
