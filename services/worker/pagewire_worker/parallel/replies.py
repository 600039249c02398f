"""Calls of functions in all ranks, and their replies."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from pagewire_shared.errors import InternalError
from pagewire_worker.parallel.shared_collectives import SharedCollectives

MAX_REPLY_BYTES: Final = 64 * 1024


def gather_replies(
    collectives: SharedCollectives,
    functions: Mapping[str, Callable[..., Any]],
    call: Mapping[str, Any],
) -> list[Any]:
    """Run one rank's part of a call, and return the results of all ranks.

    Args:
        functions: Of this rank.
        call: method, timeout, args and kwargs, as `collective_rpc` takes them.

    Raises:
        InternalError: The function raised in a rank, which the message names.
        RankLostError: A rank is lost.
    """
    collectives.set_timeout(call["timeout"])
    own = _encoded(_called(functions, call))
    sizes = collectives.all_gather(torch.tensor([len(own)]), 0)
    padded = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    padded[: len(own)] = own
    every = collectives.all_gather(padded, 0).view(len(sizes), -1)
    replies = [
        json.loads(bytes(reply[:size].tolist()))
        for reply, size in zip(every, sizes.tolist(), strict=True)
    ]
    for rank, reply in enumerate(replies):
        if "error" in reply:
            raise InternalError(f"rank {rank}: {call['method']}: {reply['error']}")
    return [reply["result"] for reply in replies]


def _called(functions: Mapping[str, Callable[..., Any]], call: Mapping[str, Any]) -> object:
    function = functions.get(call["method"])
    if function is None:
        return {"error": "there is no such function"}
    try:
        return {"result": function(*call["args"], **call["kwargs"])}
    except Exception as error:  # noqa: BLE001 - it is the reply, and rank 0 raises it
        return {"error": f"{type(error).__name__}: {error}"}


def _encoded(reply: object) -> Tensor:
    data = json.dumps(reply).encode()
    if len(data) > MAX_REPLY_BYTES:
        data = json.dumps({"error": f"a reply of {len(data)} bytes is too long"}).encode()
    return torch.tensor(list(data), dtype=torch.uint8)
