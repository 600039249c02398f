"""Adapters in a running deployment: each request has the answer of the content that it began with,
whatever is loaded, unloaded or killed meanwhile."""

import asyncio
import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from integration.adapters.adapter_cells import answer, load, stream, unload

from pagewire import LLM, LoRARequest, SamplingParams
from pagewire.client.topology_client import topology
from pagewire_shared.adapters.adapter_folder import check_adapter
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_shared.errors import PagewireError
from pagewire_worker.link.adapter_client import fetch_adapter
from support.adapters.hostile.besiege import (
    GOOD,
    Besieged,
    GoodStreams,
    Siege,
    grown,
    holdings,
)
from support.adapters.model_adapters import make_adapter
from support.cells.clusters import TINY, Cluster, start_cluster
from support.cells.more_workers import MoreWorker, scheduler_address
from support.processes.processes import free_port, wait_until
from support.processes.role_processes import Place, RoleProcess

NUM_SLOTS = 2
PATIENCE_SECONDS = 60.0
NUM_ADAPTERS = 33
NUM_HOSTILE = 300
SCALE = 3.0
"""Large enough that each adapter answers in a way of its own."""


@pytest.fixture(scope="module")
def folders(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Adapters that all answer differently."""
    root = tmp_path_factory.mktemp("adapters")
    made = [
        make_adapter(root / f"a{seed}", tiny_checkpoint, seed=seed, scale=SCALE)
        for seed in range(NUM_ADAPTERS)
    ]
    return [one.folder for one in made]


@pytest.fixture(scope="module")
def pair(tiny_checkpoint: Path, folders: list[Path]) -> Iterator[Cluster]:
    """Two workers with a KV store."""
    cluster = start_cluster(
        tiny_checkpoint,
        num_workers=2,
        enable_lora=True,
        lora_modules=[f"own0={folders[0]}", f"own1={folders[1]}", f"own2={folders[2]}"],
        lora_roots=[str(folders[0].parent)],
        max_loras=NUM_SLOTS,
        dtype="float32",
    )
    yield cluster
    cluster.local.stop()


@pytest.fixture(scope="module")
def expected(pair: Cluster) -> list[list[int]]:
    """The answers of the first three adapters, which differ, also from the model's own."""
    answers = [answer(pair, f"own{number}")[0] for number in range(3)]
    own = answer(pair, pair.model)[0]
    assert len({tuple(one) for one in (*answers, own)}) == 4
    return answers


def test_adapters_are_models_with_a_parent(pair: Cluster, folders: list[Path]) -> None:
    listed = {one["id"]: one for one in httpx.get(f"{pair.http_url}/v1/models").json()["data"]}
    assert set(listed) == {pair.model, "own0", "own1", "own2"}
    assert (listed["own1"]["parent"], listed["own1"]["root"]) == (pair.model, str(folders[1]))
    assert "parent" not in listed[pair.model]
    one = httpx.get(f"{pair.http_url}/v1/models/own1").json()
    assert one == listed["own1"]


def test_a_name_that_is_loaded_again_gives_no_stale_answer(
    pair: Cluster, folders: list[Path], expected: list[list[int]]
) -> None:
    for turn in range(18):
        content = turn * 2 % 3
        said = load(pair, "again", folders[content], load_inplace=True)
        assert said.text == "Success: LoRA adapter 'again' added successfully."
        for _ in range(2):
            assert answer(pair, "again") == [expected[content]], f"a stale answer in turn {turn}"
    assert unload(pair, "again").status_code == 200


def test_a_stream_keeps_its_content_through_reload_unload_and_kill(
    pair: Cluster, folders: list[Path]
) -> None:
    whole = answer(pair, "own0", 300)[0]
    load(pair, "moving", folders[0])
    got: list[int] = []
    num_killed = 0
    for ids in stream(pair, "moving", 300):
        got += ids
        if len(got) >= 10 and not num_killed:
            assert load(pair, "moving", folders[1], load_inplace=True).status_code == 200
            assert unload(pair, "moving").status_code == 200
            # The one that has the stream is among them.
            for pid in pair.processes["worker"]:
                os.kill(pid, signal.SIGKILL)
                num_killed += 1
    assert num_killed == 2
    assert got == whole


@pytest.mark.long
def test_a_worker_that_joins_serves_what_it_has_never_seen(
    pair: Cluster, folders: list[Path], expected: list[list[int]], tmp_path: Path
) -> None:
    def is_alone(worker: MoreWorker) -> bool:
        [cell] = asyncio.run(topology(pair.grpc_address))
        return [one.kv_endpoint for one in cell.workers] == [worker.address]

    assert load(pair, "unseen", folders[5]).status_code == 200
    with MoreWorker(pair, tmp_path) as joined:
        joined.wait_ready()
        for pid in pair.processes["worker"]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_alone(joined), PATIENCE_SECONDS, "only the new worker is there")
        answers = [answer(pair, name) for name in ("unseen", "own1")]
        assert joined.process.poll() is None, joined.log
    assert answers == [answer(pair, "unseen"), [expected[1]]]
    assert answers[0][0] not in expected


