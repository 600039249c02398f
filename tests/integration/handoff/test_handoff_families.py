"""Hand-offs between real processes of what gpt-oss and DeepSeek cache: blocks of windowed and full
layers, and latents. Tokens and log-probabilities are the bits of one worker."""

import asyncio
import random
from pathlib import Path

import pytest

from pagewire.client.topology_client import topology
from pagewire_shared.sampling.params import SamplingParams
from support.cells.clusters import start_cluster
from support.cells.exact_cells import SOLO, ExactCell, Request
from support.checkpoints.checkpoints import write_tokenizer
from support.checkpoints.fallback_checkpoints import VOCAB
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import MAX_POSITIONS, make_family_checkpoint
from support.traffic.mixed_requests import Mixed, ask_mixed
from support.traffic.streams import eventually_clean

pytestmark = needs_kernels

LENGTHS = (97, 112, 130, 161, 180)
"""Tokens of prompts: long enough for a hand-off, whole blocks and parts of blocks."""


@pytest.mark.parametrize("name", ["gpt-oss", "deepseek-v3"])
def test_tokens_and_log_probabilities_are_those_of_one_worker(tmp_path: Path, name: str) -> None:
    folder = make_family_checkpoint(tmp_path, name)
    write_tokenizer(folder, VOCAB, MAX_POSITIONS)
    dice = random.Random(11)
    prompts = [dice.choices(range(3, VOCAB), k=length) for length in LENGTHS]
    fields = {"temperature": 0.7, "logprobs": 0, "max_tokens": 20, "ignore_eos": True}
    wanted = ExactCell(folder, "float32", num_threads=1)
    alone = [
        wanted.run([Request(tuple(prompt), SamplingParams(seed=n, **fields))], SOLO)[0]
        for n, prompt in enumerate(prompts)
    ]
    requests = [
        Mixed("grpc", "logprobs", prompt, True, {"seed": n, **fields})
        for n, prompt in enumerate(prompts)
    ]
    cluster = start_cluster(
        folder,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        kv_offload="off",
        max_model_len=MAX_POSITIONS,
    )
    try:
        answers = asyncio.run(ask_mixed(cluster, requests))
        [cell] = asyncio.run(topology(cluster.grpc_address))
        asyncio.run(eventually_clean(cluster.grpc_address, 2, 60.0))
    finally:
        cluster.local.stop()
    # On a busy machine some may be given up; most must not.
    assert sum(pair.num_transfers for pair in cell.pairs) > len(LENGTHS) / 2
    assert [answer.choices[0][0] for answer in answers] == [one.token_ids for one in alone]
    assert [answer.logprobs for answer in answers] == [
        [entry.logprob for entry in one.logprobs] for one in alone
    ]
