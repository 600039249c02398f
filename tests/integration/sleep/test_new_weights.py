"""Real processes that exchange their weights: tokens, prefixes, streams that run, tensors sent."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from safetensors.torch import load_file

from pagewire import LLM, SamplingParams
from pagewire.cli import admin
from pagewire.client.weights_client import stream_weights, update_weights
from pagewire_shared.errors import InvalidRequestError
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.sleep.random_updates import Versions, make_versions, requests_of, run_rounds, start
from support.traffic.streams import Stream, completion, eventually_clean, follow_all

PROMPT = list(range(20, 70))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def paths(folder: Path) -> dict[str, str]:
    return make_versions(folder)


@pytest.fixture(scope="module")
def cell(folder: Path, paths: dict[str, str]) -> Iterator[Cluster]:
    """Two workers, of the first version."""
    cluster = start(paths, weights_dir=str(folder / "inbox"))
    yield cluster
    cluster.local.stop()


def stream_of(cluster: Cluster, num_tokens: int = 12) -> Stream:
    request = completion(cluster.model, PROMPT, num_tokens)
    (stream,) = asyncio.run(follow_all(cluster.grpc_address, [request]))
    assert stream.error == ""
    return stream


def post(cluster: Cluster, **body: object) -> httpx.Response:
    return httpx.post(f"{cluster.http_url}/update_weights", json=body, timeout=60)


def test_streams_are_of_one_version_while_weights_change(
    cell: Cluster, paths: dict[str, str]
) -> None:
    async def run() -> Versions:
        versions = await run_rounds(cell, paths, 0, seed=3)
        versions.dice.seed(5)
        for path in ("v1", "v2"):
            following = asyncio.create_task(versions.round(0))
            await asyncio.sleep(0.05)
            await update_weights(cell.grpc_address, paths[path], version=path)
            await following
        return versions

    versions = asyncio.run(run())
    assert sum(versions.served.values()) == 12
    assert len(versions.served) > 1
    assert versions.served[""] == 0, "wait ends no stream"


def test_folders_that_do_not_do_change_nothing(
    cell: Cluster, paths: dict[str, str], tmp_path: Path
) -> None:
    before = stream_of(cell)
    assert stream_of(cell).token_ids == before.token_ids
    torn = shutil.copytree(paths["v1"], tmp_path / "torn")
    data = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(data[: len(data) // 2])
    for path in (str(tmp_path / "nowhere"), str(torn)):
        answer = post(cell, path=path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "path")
    after = stream_of(cell)
    assert (after.token_ids, after.version) == (before.token_ids, before.version)


def test_http_and_the_command_give_versions(
    cell: Cluster, paths: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = post(cell, path=paths["v1"], version="step-1", mode="wait", model=cell.model)
    assert [one["version"] for one in answer.json()["workers"]] == ["step-1", "step-1"]
    body = {"model": cell.model, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    url = f"{cell.http_url}/v1/completions"
    assert httpx.post(url, json=body, timeout=60).json()["usage"]["weights_version"] == "step-1"
    server = ["--server", cell.grpc_address]
    assert admin.run("admin", ["update-weights", paths["v2"], "--version", "s2", *server]) == 0
    assert capsys.readouterr().out.count("has weights s2") == 2
    assert admin.run("admin", ["topology", *server]) == 0
    assert capsys.readouterr().out.count(" s2 ") == 2
    assert stream_of(cell).version == "s2"
    for wrong, field in (
        ({"path": paths["v1"], "mode": "keep"}, "mode"),
        ({"path": "here"}, "path"),
        ({}, "path"),
        ({"path": paths["v1"], "timeout": 0}, "timeout"),
    ):
        answer = post(cell, **wrong)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_tensors_are_the_same_as_their_folder(
    cell: Cluster, paths: dict[str, str], folder: Path
) -> None:
    asyncio.run(update_weights(cell.grpc_address, paths["v1"]))
    expected = stream_of(cell).token_ids
    asyncio.run(update_weights(cell.grpc_address, paths["v2"]))
    tensors = load_file(Path(paths["v1"]) / "model.safetensors")
    workers = asyncio.run(stream_weights(cell.grpc_address, iter(tensors.items()), version="sent"))
    assert [one.weights_version for one in workers] == ["sent", "sent"]
    stream = stream_of(cell)
    assert (stream.token_ids, stream.version) == (expected, "sent")
    asyncio.run(stream_weights(cell.grpc_address, tensors.items(), version="sent-2"))
    inbox = folder / "inbox"
    (kept,) = inbox.iterdir()
    assert inbox.stat().st_mode & 0o777 == kept.stat().st_mode & 0o777 == 0o700
    few = list(tensors.items())[:-1]
    with pytest.raises(InvalidRequestError, match="lacks the tensor"):
        asyncio.run(stream_weights(cell.grpc_address, few))
    assert [kept] == list(inbox.iterdir())
    assert stream_of(cell).version == "sent-2"
    asyncio.run(eventually_clean(cell.grpc_address, 2))


@pytest.mark.long
def test_another_process_scores_sampled_tokens_to_the_same_bits(
    cell: Cluster, paths: dict[str, str], tmp_path: Path
) -> None:
    """Log-probabilities of a rollout are those that a scorer with the same weights computes."""
    asyncio.run(update_weights(cell.grpc_address, paths["v1"], version="rollout"))
    rollout = {"model": cell.model, "prompt": PROMPT, "max_tokens": 16, "temperature": 1.0}
    rollout |= {"seed": 7, "logprobs": 0, "return_token_ids": True, "ignore_eos": True}
    url = f"{cell.http_url}/v1/completions"
    answer = httpx.post(url, json=rollout, timeout=60).json()
    (choice,) = answer["choices"]
    assert answer["usage"]["weights_version"] == "rollout"
    assert choice["prompt_token_ids"] == PROMPT
    sampled, values = choice["token_ids"], choice["logprobs"]["token_logprobs"]
    scorer = start_cluster(Path(paths["v1"]), max_model_len=256)
    try:
        score = {"model": scorer.model, "prompt": PROMPT + sampled, "max_tokens": 1}
        score |= {"prompt_logprobs": 0, "temperature": 0}
        url = f"{scorer.http_url}/v1/completions"
        (scored,) = httpx.post(url, json=score, timeout=60).json()["choices"]
    finally:
        scorer.local.stop()
    entries = scored["prompt_logprobs"][len(PROMPT) :]
    found = [one[str(token)]["logprob"] for one, token in zip(entries, sampled, strict=True)]
    assert found == values


@pytest.mark.long
def test_llm_takes_folders_and_tensors(paths: dict[str, str], tmp_path: Path) -> None:
    first = make_checkpoint(tmp_path / "first", hidden=128, seed=1)
    greedy = SamplingParams(temperature=0.0, max_tokens=8)
    settings = {"dtype": "float32", "kv_cache_memory": "16MiB", "max_model_len": 256}
    with LLM(str(first), **settings) as llm:

        def tokens() -> list[int]:
            (output,) = llm.generate(
                prompt_token_ids=PROMPT, sampling_params=greedy, use_tqdm=False
            )
            return list(output.outputs[0].token_ids)

        before = tokens()
        llm.update_weights(paths["v1"])
        by_path = tokens()
        llm.update_weights("")
        assert tokens() == before != by_path
        tensors = load_file(Path(paths["v1"]) / "model.safetensors")
        llm.update_weights(tensors=tensors.items(), version="step")
        (output,) = llm.generate(prompt_token_ids=PROMPT, sampling_params=greedy, use_tqdm=False)
        assert list(output.outputs[0].token_ids) == by_path
        assert output.metrics is not None
        assert output.metrics.weights_version == "step"
        with pytest.raises(InvalidRequestError, match="a path or give tensors"):
            llm.update_weights()


@pytest.mark.long
def test_random_updates_and_kills(folder: Path) -> None:
    paths = make_versions(folder / "random")
    cluster = start(paths)
    try:
        versions = asyncio.run(run_rounds(cluster, paths, 16, seed=1))
        assert versions.counts["wait"] > 4
        assert versions.counts["kill worker"] + versions.counts["kill scheduler"] > 1
        assert requests_of(cluster.model, versions.dice)
    finally:
        cluster.local.stop()
