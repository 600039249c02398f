"""What a worker is used for, and how it says that its blocks may move."""

import asyncio
from dataclasses import replace

import pytest

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import StartupError
from pagewire_shared.kv.arena import boot_id
from pagewire_shared.kv.arrays import pack_names, pack_u32
from pagewire_shared.process.settings import load_config
from pagewire_shared.rpc.address import Address
from pagewire_worker.config import WorkerConfig
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.plan.roles import WorkerRole
from pagewire_worker.runner.model_thread import ModelThread
from support.cells.kv_peers import LOADED_BLOCKS, NAMES, peer
from support.cells.worker_driver import load
from support.checkpoints.checkpoints import make_checkpoint
from support.fakes.fake_scheduler import FakeScheduler, listening

SHARED, GRPC = layout_pb2.KV_TRANSPORT_SHARED_MEMORY, layout_pb2.KV_TRANSPORT_GRPC
PREFILL, DECODE = wire.WORKER_ROLE_PREFILL, wire.WORKER_ROLE_DECODE


def config(*flags):
    return load_config(WorkerConfig, ["--model", "m", *flags], {}, prog="x", description="").config


@pytest.mark.parametrize(
    ("flags", "roles"),
    [
        ([], ("prefill", "decode")),
        (["--roles", "decode"], ("decode",)),
        (["--roles", "prefill, decode"], ("prefill, decode",)),
        (["--roles", "prefill", "--roles", "decode"], ("prefill", "decode")),
    ],
)
def test_roles_are_repeated_or_separated_by_commas(flags, roles):
    assert config(*flags).roles == roles


@pytest.mark.parametrize("words", ["encode", "", "prefill,", "prefill,decoding"])
def test_a_word_that_is_no_role_is_refused(words):
    with pytest.raises(StartupError, match=r"--roles: '.*' is none of prefill, decode") as caught:
        config("--roles", words)
    assert caught.value.field == "roles"


@pytest.mark.parametrize("size", ["1KiB", "0"])
def test_staging_memory_has_a_least_size(size):
    with pytest.raises(StartupError, match="--kv-staging-memory must be at least 1048576"):
        config("--kv-staging-memory", size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), with_tokenizer=False)


@pytest.mark.parametrize(
    ("transport", "listen", "hands_out", "takes"),
    [
        ("auto", "unix:/p", [SHARED, GRPC], [SHARED, GRPC]),
        ("grpc", "unix:/p", [GRPC], [GRPC]),
        ("off", "unix:/p", [], []),
        ("auto", None, [], [SHARED, GRPC]),
    ],
)
async def test_the_hello_says_how_blocks_move(
    tmp_path, folder, transport, listen, hands_out, takes
):
    replica = load(folder, kv_transport=transport, listen=listen, roles=("decode",))
    assert (replica.sharer is None) == (not hands_out)
    async with attached(tmp_path, replica) as (_, _, hello):
        assert list(hello.kv_transports) == hands_out
        assert list(hello.pull_transports) == takes
        assert list(hello.roles) == [DECODE]
        assert hello.host_id == boot_id()


class attached:
    """A worker's stream to a scheduler of a few lines."""

    def __init__(self, folder, replica, transfer=None, thread=None):
        self.address = f"{folder}/s"
        self.replica = replica
        self.transfer = transfer
        self.thread = thread

    async def __aenter__(self):
        self.scheduler = FakeScheduler()
        self.listening = listening(self.scheduler, Address(path=self.address))
        await self.listening.__aenter__()
        self.own_thread = None
        if self.thread is None:
            self.thread = self.own_thread = ModelThread(asyncio.get_running_loop())
            self.thread.start()
        link = SchedulerLink(
            address=f"unix:{self.address}",
            info=replace(self.replica.info),
            model_runner=self.replica.model_runner,
            thread=self.thread,
            attached=asyncio.Event(),
            transfer=self.transfer,
        )
        self.task = asyncio.create_task(link.run())
        stream, hello = await self.scheduler.attach()
        return self.scheduler, stream, hello

    async def __aexit__(self, *error):
        self.task.cancel()
        await asyncio.wait((self.task,))
        await self.listening.__aexit__(*error)
        if self.own_thread is not None:
            await asyncio.to_thread(self.own_thread.stop, 5)


async def test_roles_change_for_later_hellos(tmp_path, folder):
    async with attached(tmp_path, load(folder)) as (scheduler, stream, hello):
        assert list(hello.roles) == [PREFILL, DECODE]
        stream.send(set_roles=wire.SetWorkerRoles(roles=[PREFILL]))
        stream.end()
        _, hello = await scheduler.attach(generation=8)
        assert list(hello.roles) == [PREFILL]


@pytest.mark.parametrize("roles", [[], [0], [PREFILL, 77]])
async def test_roles_that_are_none_end_the_stream(tmp_path, folder, roles):
    async with attached(tmp_path, load(folder)) as (scheduler, stream, _):
        stream.send(set_roles=wire.SetWorkerRoles(roles=roles))
        _, hello = await scheduler.attach(generation=8)
        assert list(hello.roles) == [PREFILL, DECODE]


def test_roles_have_the_words_of_the_flag():
    assert [role.value for role in WorkerRole] == ["prefill", "decode"]


async def test_a_load_from_a_worker_without_any_store(tmp_path, folder):
    """--kv-offload is off here."""
    async with (
        peer(folder, f"unix:{tmp_path}/p") as holder,
        peer(folder, f"unix:{tmp_path}/d") as receiver,
        attached(tmp_path, receiver.replica, receiver.transfer, receiver.thread) as (_, stream, _),
    ):
        source = wire.WorkerSource(address=holder.address, worker_id=holder.worker_id)
        order = {
            "names": pack_names(NAMES),
            "blocks": pack_u32(LOADED_BLOCKS),
            "timeout_ms": 20_000,
        }
        stream.send(load_blocks=wire.LoadBlocks(load_id=5, worker=source, **order))
        await holder.has_pull()
        await holder.prefill()
        answer = await stream.next("blocks_loaded")
        assert (answer.load_id, answer.num_blocks) == (5, 10)
        assert answer.outcome == wire.LOAD_OUTCOME_COMPLETE
        assert answer.transport == SHARED
        assert 0 < answer.transfer_us <= answer.time_us
        assert answer.num_bytes == 10 * receiver.replica.info.layout.bytes_per_block
        assert not answer.tiers
        query = wire.BlockDigestQuery(query_id=3, names=pack_names([*NAMES, b"x" * 16]))
        stream.send(block_digest_query=query)
        digests = await stream.next("block_digests")
        assert digests.query_id == 3
        expected = await holder.transfer.digests(NAMES)
        assert digests.digests == b"".join(expected) + bytes(32)
        # A store was never offered: such an order fails, and no more.
        stream.send(load_blocks=wire.LoadBlocks(load_id=6, kvstore_address="x", **order))
        assert (await stream.next("blocks_loaded")).outcome == wire.LOAD_OUTCOME_FAILED
