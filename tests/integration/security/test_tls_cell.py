"""A cell whose roles speak over TCP with certificates: it serves, hands off and stores as without,
lets in no other role, and takes up new certificates under load."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest

from pagewire.cli.certs.authority import Authority
from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_protos.scheduler.v1 import (
    frontend_attach_pb2_grpc,
    worker_attach_pb2_grpc,
)
from pagewire_protos.worker.v1 import kv_transfer_pb2_grpc
from pagewire_shared.security.roles import LinkRole
from support.cells.kv_cells import Answer, ask_all
from support.cells.role_cells import RoleCell, role_cell, worker_names
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import free_ports
from support.processes.role_processes import Place
from support.security.certificates import channel_with, make_certificates
from support.traffic.streams import completion, eventually_clean, follow_all

PROMPTS = [[3 + (7 * row + place) % 90 for place in range(70)] for row in range(8)]
NUM_TOKENS = 24
SECONDS = 10.0
WORKERS = worker_names(num_prefill=1, num_decode=1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates") / "cell")


@pytest.fixture(scope="module")
def cell(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCell]:
    folder = tmp_path_factory.mktemp("tls")
    checkpoint = make_checkpoint(folder / "model", architecture="Qwen3ForCausalLM")
    names = ["scheduler", "kvstore", *WORKERS]
    first = free_ports(len(names))
    addresses = {name: f"127.0.0.1:{first + number}" for number, name in enumerate(names)}

    def find_place(name: str, role: str) -> Place:
        return Place(addresses.get(name, f"unix:{folder / name}.sock"))

    roles = [LinkRole.SCHEDULER, LinkRole.KVSTORE, LinkRole.WORKER, LinkRole.FRONTEND]
    flags = {role.value: ["--tls-dir", str(certificates / role)] for role in roles}
    flags["scheduler"] += ["--handoff", "always", "--kv-load", "always"]
    with role_cell(checkpoint, WORKERS, find_place, flags=flags) as running:
        yield running
        assert "Traceback" not in running.log


def ask(cell: RoleCell) -> list[Answer]:
    return asyncio.run(ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS))


def test_it_serves(cell: RoleCell) -> None:
    requests = [completion(cell.model, prompt, NUM_TOKENS) for prompt in PROMPTS]
    streams = asyncio.run(follow_all(cell.grpc_address, requests))
    assert [len(one.token_ids) for one in streams] == [NUM_TOKENS] * len(PROMPTS)
    assert any(one.timelines[0]["is_handed_off"] for one in streams)
    asyncio.run(eventually_clean(cell.grpc_address, len(WORKERS), SECONDS))


async def _first(calls: Sequence[grpc.aio.Call]) -> list[str]:
    """Return how calls end."""
    found = []
    for call in calls:
        try:
            await asyncio.wait_for(call.read() if hasattr(call, "read") else call, SECONDS)
            found.append("OK")
        except grpc.aio.AioRpcError as error:
            found.append(error.code().name)
    return found


@pytest.mark.parametrize("role", [*LinkRole, None])
def test_only_the_right_role_is_let_in(
    cell: RoleCell, certificates: Path, role: LinkRole | None
) -> None:
    """With a certificate of each role, stolen, and with none."""

    async def outcomes() -> dict[str, str]:
        folder = None if role is None else certificates / role
        addresses = {name: one.place.address for name, one in cell.members.items()}
        channels = {
            name: channel_with(addresses[name], folder, certificates)
            for name in ("scheduler", "kvstore", "prefill-0")
        }
        stores = kv_store_pb2_grpc.KvStoreServiceStub(channels["kvstore"])
        empty = kv_store_pb2.StatsRequest()
        calls = {
            "stats": stores.Stats(empty, timeout=SECONDS),
            "get": stores.Get(iter(()), timeout=SECONDS),
            "attach worker": worker_attach_pb2_grpc.WorkerAttachServiceStub(
                channels["scheduler"]
            ).AttachWorker(iter(()), timeout=SECONDS),
            "attach frontend": frontend_attach_pb2_grpc.FrontendAttachServiceStub(
                channels["scheduler"]
            ).AttachFrontend(iter(()), timeout=SECONDS),
            "pull": kv_transfer_pb2_grpc.KvTransferServiceStub(channels["prefill-0"]).Pull(
                iter(()), timeout=SECONDS
            ),
        }
        found = await _first(list(calls.values()))
        for channel in channels.values():
            await channel.close()
        return dict(zip(calls, found, strict=True))

    allowed = {
        "stats": {LinkRole.SCHEDULER, LinkRole.OPERATOR},
        "get": {LinkRole.WORKER},
        "attach worker": {LinkRole.WORKER},
        "attach frontend": {LinkRole.FRONTEND},
        "pull": {LinkRole.WORKER},
    }
    found = asyncio.run(outcomes())
    if role is None:
        assert set(found.values()) == {"UNAVAILABLE"}
        return
    refused = {name for name, code in found.items() if code == "PERMISSION_DENIED"}
    assert refused == {name for name, roles in allowed.items() if role not in roles}


@pytest.mark.long
def test_new_certificates_under_load(cell: RoleCell, certificates: Path) -> None:
    """100 rotations of all roles, 3 deaths of the scheduler and of a worker: no stream is lost."""
    expected = ask(cell)
    authority = Authority.load(certificates)
    scheduler, worker = cell.members["scheduler"], cell.members["decode-0"]

    async def load(stop: asyncio.Event) -> int:
        rounds = 0
        while not stop.is_set():
            answers = await ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS)
            assert [one.token_ids for one in answers] == [one.token_ids for one in expected]
            rounds += 1
        return rounds

    def rotate() -> None:
        for role in (LinkRole.SCHEDULER, LinkRole.KVSTORE, LinkRole.WORKER, LinkRole.FRONTEND):
            authority.issue(certificates / role, role, cell="default", instance="1", days=1.0)

    async def main() -> int:
        stop = asyncio.Event()
        task = asyncio.create_task(load(stop))
        for number in range(100):
            await asyncio.to_thread(rotate)
            if number % 30 == 15:
                for member in (scheduler, worker):
                    await asyncio.to_thread(member.kill)
                    member.start()
                    await asyncio.to_thread(member.wait_ready, 60.0)
            await asyncio.sleep(0.02)
        stop.set()
        return await task

    assert asyncio.run(main()) > 3
    asyncio.run(eventually_clean(cell.grpc_address, len(WORKERS), SECONDS))