def test_choices_and_beams_use_the_adapter(pair: Cluster, expected: list[list[int]]) -> None:
    choices = answer(pair, "own1", n=3)
    assert choices == [expected[1]] * 3
    sampled = [answer(pair, name, n=3, temperature=1.0, seed=5) for name in ("own1", "own1")]
    assert sampled[0] == sampled[1]
    assert sampled[0] != answer(pair, pair.model, n=3, temperature=1.0, seed=5)
    beams = [answer(pair, name, n=2, use_beam_search=True) for name in ("own1", pair.model)]
    assert beams[0] != beams[1]


def test_more_adapters_than_slots(pair: Cluster, folders: list[Path]) -> None:
    for number, folder in enumerate(folders):
        assert load(pair, f"many{number}", folder).status_code == 200
    names = [f"many{number}" for number in range(NUM_ADAPTERS)]
    with ThreadPoolExecutor(NUM_ADAPTERS) as pool:
        together = list(pool.map(lambda name: answer(pair, name, 6), names))
    alone = [answer(pair, name, 6) for name in names]
    assert together == alone
    assert len({tuple(one[0]) for one in alone}) > NUM_ADAPTERS // 2


@pytest.fixture(scope="module")
def besieged(
    pair: Cluster, folders: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Besieged:
    """The two workers, with a good adapter, and one that calls may not load."""
    root = folders[0].parent.resolve()
    outside = tmp_path_factory.mktemp("outside").resolve() / "good"
    for folder in (root / GOOD, outside):
        shutil.copytree(folders[0], folder)
    assert load(pair, GOOD, root / GOOD).status_code == 200
    return Besieged(pair, root, outside)


def test_hostile_adapters_are_refused(besieged: Besieged) -> None:
    streams, siege = GoodStreams(besieged.cluster), Siege(besieged)
    cases = besieged.cases()
    with streams.running():
        siege.send(cases[::23])
    assert siege.faults + streams.faults == []
    assert streams.num_whole > 2


@pytest.mark.long
@pytest.mark.whole
def test_hundreds_of_hostile_adapters_leave_no_trace(besieged: Besieged) -> None:
    streams, siege = GoodStreams(besieged.cluster), Siege(besieged)
    cases = besieged.cases()
    assert len({one.title for one in cases}) == len(cases) >= NUM_HOSTILE
    with streams.running():
        siege.send(cases)
        before = holdings(besieged.cluster)
        siege.send(cases)
    assert siege.faults + streams.faults + grown(before, holdings(besieged.cluster)) == []


def test_errors_of_calls(pair: Cluster, folders: list[Path]) -> None:
    root = folders[0].parent
    (root / "out").symlink_to("/usr")
    for name, path, status, text in (
        ("x", "/usr/lib", 400, "lies below none"),
        ("x", root / "out" / "lib", 400, "lies below none"),
        ("x", "relative", 400, "absolute"),
        ("x", root / "nothing", 404, "No adapter found for"),
        (pair.model, folders[0], 400, "name of a model"),
        ("own0", folders[0], 400, "has already been loaded"),
        ("", folders[0], 400, "Both 'lora_name' and 'lora_path' must be provided."),
    ):
        refused = load(pair, name, path)  # type: ignore[arg-type]
        assert (refused.status_code, text in refused.text) == (status, True), refused.text
    assert unload(pair, "nobody").status_code == 404
    assert unload(pair, "").status_code == 400


def test_a_stream_gets_its_adapter_from_the_store_when_its_frontend_is_gone(
    pair: Cluster, folders: list[Path], tmp_path: Path
) -> None:
    def is_kept() -> bool:
        with contextlib.suppress(PagewireError):
            return asyncio.run(fetch_adapter(store, adapter_id, AdapterBounds())) is not None
        return False

    def is_answered() -> bool:
        with contextlib.suppress(AssertionError):
            return bool(answer(other, "lent", 1))
        return False

    store = pair.local._specs["kvstore"].arguments[1]
    adapter_id = check_adapter(folders[7], AdapterBounds()).adapter_id
    assert load(pair, "lent", folders[7]).status_code == 200
    wait_until(is_kept, PATIENCE_SECONDS, "the frontend has written it to the store")
    whole = answer(pair, "lent", 150)[0]
    flags = ["--model", f"{pair.model}={pair.checkpoint}", "--port", str(free_port())]
    flags += ["--scheduler", scheduler_address(pair), "--grpc-port", "0", "--enable-lora"]
    flags += ["--lora-modules", f"lent={folders[7]}", "--lora-store", str(tmp_path)]
    with RoleProcess("second", "frontend", Place(""), flags) as second:
        second.wait_ready(PATIENCE_SECONDS)
        other = dataclasses.replace(pair, http_url=f"http://127.0.0.1:{flags[3]}")
        # With workers there, it reads the adapter to compare its shapes with the model's.
        wait_until(is_answered, PATIENCE_SECONDS, "the second frontend answers")
        # Workers on other machines do not see the folder of this frontend, either.
        for file in tmp_path.rglob("adapter_*"):
            file.unlink()
        got: list[int] = []
        is_killed = False
        for ids in stream(other, "lent", 150):
            got += ids
            if len(got) >= 10 and not is_killed:
                is_killed = True
                for pid in pair.processes["frontend"] + pair.processes["worker"]:
                    os.kill(pid, signal.SIGKILL)
    assert is_killed
    assert got == whole


@pytest.mark.long
def test_llm_takes_lora_requests(tiny_checkpoint: Path, folders: list[Path]) -> None:
    params = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
    first, second = (LoRARequest("same", n + 1, str(folders[n])) for n in range(2))
    with LLM(str(tiny_checkpoint), **TINY, enable_lora=True, max_lora_rank=8) as llm:
        own, *adapted = (
            llm.generate("one two", params, use_tqdm=False, lora_request=one)[0]
            .outputs[0]
            .token_ids
            for one in (None, first, second)
        )
        assert len({tuple(ids) for ids in (own, *adapted)}) == 3
        mixed = llm.generate(
            ["one two"] * 3, params, use_tqdm=False, lora_request=[second, None, first]
        )
        assert [one.outputs[0].token_ids for one in mixed] == [adapted[1], own, adapted[0]]
        vectors = [llm.embed("one", use_tqdm=False, lora_request=one)[0] for one in (None, first)]
        assert vectors[0].outputs.embedding != vectors[1].outputs.embedding
        with pytest.raises(PagewireError, match="No adapter found for /nothing"):
            llm.generate("a", params, use_tqdm=False, lora_request=LoRARequest("no", 9, "/nothing"))


@pytest.mark.long
def test_prefill_and_decode_workers_both_load_it(
    tiny_checkpoint: Path, folders: list[Path], expected: list[list[int]]
) -> None:
    cluster = start_cluster(
        tiny_checkpoint,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        enable_lora=True,
        lora_modules=[f"a={folders[0]}", f"b={folders[1]}"],
        max_loras=1,
        dtype="float32",
    )
    try:
        with ThreadPoolExecutor(6) as pool:
            names = ["a", "b", "a", "b", "a", "b"]
            answers = list(pool.map(lambda name: answer(cluster, name)[0], names))
        assert answers == [expected[0], expected[1]] * 3
    finally:
        cluster.local.stop()
