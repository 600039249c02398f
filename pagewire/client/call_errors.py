"""Turns failed calls into errors in plain words, without the text of the gRPC library."""

import grpc
import grpc.aio

from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError
from pagewire_shared.rpc.errors import ERROR_METADATA_KEY, from_rpc_error


def has_server_error(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the server has said what is wrong."""
    return any(key == ERROR_METADATA_KEY for key, _ in error.trailing_metadata() or ())


def call_error(error: grpc.aio.AioRpcError, address: str) -> PagewireError:
    """Return the exception of a failed call to `address`.

    An error of the server has its own words. Other errors come from the library.
    """
    if has_server_error(error):
        return from_rpc_error(error)
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return UnavailableError(f"the server at {address} does not answer, or went away")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineError(f"the server at {address} did not answer in time")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnavailableError(f"the server at {address} does not know this call")
    return from_rpc_error(error)
