"""How many warps of a kernel a multiprocessor holds at once. Pure arithmetic over the limits that
the CUDA C++ Programming Guide gives per compute capability."""

from dataclasses import dataclass

LANES = 32
REGISTERS = 65536
REGISTER_UNIT = 256
"""Registers are handed out to warps in multiples of it."""
PARTITIONS = 4
"""Of a multiprocessor, each with its share of the registers."""
SHARED_UNIT = 128
RESERVED_SHARED = 1024
"""Bytes of shared memory that the system takes of each block of threads."""


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Most that is there at once.

    Attributes:
        warps, blocks: Of threads.
        shared: Bytes of shared memory.
        block_shared: Bytes of it that one block of threads may have.
    """

    warps: int
    blocks: int
    shared: int
    block_shared: int


MULTIPROCESSORS = {
    80: Multiprocessor(warps=64, blocks=32, shared=164 * 1024, block_shared=163 * 1024),
    89: Multiprocessor(warps=48, blocks=24, shared=100 * 1024, block_shared=99 * 1024),
    90: Multiprocessor(warps=64, blocks=32, shared=228 * 1024, block_shared=227 * 1024),
}
"""By compute capability, 80 for 8.0."""


def resident_warps(capability: int, num_warps: int, registers: int, shared: int) -> int:
    """Return how many warps are resident; 0 where a block of threads has no room.

    Args:
        capability: One of MULTIPROCESSORS.
        num_warps: Of a block of threads.
        registers: Of a thread.
        shared: Bytes of shared memory of a block.
    """
    most = MULTIPROCESSORS[capability]
    if shared > most.block_shared:
        return 0
    of_warp = _rounded_up(max(registers, 1) * LANES, REGISTER_UNIT)
    fitting_warps = REGISTERS // PARTITIONS // of_warp * PARTITIONS
    blocks = min(
        most.blocks,
        most.warps // num_warps,
        fitting_warps // num_warps,
        most.shared // _rounded_up(shared + RESERVED_SHARED, SHARED_UNIT),
    )
    return blocks * num_warps


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
