"""The client libraries that people use, each in a process and an environment of its own, against a
whole deployment of the built-in model, whose answers are known."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.cells.clusters import Cluster
from support.oracles.transformers_oracle import Oracle

SCRIPTS = Path(__file__).resolve().parents[2] / "clients"
SCRIPT_SECONDS = 100
TOLERANCE = 2e-3


def environment(home: Path) -> dict[str, str]:
    """Return an environment without settings of the user's own, in which nothing is looked up
    outside."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    offline = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
    return {
        **kept,
        **dict.fromkeys(offline, "1"),
        "HF_HOME": str(home),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
        "NO_PROXY": "127.0.0.1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def run(command: list[str], home: Path, folder: Path = SCRIPTS) -> str:
    """Return what a command prints; it must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=SCRIPT_SECONDS,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def run_script(python: str, name: str, cluster: Cluster, home: Path) -> str:
    """Run a client's script; return the version that it prints."""
    output = run([python, name, f"{cluster.http_url}/v1", cluster.model], home)
    return output.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("openai_client.py", "2."),
        ("langchain_client.py", "1."),
        ("litellm_client.py", "1."),
        ("instructor_client.py", "1."),
    ],
)
def test_client(
    builtin_cluster: Cluster, clients_python: str, tmp_path: Path, name: str, version: str
) -> None:
    assert run_script(clients_python, name, builtin_cluster, tmp_path).startswith(version)


def test_the_newest_openai_client(builtin_cluster: Cluster, tmp_path: Path) -> None:
    version = run_script(sys.executable, "openai_client.py", builtin_cluster, tmp_path)
    assert version.startswith("3.")


@pytest.mark.usefixtures("tools")
def test_tools(builtin_cluster: Cluster, clients_python: str, tmp_path: Path) -> None:
    """The openai package of both major versions, langchain-openai, litellm and instructor."""
    for python in (clients_python, sys.executable):
        run_script(python, "openai_tools.py", builtin_cluster, tmp_path)
    run_script(clients_python, "library_tools.py", builtin_cluster, tmp_path)


@pytest.fixture(scope="module")
def evaluation(
    builtin_cluster: Cluster, clients_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with what lm-eval measured."""
    home, results = (tmp_path_factory.mktemp(name) for name in ("home", "results"))
    settings = {
        "model": builtin_cluster.model,
        "base_url": f"{builtin_cluster.http_url}/v1/completions",
        "tokenizer": builtin_cluster.checkpoint,
        "tokenizer_backend": "huggingface",
        "num_concurrent": 4,
        "max_retries": 1,
    }
    arguments = {
        "--model": "local-completions",
        "--model_args": ",".join(f"{key}={value}" for key, value in settings.items()),
        "--tasks": "pagewire_copying,pagewire_answering",
        "--include_path": ".",
        "--output_path": str(results),
    }
    command = [clients_python, "-m", "lm_eval", "run", "--log_samples"]
    command += [word for pair in arguments.items() for word in pair]
    run(command, home, SCRIPTS / "lm_eval_task")
    return results


def samples(evaluation: Path, task: str) -> list[dict[str, Any]]:
    [path] = evaluation.rglob(f"samples_{task}_*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lm_eval_measures_the_right_accuracy(evaluation: Path) -> None:
    [path] = evaluation.rglob("results_*.json")
    results = json.loads(path.read_text())["results"]
    # Two of the eight answers are marked wrongly on purpose.
    assert results["pagewire_copying"]["acc,none"] == 0.75
    assert results["pagewire_answering"]["exact_match,none"] == 0.75
    wrong = [one["doc_id"] for one in samples(evaluation, "pagewire_copying") if not one["acc"]]
    assert wrong == [4, 7]


def test_lm_eval_reads_the_right_likelihoods(evaluation: Path, builtin_cluster: Cluster) -> None:
    """Those that lm-eval takes out of echoes are what transformers and prompt_logprobs say."""
    oracle = Oracle(builtin_cluster.checkpoint)
    greedy = []
    begins: dict[str, int] = {}
    with httpx.Client(base_url=f"{builtin_cluster.http_url}/v1", timeout=60) as client:
        for context, choice, found, is_greedy in likelihoods(evaluation):
            # lm-eval counts the spaces before a continuation as part of it.
            head = context.rstrip()
            begin = begins[head] if head in begins else len(scored(client, head)[0])
            begins[head] = begin
            ids, entries = scored(client, context + choice)
            told = [entries[p][str(ids[p])] for p in range(begin, len(ids))]
            assert found == pytest.approx(sum(entry["logprob"] for entry in told), abs=TOLERANCE)
            assert is_greedy == all(entry["rank"] == 1 for entry in told)
            rows = oracle.logprobs(ids)
            wanted = sum(rows[p - 1][ids[p]] for p in range(begin, len(ids)))
            assert found == pytest.approx(wanted, abs=TOLERANCE)
            greedy.append(is_greedy)
    assert set(greedy) == {True, False}


def likelihoods(evaluation: Path) -> Iterator[tuple[str, str, float, bool]]:
    """Yield context, continuation, its log-likelihood, and whether each token is the likeliest."""
    for sample in samples(evaluation, "pagewire_copying"):
        requests = sample["arguments"].values()
        for request, [[found, is_greedy]] in zip(requests, sample["resps"], strict=True):
            yield request["arg_0"], request["arg_1"], float(found), is_greedy == "True"


def scored(client: httpx.Client, prompt: str) -> tuple[list[int], list[Any]]:
    """Return the ids of a prompt and what the server says of the log-probability of each."""
    body = {"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 1, "return_token_ids": True}
    [choice] = client.post("/completions", json=body).json()["choices"]
    return choice["prompt_token_ids"], choice["prompt_logprobs"]
