"""Default settings of a worker on CUDA.

Imports no torch, because the allocator must be set before torch is loaded.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class StepDefaults:
    """Upper bounds of one step.

    Attributes:
        num_tokens: Tokens. More tokens read the weights less often, but make steps longer.
        num_seqs: Sequences at once.
        least_memory: Bytes of a device that holds such steps beside a model and its cache.
    """

    num_tokens: int
    num_seqs: int
    least_memory: int


STEPS = (
    StepDefaults(num_tokens=8192, num_seqs=512, least_memory=72 * GIB),
    StepDefaults(num_tokens=4096, num_seqs=256, least_memory=36 * GIB),
    StepDefaults(num_tokens=2048, num_seqs=256, least_memory=0),
)
"""Larger devices first; devices of 80 GB have 79 GiB, those of 40 GB 39."""

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_ALLOCATOR_NAMES = (_ALLOCATOR, "PYTORCH_ALLOC_CONF")
_EXPANDABLE = "expandable_segments:True"


def step_defaults(memory_bytes: int) -> StepDefaults:
    """Return the defaults of a device with this much memory."""
    return next(step for step in STEPS if memory_bytes >= step.least_memory)


def set_allocator(environ: MutableMapping[str, str]) -> None:
    """Set torch's allocator in the environment unless it is set, before torch is loaded.

    Steps differ in shape, and the cache leaves little memory beside them: with segments of fixed
    size, memory would be lost between them.
    """
    if not any(name in environ for name in _ALLOCATOR_NAMES):
        environ[_ALLOCATOR] = _EXPANDABLE
