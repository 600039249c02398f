"""Damage and disorder on the wire: what is yielded is what was put, or nothing is."""

import os
import random
from dataclasses import replace

import pytest
from google.protobuf.message import DecodeError

from pagewire_protos.kvstore.v1 import kv_store_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.streams import deserializer, serializer
from pagewire_worker.offload.connector import OutgoingBlock
from pagewire_worker.offload.incoming_blocks import IncomingBlocks
from pagewire_worker.offload.put_batch import cut

NUM_BYTES = 300
DECODE = deserializer(wire.GetResponse)
ENCODE = serializer(wire.GetResponse)


@pytest.fixture(scope="module")
def blocks():
    rng = random.Random(4)
    return [OutgoingBlock(rng.randbytes(16), None, rng.randbytes(NUM_BYTES)) for _ in range(3)]


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr("pagewire_worker.offload.put_batch.MAX_DATA_BYTES", 128)


def messages_of(blocks):
    return [ENCODE(piece) for block in blocks for piece in cut(block)]


def received(messages, blocks):
    """Return what a load of `blocks` yields, and whether it ended before its end."""
    incoming = IncomingBlocks([block.name for block in blocks], NUM_BYTES)
    incoming.set_tier("disk")
    found = []
    for message in messages:
        if incoming.is_over:
            break
        try:
            piece = DECODE(message)
            block = incoming.add_piece(piece) if hasattr(piece, "data") else None
        except (WireError, DecodeError):
            break
        if block is not None:
            found.append((block.name, bytes(block.payload)))
    return found


def contents(blocks):
    return [(block.name, bytes(block.payload)) for block in blocks]


def test_undamaged_everything_comes(blocks, small_pieces):
    assert received(messages_of(blocks), blocks) == contents(blocks)


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_is_never_yielded(blocks, small_pieces, seed):
    rng, num_short = random.Random(seed), 0
    messages = messages_of(blocks)
    for _ in range(600):
        index = rng.randrange(len(messages))
        damaged = bytearray(messages[index])
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        sent = [*messages[:index], bytes(damaged), *messages[index + 1 :]]
        found = received(sent, blocks)
        assert found == contents(blocks)[: len(found)]
        num_short += len(found) < len(blocks)
    # Some bits mean nothing, such as those of a length that is written in more bytes than needed.
    assert num_short > 580


@pytest.mark.parametrize("seed", range(4))
def test_truncated_swapped_and_repeated_chunks(blocks, small_pieces, seed):
    rng = random.Random(seed)
    messages = messages_of(blocks)
    for _ in range(300):
        sent = list(messages)
        first, second = rng.sample(range(len(sent)), 2)
        match rng.randrange(4):
            case 0:
                sent[first] = sent[first][: rng.randrange(len(sent[first]))]
            case 1:
                sent[first], sent[second] = sent[second], sent[first]
            case 2:
                sent.insert(first, sent[second])
            case 3:
                del sent[first]
        found = received(sent, blocks)
        assert found == contents(blocks)[: len(found)]
        assert len(found) < len(blocks)


def test_a_block_under_another_name_is_found_by_its_checksums(blocks):
    """A store that mixes up two blocks, and makes checksums of chunks that fit."""
    first, second = (next(cut(block)) for block in blocks[:2])
    mixed = replace(first, data=second.data, checksum=None)
    assert received([ENCODE(mixed)], blocks) == []


def test_a_tier_that_is_none(blocks):
    with pytest.raises(WireError, match="none of memory, disk, redis"):
        IncomingBlocks([blocks[0].name], NUM_BYTES).set_tier("tape")


def test_missing_names_that_were_not_asked_for(blocks):
    with pytest.raises(WireError, match="not asked for"):
        IncomingBlocks([blocks[0].name], NUM_BYTES).add_missing([os.urandom(16)])


def test_a_message_tells_of_no_more_blocks_than_were_asked_for(blocks):
    incoming = IncomingBlocks([blocks[0].name], NUM_BYTES)
    incoming.set_tier("memory")
    assert incoming.add_whole(blocks[0].name, blocks[0].payload) is not None
    with pytest.raises(WireError, match="after the last one"):
        incoming.add_whole(blocks[1].name, blocks[1].payload)
