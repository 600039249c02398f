"""Messages between ranks come out as they went in."""

import numpy as np
import torch

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import GroupBatch, StepBatch
from pagewire_worker.parallel.messages import (
    RankCommand,
    decode,
    decode_batch,
    encode,
    encode_batch,
)
from pagewire_worker.parallel.rank_model import as_bits, from_bits


def metadata(first: int) -> AttentionMetadata:
    tables = first + np.arange(2 * 9).reshape(2, 9)
    return AttentionMetadata(np.array([0, 3, 4]), np.array([35, 20]), tables)


def test_a_batch() -> None:
    batch = StepBatch(
        token_ids=torch.tensor([5, 6, 7, 8]),
        positions=torch.tensor([32, 33, 34, 19]),
        slot_mapping=torch.tensor([1, 2, 3, 4]),
        output_rows=torch.tensor([2, 3]),
        attention=metadata(0),
        faults=torch.ones(4, dtype=torch.int64),
        further_groups=(GroupBatch(torch.tensor([9, 8, 7, 6]), metadata(100)),),
    )
    found = decode_batch(decode(bytearray(encode_batch(batch, 16))))
    for name in ("token_ids", "positions", "slot_mapping", "output_rows"):
        assert torch.equal(getattr(found, name), getattr(batch, name))
    assert not found.is_decode
    assert found.faults is not None
    assert found.faults.tolist() == [0] * 4
    for ours, theirs in zip(found.groups, batch.groups, strict=True):
        assert torch.equal(ours.slot_mapping, theirs.slot_mapping)
        assert ours.attention.query_starts.tolist() == theirs.attention.query_starts.tolist()
        assert ours.attention.seq_lens.tolist() == theirs.attention.seq_lens.tolist()
        # 35 positions lie in three blocks.
        assert ours.attention.block_tables.tolist() == theirs.attention.block_tables[:, :3].tolist()


def test_a_call_and_hidden_states() -> None:
    message = decode(encode(RankCommand.CALL, text='{"method": "über"}'))
    assert (message.command, message.text, message.arrays) == (
        RankCommand.CALL,
        '{"method": "über"}',
        (),
    )
    for dtype in (torch.float32, torch.bfloat16):
        hidden = torch.randn(3, 4).to(dtype)
        sent = decode(encode(RankCommand.LOGITS, [as_bits(hidden)]))
        assert torch.equal(from_bits(sent.arrays[0], dtype), hidden)
