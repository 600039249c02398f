"""A cell whose roles speak over TCP with certificates: it serves, hands off and stores as without,
lets in no other role, and takes up new certificates under load."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from pagewire.cli import admin
from pagewire.cli.certs.authority import Authority
from pagewire_protos.scheduler.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    worker_attach_pb2,
    worker_attach_pb2_grpc,
)
from pagewire_shared.errors import ForbiddenError, UnavailableError
from pagewire_shared.rpc import links
from pagewire_shared.security.callers import CALLERS
from pagewire_shared.security.instances import INSTANCES
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
ROTATIONS = int(os.environ.get("TEST_ROTATIONS", "100"))
SECONDS = 10.0
SHORT_SECONDS = 0.3
"""For calls that go on once they are let in."""
WORKERS = worker_names(num_prefill=1, num_decode=1)
OWNERS = {
    "scheduler": LinkRole.SCHEDULER,
    "kvstore": LinkRole.KVSTORE,
    **dict.fromkeys(WORKERS, LinkRole.WORKER),
    "frontend-a": LinkRole.FRONTEND,
    "operator": LinkRole.OPERATOR,
}
"""Folders of processes to their roles; each certificate is bound to the process."""
ELSEWHERE = "elsewhere"
"""An instance that no process of the cell has."""


def instance_of(owner: str) -> str:
    return owner.removeprefix("frontend-")


def issue(certificates: Path, owner: str) -> None:
    Authority.load(certificates).issue(
        certificates / owner,
        OWNERS[owner],
        cell="default",
        instance=instance_of(owner),
        days=1.0,
        is_bound=True,
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_certificates(tmp_path_factory.mktemp("certificates") / "cell", [])
    lines = [f"{role}/{instance_of(owner)}" for owner, role in OWNERS.items()]
    for owner in OWNERS:
        issue(root, owner)
        (root / owner / INSTANCES).write_text("\n".join(lines))
    return root


@pytest.fixture(scope="module")
def addresses() -> dict[str, str]:
    names = ["scheduler", "kvstore", *WORKERS, "peers"]
    first = free_ports(len(names))
    return {name: f"127.0.0.1:{first + number}" for number, name in enumerate(names)}


@pytest.fixture(scope="module")
def cell(
    certificates: Path, addresses: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoleCell]:
    folder = tmp_path_factory.mktemp("tls")
    checkpoint = make_checkpoint(folder / "model", architecture="Qwen3ForCausalLM")

    def find_place(name: str, role: str) -> Place:
        return Place(addresses.get(name, f"unix:{folder / name}.sock"))

    owners = {"frontend": "frontend-a"} | {
        name: name for name in ("scheduler", "kvstore", *WORKERS)
    }
    flags = {name: ["--tls-dir", str(certificates / owner)] for name, owner in owners.items()}
    flags["frontend"] += ["--frontend-name", "a", "--peer-listen", addresses["peers"]]
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


SERVERS = {
    "pagewire.scheduler.v1": "scheduler",
    "pagewire.kvstore.v1": "kvstore",
    "pagewire.worker.v1": "prefill-0",
    "pagewire.frontend.v1": "peers",
    "grpc.health.v1": "kvstore",
    "grpc.reflection.v1alpha": "kvstore",
}
"""Package of a service to the process that is asked for it."""
UNSERVED = "grpc.health.v1.Health/List"
"""grpcio's asynchronous service of health does not have it, and logs a traceback."""


async def _outcome(channel: grpc.aio.Channel, method: str) -> str:
    """Return how a call with an empty message ends."""
    # One message is sent with the call: a stream's could meet its end, which grpcio calls INTERNAL.
    call = channel.unary_stream(f"/{method}")(b"", timeout=SHORT_SECONDS)
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    finally:
        call.cancel()
    return "OK"


def test_every_call_takes_its_roles_and_no_other(
    cell: RoleCell, certificates: Path, addresses: dict[str, str], tmp_path: Path
) -> None:
    """All methods of all links, each with no certificate, one of another authority, one that has
    expired, and for each role that of the process, one of another instance, and one of none."""
    strangers = make_certificates(tmp_path / "strangers")
    folders: dict[str, Path | None] = {"none": None, "expired": tmp_path / "expired"}
    authority = Authority.load(certificates)
    names = {"cell": "default", "instance": ELSEWHERE}
    authority.issue(tmp_path / "expired", LinkRole.WORKER, days=-0.001, **names)
    folders |= {"other authority": strangers / LinkRole.WORKER}
    folders |= {role.value: certificates / owner for owner, role in OWNERS.items()}
    for role in LinkRole:
        for case, is_bound in ((f"{role} {ELSEWHERE}", True), (f"any {role}", False)):
            folders[case] = tmp_path / case
            authority.issue(tmp_path / case, role, days=1.0, is_bound=is_bound, **names)

    async def outcomes() -> dict[tuple[str, str], str]:
        found = {}
        for case, folder in folders.items():
            channels = {
                name: channel_with(addresses[name], folder, certificates)
                for name in set(SERVERS.values())
            }
            for method in CALLERS:
                if method == UNSERVED:
                    continue
                package = method.partition("/")[0].rpartition(".")[0]
                found[method, case] = await _outcome(channels[SERVERS[package]], method)
            await asyncio.gather(*(channel.close() for channel in channels.values()))
        return found

    found = asyncio.run(outcomes())
    wrong = []
    for (method, case), code in found.items():
        if case in ("none", "expired", "other authority"):
            is_right = code == "UNAVAILABLE"
        elif case in set(LinkRole) and LinkRole(case) in CALLERS[method]:
            is_right = code not in ("PERMISSION_DENIED", "UNAVAILABLE")
        else:
            is_right = code == "PERMISSION_DENIED"
        if not is_right:
            wrong.append((method, case, code))
    for method in dict.fromkeys(method for method, _ in found):
        print(method, *(f"{case}: {found[method, case]}" for case in folders), sep=" | ")
    assert not wrong
    test_it_serves(cell)


