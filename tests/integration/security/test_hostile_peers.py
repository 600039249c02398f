"""Every method of the links between roles, called on real processes with messages that are drawn
from its descriptors: no process ends, none says INTERNAL, and the cell serves as before.

TEST_HOSTILE_CALLS says how many calls each method gets, TEST_HOSTILE_SEED how they are drawn.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest
from contract.scripted_worker import ScriptedWorker
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_protos.scheduler.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    frontend_attach_pb2,
    worker_attach_pb2,
)
from pagewire_shared.convert import protocol_range
from pagewire_shared.identity.ids import mint_id
from pagewire_shared.kv.arrays import pack_u32
from support.cells.role_cells import MODEL, RoleCell, role_cell, worker_names
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.role_processes import Place
from support.security.hostile_messages import HostileMessages
from support.security.services import INTERNAL
from support.traffic.streams import completion, eventually_clean, follow_all

CALLS = int(os.environ.get("TEST_HOSTILE_CALLS", "12"))
SEED = int(os.environ.get("TEST_HOSTILE_SEED", "1"))
AT_ONCE = 8
CALL_SECONDS = 0.3
"""Of a stream that goes on."""
CLEAN_SECONDS = 30.0
MAX_GROWTH_BYTES = 96 * 1024 * 1024
"""Of a role's memory: bounds of single messages and kept ones are below it."""
WRONG = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
OF_THE_CLIENT = "Internal error from Core"
"""grpcio, of a message that it could not send since the call had ended."""
SERVERS = {
    "scheduler": "scheduler",
    "kvstore": "kvstore",
    "worker": "worker-0",
    "frontend": "peers",
}
PROMPTS = [[3 + (7 * row + place) % 90 for place in range(40)] for row in range(4)]
NUM_TOKENS = 12


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[RoleCell]:
    checkpoint = make_checkpoint(tmp_path / "model", architecture="Qwen3ForCausalLM")
    flags = {"frontend": ["--frontend-name", "a", "--peer-listen", f"unix:{tmp_path}/peers.sock"]}
    flags["scheduler"] = ["--kv-load", "always"]
    names = worker_names(num_workers=1)
    place = lambda name, role: Place(f"unix:{tmp_path / name}.sock")  # noqa: E731
    with role_cell(checkpoint, names, place, flags=flags) as running:
        yield running


