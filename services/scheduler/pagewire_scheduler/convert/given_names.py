"""Checks the block hashes of a prompt that a frontend sends along: their form, and a sample of them
by computing. A frontend is trusted with the rest, as with the tenant of a request."""

from typing import Final

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.core.blocks.prefix_cache import NAME_BYTES, GivenNames
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import U32Array
from pagewire_shared.kv.block_hash import block_name

_NUM_CHECKED: Final = 4
_FIELD: Final = "prompt_blocks"


def given_names(message: pb.Submit, prompt: U32Array) -> GivenNames | None:
    """Return the names that came with a request, or None.

    Raises:
        InvalidRequestError: The names are malformed, or a checked name does not match its block:
            the frontend computes names in another way.
    """
    if not message.HasField("prompt_blocks"):
        return None
    blocks = message.prompt_blocks
    num_names, rest = divmod(len(blocks.names), NAME_BYTES)
    if rest or len(blocks.root) != NAME_BYTES:
        raise InvalidRequestError(f"names of blocks have {NAME_BYTES} bytes", field=_FIELD)
    if blocks.block_size < 1 or num_names * blocks.block_size > len(prompt):
        raise InvalidRequestError("more blocks are named than the prompt fills", field=_FIELD)
    given = GivenNames(BlockName(blocks.root), blocks.block_size, blocks.names)
    # Checked: the first, the last, and some that differ from request to request.
    seed = int.from_bytes(message.request_id[:8], "little")
    between = (seed * step % num_names for step in range(1, _NUM_CHECKED - 1)) if num_names else ()
    for index in {0, num_names - 1, *between} if num_names else ():
        if not _is_right(given, index, prompt):
            raise InvalidRequestError("a name is not that of its block", field=_FIELD)
    return given


def _is_right(given: GivenNames, index: int, prompt: U32Array) -> bool:
    at, size = index * NAME_BYTES, given.block_size
    parent = BlockName(given.packed[at - NAME_BYTES : at]) if index else given.root
    ids: list[int] = prompt[index * size : (index + 1) * size].tolist()
    return block_name(parent, ids) == given.packed[at : at + NAME_BYTES]