def test_an_operator_asks_the_scheduler(
    cell: RoleCell, certificates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--tls-dir`; a worker's certificate is no operator's, and without one none answers."""
    server = ["topology", "--server", cell.members["scheduler"].place.address]
    folder = certificates / LinkRole.OPERATOR
    try:
        assert admin.run("admin", [*server, "--tls-dir", str(folder)]) == 0
        shown = capsys.readouterr().out
        assert "hand-off always" in shown
        assert "decode" in shown
        with pytest.raises(ForbiddenError):
            admin.run("admin", [*server, "--tls-dir", str(certificates / "decode-0")])
    finally:
        links.use(SimpleNamespace(tls_dir=None, insecure=False))
    with pytest.raises(UnavailableError):
        admin.run("admin", server)


def test_a_worker_is_who_its_certificate_says(
    cell: RoleCell, certificates: Path, addresses: dict[str, str]
) -> None:
    """It may not attach with another one's id or endpoint: the id stands for that one's slots."""

    async def attach(hello: worker_attach_pb2.WorkerHello) -> str:
        channel = channel_with(addresses["scheduler"], certificates / "decode-0", certificates)
        async with channel:
            call = worker_attach_pb2_grpc.WorkerAttachServiceStub(channel).AttachWorker()
            await call.write(worker_attach_pb2.AttachWorkerRequest(hello=hello))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asyncio.wait_for(call.read(), SECONDS)
            return f"{caught.value.code().name}: {caught.value.details()}"

    async def main() -> None:
        folder = certificates / "operator"
        async with channel_with(addresses["scheduler"], folder, certificates) as channel:
            request = admin_pb2.TopologyRequest()
            cells = (await admin_pb2_grpc.AdminServiceStub(channel).Topology(request)).cells
        (other,) = (one for one in cells[0].workers if one.kv_endpoint.startswith("prefill-0@"))
        named = await attach(worker_attach_pb2.WorkerHello(worker_id=bytes.fromhex(other.worker)))
        assert named.startswith("PERMISSION_DENIED: worker (spiffe://default/worker/decode-0)")
        assert named.endswith("is that of another instance")
        endpoints = [other.kv_endpoint]
        lent = await attach(worker_attach_pb2.WorkerHello(kv_endpoints=endpoints))
        assert lent.endswith("its endpoint is that of worker/prefill-0")

    asyncio.run(main())
    assert [len(one.token_ids) for one in ask(cell)] == [NUM_TOKENS] * len(PROMPTS)


@pytest.mark.long
def test_new_certificates_under_load(cell: RoleCell, certificates: Path) -> None:
    """Rotations of all roles, of which some meet deaths of the scheduler and of a worker: no
    stream is lost. TEST_ROTATIONS says how many, 100 otherwise."""
    expected = ask(cell)
    scheduler, worker = cell.members["scheduler"], cell.members["decode-0"]

    async def load(stop: asyncio.Event) -> int:
        rounds = 0
        while not stop.is_set():
            answers = await ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS)
            assert [one.token_ids for one in answers] == [one.token_ids for one in expected]
            rounds += 1
        return rounds

    def rotate() -> None:
        for owner in OWNERS:
            issue(certificates, owner)

    async def main() -> int:
        stop = asyncio.Event()
        task = asyncio.create_task(load(stop))
        for number in range(ROTATIONS):
            await asyncio.to_thread(rotate)
            if number % (ROTATIONS // 3) == ROTATIONS // 6:
                for member in (scheduler, worker):
                    await asyncio.to_thread(member.kill)
                    member.start()
                    await asyncio.to_thread(member.wait_ready, 60.0)
            await asyncio.sleep(0.02)
        stop.set()
        return await task

    assert asyncio.run(main()) > 3
    asyncio.run(eventually_clean(cell.grpc_address, len(WORKERS), SECONDS))
