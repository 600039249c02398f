"""What a worker on CUDA does unless it is told otherwise. Imports no torch: a part of it has to
stand before that is loaded."""

from collections.abc import MutableMapping
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class StepDefaults:
    """Most of one step.

    Attributes:
        num_tokens: Tokens. More of them read the weights less often, and are a longer step.
        num_seqs: Sequences at once.
        least_memory: Bytes of a device that has room for such steps beside a model and its cache.
    """

    num_tokens: int
    num_seqs: int
    least_memory: int


STEPS = (
    StepDefaults(num_tokens=8192, num_seqs=512, least_memory=72 * GIB),
    StepDefaults(num_tokens=4096, num_seqs=256, least_memory=36 * GIB),
    StepDefaults(num_tokens=2048, num_seqs=256, least_memory=0),
)
"""Larger devices first; those of 80 GB have 79 GiB, those of 40 GB 39."""

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_ALLOCATOR_NAMES = (_ALLOCATOR, "PYTORCH_ALLOC_CONF")
_EXPANDABLE = "expandable_segments:True"


def step_defaults(memory_bytes: int) -> StepDefaults:
    """Return those of a device with so much memory."""
    return next(step for step in STEPS if memory_bytes >= step.least_memory)


def set_allocator(environ: MutableMapping[str, str]) -> None:
    """Set torch's allocator in an environment where nobody has, before torch is loaded.

    Steps differ in shape, and the cache leaves little beside them: memory in pieces of fixed size
    would be lost between them.
    """
    if not any(name in environ for name in _ALLOCATOR_NAMES):
        environ[_ALLOCATOR] = _EXPANDABLE
