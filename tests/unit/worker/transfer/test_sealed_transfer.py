"""Layers between workers with a key: honest ones come, and forged ones with right checksums, of ten
kinds, are not taken."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import PagewireError
from pagewire_shared.kv.layers_convert import LayerRange
from pagewire_shared.kv.load import LoadOutcome
from pagewire_worker.offload import metrics
from pagewire_worker.transfer.holder_link import HolderLink
from pagewire_worker.transfer.incoming_layers import IncomingLayers
from pagewire_worker.transfer.layer_seals import LayerSeals
from support.cells.kv_peers import NAMES, peer
from support.checkpoints.checkpoints import make_checkpoint
from support.fakes.kv_fake_holder import FakeHolder, holding, layers_message
from support.processes.forged_blocks import KEY, OLD_KEY, OTHER_KEY
from support.products import WHOLE

LAYOUT = layout_pb2.KvLayout(model_fingerprint=b"m" * 32)
NUM_LAYERS, LAYER_BYTES = 2, 64
SECONDS = 20.0
COUNTS = [20, pytest.param(1020, marks=[*WHOLE, pytest.mark.timeout(300)])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), layers=4, with_tokenizer=False)


@pytest.mark.parametrize("transport", ["grpc", "auto"])
@pytest.mark.parametrize(("keys", "is_taken"), [((KEY,), True), ((OTHER_KEY,), False), ((), False)])
async def test_a_receiver_takes_what_its_cell_has_sealed(
    folder, tmp_path, transport, keys, is_taken
):
    settings = {"transport": transport, "cpu_backend": "torch"}
    async with (
        peer(folder, f"unix:{tmp_path}/p", keys=keys, **settings) as holder,
        peer(folder, f"unix:{tmp_path}/d", keys=(KEY, OLD_KEY), **settings) as receiver,
    ):
        await holder.prefill()
        answer = await receiver.pull_from(holder)
        taken = (LoadOutcome.COMPLETE, len(NAMES)) if is_taken else (LoadOutcome.FAILED, 0)
        assert (answer.outcome, answer.num_blocks) == taken
        assert await receiver.payloads() == (await holder.payloads() if is_taken else {})


async def test_a_receiver_without_a_key_takes_what_is_sealed(folder, tmp_path):
    settings = {"transport": "grpc", "cpu_backend": "torch"}
    async with (
        peer(folder, f"unix:{tmp_path}/p", keys=(KEY,), **settings) as holder,
        peer(folder, f"unix:{tmp_path}/d", **settings) as receiver,
    ):
        await holder.prefill()
        assert (await receiver.pull_from(holder)).outcome is LoadOutcome.COMPLETE


@dataclass
class Sent:
    """Layers as a rogue holder sends them, with a right checksum, and the seal by what it has."""

    names: list[bytes]
    data: bytes
    dice: random.Random
    covered: tuple[int, int, int, int] = (0, 1, 0, NUM_LAYERS)
    key: bytes = KEY
    layout: layout_pb2.KvLayout = field(default_factory=lambda: LAYOUT)

    async def seal(self, data: bytes, names: list[bytes] | None = None, covered=None) -> bytes:
        seals = LayerSeals([self.key], self.layout.SerializeToString())
        return await seals.make(names or self.names, LayerRange(*(covered or self.covered)), [data])

    async def message(self, data: bytes, seal: bytes) -> wire.PullResponse:
        return layers_message(self.names, self.covered, data, seal=seal)

    def other_data(self) -> bytes:
        return self.dice.randbytes(len(self.data))

    def flipped(self, data: bytes) -> bytes:
        at = self.dice.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


async def _with_key(sent: Sent, key: bytes) -> wire.PullResponse:
    sent.key = key
    return await sent.message(sent.data, await sent.seal(sent.data))


async def _payload(sent):
    return await sent.message(sent.flipped(sent.data), await sent.seal(sent.data))


async def _other_name(sent):
    # Another tenant's, or of another adapter: names hold both.
    name = [sent.dice.randbytes(16)]
    return await sent.message(sent.data, await sent.seal(sent.data, name))


async def _other_layout(sent):
    sent.layout = layout_pb2.KvLayout(model_fingerprint=b"o" * 32)
    return await sent.message(sent.data, await sent.seal(sent.data))


async def _replayed(sent):
    data = sent.other_data()
    return await sent.message(data, await sent.seal(data, [sent.dice.randbytes(16)]))


async def _swapped(sent):
    # The two layers of a block in each other's place.
    data = sent.data[LAYER_BYTES:] + sent.data[:LAYER_BYTES]
    return await sent.message(data, await sent.seal(sent.data))


async def _truncated(sent):
    return await sent.message(sent.data, (await sent.seal(sent.data))[:15])


async def _other_range(sent):
    seal = await sent.seal(sent.data, covered=(1, 1, 0, NUM_LAYERS))
    return await sent.message(sent.data, seal)


async def _made_up(sent):
    return await sent.message(sent.data, sent.dice.randbytes(16))


FORGERS: dict[str, Callable] = {
    "payload": _payload,
    "no seal": lambda sent: sent.message(sent.data, b""),
    "made-up seal": _made_up,
    "other cell": lambda sent: _with_key(sent, OTHER_KEY),
    "stale key": lambda sent: _with_key(sent, OLD_KEY),
    "other name": _other_name,
    "other layout": _other_layout,
    "replayed": _replayed,
    "swapped": _swapped,
    "truncated": _truncated,
    "other range": _other_range,
}


@pytest.mark.parametrize("num_each", COUNTS)
async def test_forged_layers_are_not_taken(tmp_path, num_each):
    dice, served, honest = random.Random(4), Counter(), Counter()
    before = metrics.DAMAGED_BLOCKS.labels("seal")._value.get()
    holder, address = FakeHolder(does_wait=False), f"unix:{tmp_path}/rogue"
    link = HolderLink(
        address,
        b"w" * 16,
        LAYOUT,
        may_share_memory=False,
        seals=LayerSeals([KEY], LAYOUT.SerializeToString()),
    )

    async def pulled(sent: Sent, message: wire.PullResponse) -> bool:
        holder.messages = [message]
        incoming = IncomingLayers(1, NUM_LAYERS, LAYER_BYTES)
        try:
            async with aclosing(link.pull(sent.names, SECONDS, incoming, lambda *_: None)) as found:
                return [bytes(one.payload) async for one in found] == [sent.data]
        except PagewireError:
            return False

    async with holding(holder, address):
        for kind, forge in FORGERS.items():
            for number in range(num_each):
                sent = Sent([dice.randbytes(16)], dice.randbytes(NUM_LAYERS * LAYER_BYTES), dice)
                if number % 20 == 0:
                    right = await sent.message(sent.data, await sent.seal(sent.data))
                    honest[kind] += await pulled(sent, right)
                served[kind] += await pulled(sent, await forge(sent))
        await link.close()
    assert not any(served.values()), served
    assert set(honest.values()) == {num_each // 20}
    refused = metrics.DAMAGED_BLOCKS.labels("seal")._value.get() - before
    # A channel that was used before is tried twice.
    assert refused >= len(FORGERS) * num_each
