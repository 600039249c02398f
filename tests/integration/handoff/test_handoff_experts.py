"""Hand-offs between a process and a group with whole experts, whose sums are in slices: tokens and
log-probabilities are the bits of one process, and a self-test finds equal blocks."""

import asyncio
import random
from pathlib import Path

import pytest

from pagewire.cli import main
from pagewire.client.topology_client import topology
from pagewire_shared.sampling.params import SamplingParams
from support.cells.clusters import start_cluster
from support.cells.exact_cells import SOLO, ExactCell, Request
from support.cells.worker_flags import with_worker_flags
from support.checkpoints.checkpoints import write_tokenizer
from support.checkpoints.fallback_checkpoints import VOCAB, make_fallback_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS, MAX_POSITIONS
from support.products import WHOLE
from support.traffic.mixed_requests import Mixed, ask_mixed
from support.traffic.streams import eventually_clean

pytestmark = [needs_kernels, pytest.mark.long, pytest.mark.timeout(300)]

LENGTHS = (97, 112, 130, 161, 180)
SLICES = 2


@pytest.mark.parametrize(
    "spread", ["worker-0", pytest.param("worker-1", marks=WHOLE)], ids=["prompts", "tokens"]
)
def test_a_process_and_whole_experts_are_a_pair(
    tmp_path: Path, spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model_type, fields = FAMILY_CHECKPOINTS["qwen3-moe"]
    wider = {"moe_intermediate_size": 32 * SLICES}
    folder = make_fallback_checkpoint(tmp_path / "m", model_type, {**fields, **wider})
    write_tokenizer(folder, VOCAB, MAX_POSITIONS)
    dice = random.Random(11)
    prompts = [dice.choices(range(3, VOCAB), k=length) for length in LENGTHS]
    sampling = {"temperature": 0.7, "logprobs": 0, "max_tokens": 20, "ignore_eos": True}
    wanted = ExactCell(folder, "float32", num_threads=1, sum_slices=SLICES)
    alone = [
        wanted.run([Request(tuple(prompt), SamplingParams(seed=n, **sampling))], SOLO)[0]
        for n, prompt in enumerate(prompts)
    ]
    requests = [
        Mixed("grpc", "logprobs", prompt, True, {"seed": n, **sampling})
        for n, prompt in enumerate(prompts)
    ]
    flags = "--tensor-parallel-size", "2", "--enable-expert-parallel"
    cluster = start_cluster(
        folder,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        sum_slices=SLICES,
        kv_offload="off",
        max_model_len=MAX_POSITIONS,
        before_start=with_worker_flags(*flags, only=spread),
    )
    try:
        assert main(["admin", "selftest", "--server", cluster.grpc_address]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[-1] for line in lines[2:-1]] == ["equal"]
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