def own_methods() -> list[MethodDescriptor]:
    """Return the methods of all services between roles."""
    services = [one for file in INTERNAL for one in file.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


def right_messages() -> dict[str, list[Message]]:
    """Return messages that are let in, by the name of their type; the first one opens a stream."""
    hello = ScriptedWorker("", model="rogue").hello()
    frontend = frontend_attach_pb2.FrontendHello(protocol=protocol_range(), frontend_id=mint_id())
    submit = frontend_attach_pb2.Submit(
        request_id=mint_id(), handle=1, model=MODEL, prompt_token_ids=pack_u32(PROMPTS[0])
    )
    submit.sampling.max_tokens = 4
    submit.generate.SetInParent()
    attach = frontend_attach_pb2.AttachFrontendRequest
    announce = kv_store_pb2.PutAnnounce(layout=hello.layout, names=mint_id())
    opened = kv_store_pb2.GetOpen(layout=hello.layout, names=mint_id())
    made: list[list[Message]] = [
        [worker_attach_pb2.AttachWorkerRequest(hello=hello)],
        [attach(hello=frontend), attach(submit=submit)],
        [kv_store_pb2.HelloRequest(protocol=protocol_range(), layout=hello.layout)],
        [kv_store_pb2.PutRequest(announce=announce)],
        [kv_store_pb2.GetRequest(open=opened)],
    ]
    return {seeds[0].DESCRIPTOR.full_name: seeds for seeds in made}


async def call(
    channel: grpc.aio.Channel, method: MethodDescriptor, messages: Sequence[bytes]
) -> tuple[grpc.StatusCode, str]:
    """Return how a call ends; one that goes on is cancelled."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if method.client_streaming:
        running = channel.stream_stream(path)(iter(messages), timeout=CALL_SECONDS)
    else:
        running = channel.unary_stream(path)(messages[0], timeout=CALL_SECONDS)
    try:
        async for _ in running:
            pass
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    return await running.code(), await running.details() or ""


async def attack(cell: RoleCell, peers: str, number: int, seed: int) -> list[str]:
    """Call each method `number` times; return what was answered that must not be."""
    addresses = {name: member.place.address for name, member in cell.members.items()}
    addresses["peers"] = peers
    seeds, room, wrong = right_messages(), asyncio.Semaphore(AT_ONCE), []
    counts: Counter[str] = Counter()

    async def one(method: MethodDescriptor, turn: int) -> None:
        dice = random.Random(f"{seed} {method.full_name} {turn}")
        kind, known = GetMessageClass(method.input_type), seeds.get(method.input_type.full_name, [])
        hostile = HostileMessages(dice.randrange(2**32))
        messages = [hostile.draw_bytes(kind, known) for _ in range(dice.choice((1, 2, 4)))]
        if known and dice.random() < 0.7:
            messages.insert(0, known[0].SerializeToString())
        package = method.containing_service.file.package.split(".")[1]
        async with room, grpc.aio.insecure_channel(addresses[SERVERS[package]]) as channel:
            code, details = await call(channel, method, messages)
        is_of_client = OF_THE_CLIENT in details
        shown = "(ended before all was sent)" if is_of_client else code.name
        counts[f"{method.containing_service.name}/{method.name} {shown}"] += 1
        if code in WRONG and not is_of_client:
            wrong.append(f"{method.full_name}, turn {turn}: {code.name}: {details}")

    turns = [(method, turn) for turn in range(number) for method in own_methods()]
    await asyncio.gather(*(one(*each) for each in turns))
    for line in sorted(counts.items()):
        print(*line)
    return wrong


async def restore(cell: RoleCell) -> None:
    """Undo what operators' calls may have done: workers that sleep, and roles."""
    scheduler = cell.members["scheduler"].place.address
    async with grpc.aio.insecure_channel(scheduler) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        await stub.WakeUp(admin_pb2.WakeUpRequest(timeout_ms=20_000))
        cells = (await stub.Topology(admin_pb2.TopologyRequest())).cells
        roles = [worker_attach_pb2.WORKER_ROLE_PREFILL, worker_attach_pb2.WORKER_ROLE_DECODE]
        for worker in cells[0].workers:
            await stub.SetRoles(admin_pb2.SetRolesRequest(worker=worker.worker, roles=roles))


def memory_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


async def answers(cell: RoleCell) -> list[list[int]]:
    requests = [completion(cell.model, prompt, NUM_TOKENS) for prompt in PROMPTS]
    return [one.token_ids for one in await follow_all(cell.grpc_address, requests)]


def test_no_peer_ends_a_role(cell: RoleCell, tmp_path: Path) -> None:
    peers = f"unix:{tmp_path}/peers.sock"
    expected = asyncio.run(answers(cell))
    pids = {name: member.pid for name, member in cell.members.items()}
    asyncio.run(attack(cell, peers, 2, SEED))
    before = {name: memory_bytes(pid) for name, pid in pids.items()}
    wrong = asyncio.run(attack(cell, peers, CALLS, SEED + 1))
    for name, member in cell.members.items():
        assert member.process.poll() is None, f"{name} ended: {member.log}"
        grown = memory_bytes(pids[name]) - before[name]
        print(f"{name}: {grown / 2**20:.1f} MiB more")
        assert grown < MAX_GROWTH_BYTES, name
    assert not wrong, "\n".join([*wrong, cell.log])
    assert "Traceback" not in cell.log, cell.log
    asyncio.run(restore(cell))
    assert asyncio.run(answers(cell)) == expected
    asyncio.run(eventually_clean(cell.grpc_address, 1, CLEAN_SECONDS))
