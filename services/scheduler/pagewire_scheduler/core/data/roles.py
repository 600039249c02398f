"""What a worker is used for."""

import enum
from typing import Final


class Role(enum.Enum):
    """A worker may have both; values are what flags and reports call them."""

    PREFILL = "prefill"  # computes prompts, also those of requests that go on elsewhere
    DECODE = "decode"  # owns requests and generates their tokens


ALL_ROLES: Final = frozenset(Role)
