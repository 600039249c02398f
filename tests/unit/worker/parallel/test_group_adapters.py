"""Adapters of a group: a load that fails in one rank fails by its name and leaves the group, loads
of slots are beside steps, and a rank that is lost in a load ends the group."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.errors import InternalError
from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.families.plan import MlpSpec
from pagewire_worker.loading.loader import Replica
from pagewire_worker.models.registry import read_plan
from pagewire_worker.parallel import rank_links
from pagewire_worker.parallel.adapter_part import part_of_rank
from pagewire_worker.parallel.messages import adapter_arrays, adapter_rows
from pagewire_worker.parallel.plan_shards import shard_plan
from pagewire_worker.parallel.plan_stages import cut_stage
from pagewire_worker.parallel.rank_links import RankLinks, answer_requests, close_link
from pagewire_worker.serving import rank_loop
from support.adapters.model_adapters import MadeAdapter, make_adapter
from support.cells.rank_threads import use_threads
from support.cells.worker_driver import GREEDY, PROMPT, Driver, Running, load
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels

SLOT = 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_checkpoint(
        tmp_path_factory.mktemp("model") / "m", architecture="Qwen3ForCausalLM", layers=2
    )


@pytest.fixture
def adapter(model: Path, tmp_path: Path) -> MadeAdapter:
    return make_adapter(tmp_path / "adapter", model, outer=True)


@pytest.fixture
def replica(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    """A replica of two ranks, which are threads."""
    use_threads(monkeypatch)
    settings = {"enable_lora": True, "max_loras": 2, "kv_cache_memory": 1 << 22}
    replica = load(model, tensor_parallel_size=2, max_num_batched_tokens=64, **settings)
    yield replica
    assert replica.group is not None
    replica.group.close()


def answer(replica: Replica, slot: int | None) -> list[int]:
    driver, sequence = Driver.of(replica), Running(0, PROMPT, GREEDY, 6, adapter_slot=slot)
    driver.finish([sequence], budget=64)
    driver.run_well([])  # frees the slot
    return sequence.output


def held(replica: Replica) -> dict[int, bytes]:
    assert replica.adapters is not None
    return dict(replica.adapters._slots.held)


@needs_kernels
@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (AdapterError("tensor x: broken", "x"), AdapterError, "rank 1: tensor x: broken"),
        (OSError("no memory"), InternalError, "rank 1: OSError: no memory"),
    ],
)
def test_a_load_that_fails_in_one_rank_fails_in_all(
    replica: Replica,
    adapter: MadeAdapter,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    kind: type[Exception],
    text: str,
) -> None:
    bare = answer(replica, None)
    adapter.fill(replica.model_runner, SLOT)
    adapted = answer(replica, SLOT)
    assert adapted != bare
    with monkeypatch.context() as broken:

        def fail(*_: Any) -> None:
            raise fault

        broken.setattr(rank_loop, "fill_slot", fail)
        with pytest.raises(kind, match=f"^{text}$") as caught:
            adapter.fill(replica.model_runner, SLOT)
    assert getattr(caught.value, "field", None) == getattr(fault, "field", None)
    # What was in it is gone, too: a part of it may be overwritten.
    assert held(replica) == {}
    assert answer(replica, None) == bare
    adapter.fill(replica.model_runner, SLOT)
    assert held(replica) == {SLOT: adapter.summary.adapter_id}
    assert answer(replica, SLOT) == adapted


@needs_kernels
def test_an_adapter_that_rank_0_refuses_leaves_the_links_in_order(
    replica: Replica, adapter: MadeAdapter, model: Path, tmp_path: Path
) -> None:
    wide = make_checkpoint(tmp_path / "wide", architecture="Qwen3ForCausalLM", layers=2, hidden=128)
    other = make_adapter(tmp_path / "other", wide)
    with pytest.raises(AdapterError, match=r"^adapter_model.safetensors: tensor .* has shape"):
        other.fill(replica.model_runner, 0)
    adapter.fill(replica.model_runner, 0)
    assert list(held(replica)) == [0]


@needs_kernels
def test_steps_go_on_while_a_rank_loads(
    replica: Replica, adapter: MadeAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    fill_slot = rank_loop.fill_slot

    def slowly(*arguments: Any) -> None:
        began.set()
        assert may_end.wait(20)
        fill_slot(*arguments)

    monkeypatch.setattr(rank_loop, "fill_slot", slowly)
    filling = threading.Thread(target=adapter.fill, args=(replica.model_runner, SLOT))
    filling.start()
    assert began.wait(20)
    answer(replica, None)
    # Rank 0 has its part long since.
    assert held(replica) == {}
    may_end.set()
    filling.join(20)
    assert list(held(replica)) == [SLOT]


@needs_kernels
def test_a_rank_that_does_not_answer_ends_the_group(
    model: Path, adapter: MadeAdapter, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(rank_loop, "fill_slot", lambda *_: may_end.wait(20))
    group = replica.group
    assert group is not None
    for one in group.links._sockets:
        one.settimeout(0.2)
    with pytest.raises(RankLostError, match="rank 1 of 2 is lost: no answer: timed out"):
        adapter.fill(replica.model_runner, SLOT)
    assert isinstance(group.lost.exception(5), RankLostError)
    may_end.set()


def ask(links: RankLinks, request: dict[str, Any]) -> None:
    with open("/dev/null", "rb") as file, links.asked(request, file.fileno()):
        pass


def test_a_link_that_is_closed_is_a_rank_that_is_lost() -> None:
    near, far = socket.socketpair()
    lost: list[tuple[int, str]] = []

    def note(rank: int, how: str) -> RankLostError:
        lost.append((rank, how))
        return RankLostError("gone")

    links = RankLinks([near], note)
    close_link(far)
    for _ in range(2):
        with pytest.raises(RankLostError, match="gone"):
            ask(links, {})
    links.close()
    assert [rank for rank, _ in lost] == [1, 1]


def test_an_answer_may_be_longer_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_links, "_MOST_BYTES", 7)
    near, far = socket.socketpair()
    seen = []

    def fail(request: Any, file: int) -> None:
        seen.append(request)
        raise AdapterError("a long reason", "field")

    thread = threading.Thread(target=answer_requests, args=(far, fail))
    thread.start()
    links = RankLinks([near], lambda rank, how: RankLostError(how))
    with pytest.raises(AdapterError, match="1: a long reason"):
        ask(links, {"slot": 1, "other": [2, 3]})
    links.close()
    thread.join(10)
    assert not thread.is_alive()
    assert seen == [{"slot": 1, "other": [2, 3]}]


def test_rows_go_with_a_message() -> None:
    rows = AdapterRows(torch.tensor([3, -1, 0, 3]), (0, 3))
    (array,) = adapter_arrays(rows)
    found = adapter_rows([np.array(array)])
    assert found is not None
    assert found.used == (0, 3)
    assert found.slots.tolist() == [3, -1, 0, 3]
    assert adapter_rows(adapter_arrays(None)) is None


@pytest.mark.parametrize("size", [2, 4])
def test_the_parts_of_all_ranks_are_the_whole_sum(model: Path, size: int) -> None:
    """up (down x) of a divided matrix, put together as the layer does it."""
    plan = read_plan(model)
    mlp = plan.layers[0].mlp
    assert isinstance(mlp, MlpSpec)
    shards = [shard_plan(plan, RankTopology(rank, size)) for rank in range(size)]

    def parts_of(name: str, inputs: int, outputs: int) -> tuple[AdapterPart, list[AdapterPart]]:
        whole = AdapterPart(torch.randn(4, inputs), torch.randn(outputs, 4), 0.5)
        return whole, [part_of_rank(shard, name, whole) for shard in shards]

    def product(part: AdapterPart, x: torch.Tensor) -> torch.Tensor:
        return x @ part.down.T @ part.up.T

    (down_name, _), (up_name, _) = mlp.down.parts[0], mlp.up.parts[0]
    inner, hidden = mlp.size, plan.hidden_size
    x = torch.randn(3, inner + hidden)
    whole, parts = parts_of(down_name, inner, hidden)
    values = x[:, :inner]
    pairs = zip(parts, values.chunk(size, 1), strict=True)
    summed = sum(product(one, own) for one, own in pairs)
    torch.testing.assert_close(summed, product(whole, values), atol=1e-4, rtol=1e-4)
    whole, parts = parts_of(up_name, hidden, mlp.up.parts[0][1])
    values = x[:, :hidden]
    side_by_side = torch.cat([product(one, values) for one in parts], 1)
    torch.testing.assert_close(side_by_side, product(whole, values), atol=1e-4, rtol=1e-4)
    whole, parts = parts_of(plan.embedding, plan.vocab_size, hidden)
    assert torch.equal(torch.cat([one.down for one in parts], 1), whole.down)
    whole, parts = parts_of("lm_head", hidden, plan.vocab_size)
    assert torch.equal(torch.cat([one.up for one in parts]), whole.up)


def test_a_stage_takes_the_adapters_of_its_layers(model: Path) -> None:
    plan = read_plan(model)
    names = [
        AdapterTargets(cut_stage(plan, RankTopology(stage=stage, num_stages=2)).plan).names
        for stage in range(2)
    ]
    whole = AdapterTargets(plan).names
    assert not names[0].keys() & names[1].keys()
    assert names[0].keys() | names[1].keys() == whole.keys()
    assert plan.embedding in names[0]
    assert "lm_head" in names[1]
