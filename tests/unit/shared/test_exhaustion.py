"""A process that is out of descriptors, threads or memory says so, and is asked again."""

import errno
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_shared.errors import InternalError, UnavailableError
from pagewire_shared.exhaustion import ExhaustedError, fault_of, is_exhausted, log_fault
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.server import start_server

NO_FILE = OSError(errno.EMFILE, "Too many open files", "/a/secret/path")


def no_thread() -> BaseException:
    """Return what Python raises where the system has no thread left."""
    with pytest.MonkeyPatch.context() as patched:

        def start(*_: Any, **__: Any) -> None:
            raise RuntimeError("can't start new thread")

        for name in ("_start_new_thread", "_start_joinable_thread"):
            if hasattr(threading, name):
                patched.setattr(threading, name, start)
        with pytest.raises(RuntimeError) as caught:
            threading.Thread(target=print).start()
    return caught.value


def wrapped(error: BaseException) -> BaseException:
    try:
        try:
            raise error
        except BaseException as cause:
            raise ValueError("it failed") from cause
    except ValueError as outer:
        return outer


@pytest.mark.parametrize(
    "error",
    [
        NO_FILE,
        OSError(errno.ENFILE, "x"),
        OSError(errno.ENOMEM, "x"),
        OSError(errno.ENOBUFS, "x"),
        BlockingIOError(errno.EAGAIN, "x"),
        MemoryError(),
        no_thread(),
        wrapped(NO_FILE),
    ],
    ids=repr,
)
def test_it_is_told_from_faults(error: BaseException) -> None:
    assert is_exhausted(error)
    failure = fault_of(error, "the server failed")
    assert isinstance(failure, ExhaustedError)
    assert failure.retry_after_ms
    assert "secret" not in failure.message


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOENT, "x"), OSError("x"), RuntimeError("x"), KeyError("x")], ids=repr
)
def test_faults_stay_faults(error: BaseException) -> None:
    assert not is_exhausted(error)
    assert fault_of(error, "the server failed") == InternalError("the server failed")


def test_it_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    for error in (NO_FILE, KeyError("x")):
        log_fault(logging.getLogger("x"), "the stream a", error)
    short, fault = caplog.records
    assert short.exc_info is None
    assert short.getMessage() == (
        "the stream a failed: this process is out of resources (Too many open files)"
    )
    assert fault.exc_info


class Short(admin_pb2_grpc.AdminServiceServicer):
    async def Audit(self, request: Any, context: Any) -> Any:
        raise NO_FILE


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[Any]:
    server = await start_server(
        Address(path=str(tmp_path / "s")),
        lambda server: admin_pb2_grpc.add_AdminServiceServicer_to_server(Short(), server),  # type: ignore[no-untyped-call]
        ["pagewire.scheduler.v1.AdminService"],
        setting="--listen",
    )
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        yield admin_pb2_grpc.AdminServiceStub(channel)
    await server.stop(0)


async def test_a_call_may_be_repeated(stub: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Audit(admin_pb2.AuditRequest())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    error = from_rpc_error(caught.value)
    assert isinstance(error, UnavailableError)
    assert error.retry_after_ms
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == [
        "a call is refused: this process is out of resources (Too many open files); try again"
    ]
