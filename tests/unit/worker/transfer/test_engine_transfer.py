"""Blocks that a library moves between two workers, and one that fails, lies or hangs."""

import asyncio
import contextlib

import pytest

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import StartupError, WireError
from pagewire_shared.kv.load import LoadOutcome
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.transfer import holder_link
from pagewire_worker.transfer.pull_convert import accepted_to_message, lent_from_message
from pagewire_worker.transfer_engines import remote_memory
from pagewire_worker.transfer_engines.engine import MAX_DESCRIPTION_BYTES, LentMemory
from pagewire_worker.transfer_engines.making import engine_of
from pagewire_worker.transfer_engines.remote_memory import NUM_BUFFERS
from support.cells.kv_peers import NAMES, eventually, peer
from support.checkpoints.checkpoints import make_checkpoint
from support.fakes.process_engine import ProcessEngine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), layers=4, with_tokenizer=False)


@contextlib.asynccontextmanager
async def pair(folder, tmp_path, *, holds=True, receives=True):
    """Yield (holder, receiver, engine of the holder, engine of the receiver)."""
    ends = [ProcessEngine() if has_one else None for has_one in (holds, receives)]
    async with (
        peer(folder, f"unix:{tmp_path}/p", transport="grpc", engine=ends[0]) as holder,
        peer(folder, f"unix:{tmp_path}/d", transport="grpc", engine=ends[1]) as receiver,
    ):
        yield holder, receiver, *ends


async def moved(holder, receiver, **fields):
    """Pull all blocks; return how they came."""
    answer = await receiver.pull_from(holder, **fields)
    assert answer.outcome is LoadOutcome.COMPLETE
    assert await receiver.payloads() == await holder.payloads()
    await holder.is_clean()
    return answer.transport


@pytest.mark.parametrize("is_early", [True, False])
async def test_layers_are_read_where_they_lie(folder, tmp_path, is_early):
    async with pair(folder, tmp_path) as (holder, receiver, _, engine):
        if is_early:
            pull = receiver.pull_from(holder)
            await holder.has_pull()
        await holder.prefill(40)
        if not is_early:
            pull = receiver.pull_from(holder)
        answer = await pull
        assert (answer.outcome, answer.num_blocks) == (LoadOutcome.COMPLETE, len(NAMES))
        assert answer.transport is KvTransport.NIXL
        assert engine.num_reads
        assert await receiver.payloads() == await holder.payloads()
        await holder.is_clean()


@pytest.mark.parametrize(("holds", "receives"), [(True, False), (False, True)])
async def test_with_one_end_alone_they_are_sent(folder, tmp_path, holds, receives):
    async with pair(folder, tmp_path, holds=holds, receives=receives) as (holder, receiver, *_):
        await holder.prefill()
        assert await moved(holder, receiver) is KvTransport.GRPC


@pytest.mark.parametrize("fault", ["lend", "reach"])
async def test_an_engine_that_cannot_is_passed_over(folder, tmp_path, fault, caplog):
    async with pair(folder, tmp_path) as (holder, receiver, there, here):
        there.can_lend, here.can_reach = fault != "lend", fault != "reach"
        await holder.prefill()
        assert await moved(holder, receiver) is KvTransport.GRPC
        assert await moved(holder, receiver) is KvTransport.GRPC
    assert sum("over gRPC" in record.message for record in caplog.records) == 1


async def test_memory_that_is_lent_anew_takes_the_place_of_what_was(folder, tmp_path):
    async with pair(folder, tmp_path) as (holder, receiver, there, here):
        await holder.prefill()
        assert await moved(holder, receiver) is KvTransport.NIXL
        there.description, holder.source._lent = b"again", None
        pulls = [
            receiver.pull_from(holder, load_id=1 + number, blocks=list(range(first, first + 10)))
            for number, first in enumerate((0, 10))
        ]
        answers = await asyncio.gather(*pulls)
        assert [one.transport for one in answers] == [KvTransport.NIXL] * 2
        assert here.calls == ["reach here", "forget here", "reach again"]


async def test_a_read_that_fails_ends_the_pull_and_the_next_is_sent(
    folder, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(holder_link, "READS_AGAIN_SECONDS", 0.5)
    async with pair(folder, tmp_path) as (holder, receiver, _, engine):
        await holder.prefill()
        engine.reads_left = 0
        answer = await receiver.pull_from(holder)
        assert (answer.outcome, answer.num_blocks) == (LoadOutcome.FAILED, 0)
        assert "could not be read by nixl; blocks come over gRPC" in caplog.text
        assert await moved(holder, receiver) is KvTransport.GRPC
        engine.reads_left = None
        await asyncio.sleep(0.6)
        assert await moved(holder, receiver) is KvTransport.NIXL
        # Over a link that was used before it is tried again at once.
        engine.reads_left = 0
        assert await moved(holder, receiver) is KvTransport.GRPC


async def test_what_comes_late_is_written_into_no_block(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_memory, "READ_SECONDS", 0.1)
    async with pair(folder, tmp_path) as (holder, receiver, _, engine):
        await holder.prefill()
        engine.gate.clear()
        answer = await receiver.pull_from(holder)
        assert (answer.outcome, answer.num_blocks, engine.num_reads) == (LoadOutcome.FAILED, 0, 1)
        # Their blocks are given to somebody else, whose content comes another way.
        assert await moved(holder, receiver, load_id=9) is KvTransport.GRPC
        before, reads = await receiver.payloads(), receiver.transfer._links._reads
        assert len(reads._free) == NUM_BUFFERS - 1
        engine.gate.set()
        await eventually(lambda: len(reads._free) == NUM_BUFFERS)
        assert await receiver.payloads() == before


def lent(**fields):
    description = {"transport": KvTransport.NIXL, "description": b"x", "address": 1, "num_bytes": 9}
    return LentMemory(**{**description, **fields})


def test_lent_memory_over_the_wire():
    message = accepted_to_message(1, None, lent()).accepted
    assert lent_from_message(message, KvTransport.NIXL) == lent()
    assert lent_from_message(wire.PullAccepted(), KvTransport.NIXL) is None
    for made, asked, field in (
        (lent(), None, "lent.transport"),
        (lent(), KvTransport.MOONCAKE, "lent.transport"),
        (
            lent(description=b"x" * (MAX_DESCRIPTION_BYTES + 1)),
            KvTransport.NIXL,
            "lent.description",
        ),
    ):
        with pytest.raises(WireError) as caught:
            lent_from_message(accepted_to_message(1, None, made).accepted, asked)
        assert caught.value.field == field
    unknown = wire.PullAccepted(lent=wire.KvLentMemory(transport=layout_pb2.KV_TRANSPORT_GRPC))
    with pytest.raises(WireError):
        lent_from_message(unknown, KvTransport.NIXL)


@pytest.mark.parametrize("name", ["nixl", "mooncake"])
def test_a_library_needs_leave_and_its_package(name):
    with pytest.raises(StartupError, match="without authentication or encryption") as caught:
        engine_of(name, "host:1", is_insecure=False)
    assert caught.value.field == "kv_transport"
    with pytest.raises(StartupError, match=f"pip install 'pagewire\\[{name}\\]'") as caught:
        engine_of(name, "host:1", is_insecure=True)
    assert caught.value.field == "kv_transport"
    assert engine_of("auto", "host:1", is_insecure=False) is None
