"""Calls of functions in all ranks, and their replies."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.errors import InternalError
from pagewire_worker.parallel.shared_collectives import SharedCollectives

MAX_REPLY_BYTES: Final = 64 * 1024
"""Of a reply, as JSON."""
MAX_ERROR_CHARS: Final = 4096


def gather_replies(
    collectives: SharedCollectives,
    functions: Mapping[str, Callable[..., Any]],
    call: Mapping[str, Any],
) -> list[Any]:
    """Run one rank's part of a call, and return the results of all ranks, or of the wanted one.

    Args:
        functions: Of this rank.
        call: method, timeout, args, kwargs and unique_reply_rank, as `collective_rpc` takes them.

    Raises:
        InternalError: The function raised in a rank, which the message names.
        RankLostError: A rank is lost.
    """
    collectives.set_timeout(call["timeout"])
    wanted = call.get("unique_reply_rank")
    is_wanted = wanted in (None, collectives.topology.rank)
    own = _called(functions, call, is_wanted=is_wanted)
    sizes = [int(size) for size in collectives.gather_all(torch.tensor([len(own)]))]
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: len(own)] = own
    every = collectives.gather_all(padded)
    replies = [
        json.loads(reply[:size].numpy().tobytes()) for reply, size in zip(every, sizes, strict=True)
    ]
    for rank, reply in enumerate(replies):
        if "error" in reply:
            raise InternalError(f"rank {rank}: {call['method']}: {reply['error']}")
    results = [reply["result"] for reply in replies]
    return results if wanted is None else [results[wanted]]


def encoded_result(result: object) -> bytes:
    """Return a result as it is sent. Raises TypeError or ValueError for one that is no JSON or
    too long."""
    data = json.dumps({"result": result}).encode()
    if len(data) > MAX_REPLY_BYTES:
        raise ValueError(f"a reply of {len(data)} bytes is longer than {MAX_REPLY_BYTES}")
    return data


def _called(
    functions: Mapping[str, Callable[..., Any]], call: Mapping[str, Any], *, is_wanted: bool
) -> Tensor:
    function = functions.get(call["method"])
    try:
        if function is None:
            raise InternalError("there is no such function")
        result = function(*call["args"], **call["kwargs"])
        data = encoded_result(result if is_wanted else None)
    except Exception as error:  # noqa: BLE001 - it is the reply, and rank 0 raises it
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, InternalError):
            reason = error.message
        data = json.dumps({"error": reason[:MAX_ERROR_CHARS]}).encode()
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())
