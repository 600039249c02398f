"""The command line with real processes: serve, generate, chat, bench and audit as run by hand."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from pagewire.cli import running_server as running
from pagewire.cli.generation import GenerationConfig
from pagewire.cli.running_server import running_server
from pagewire.cli.settings import load as load_settings
from pagewire.cli.settings import make_parser
from support.cells.clusters import Cluster, MakeCluster
from support.fakes.fake_hub import running_hub
from support.processes.processes import Serve, children_of, free_port, is_running, wait_until

TINY_FLAGS = ("--dtype", "float32", "--kv-cache-memory", "16MiB", "--log-level", "warning")


def serve_flags(checkpoint: Path) -> tuple[str, ...]:
    ports = ("--port", str(free_port()), "--grpc-port", str(free_port()))
    return (str(checkpoint), *TINY_FLAGS, *ports)


def run(
    *words: str, text: str | None = None, environ: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pagewire", *words],
        input=text,
        capture_output=True,
        text=True,
        env=environ,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_its_own_curl_line_and_stops_with_0(
    tiny_checkpoint: Path, number: signal.Signals
) -> None:
    with Serve(*serve_flags(tiny_checkpoint)) as serve:
        shown = serve.wait_ready()
        assert "Pagewire is ready" in shown
        _, url, *rest = shlex.split(shown.splitlines()[1])
        body = json.loads(rest[rest.index("-d") + 1])
        response = httpx.post(url, json=body, timeout=30)
        assert response.status_code == 200, response.text
        # A model of random weights may end its answer at once.
        assert response.json()["usage"]["completion_tokens"] > 0
        children = children_of(serve.process.pid)
        assert len(children) == 4
        serve.process.send_signal(number)
        assert serve.finish(20) == 0
        assert [pid for pid in children if is_running(pid)] == []
        assert "Traceback" not in serve.error


def test_kill_9_of_serve_leaves_no_child(tiny_checkpoint: Path) -> None:
    with Serve(*serve_flags(tiny_checkpoint)) as serve:
        serve.wait_ready()
        children = children_of(serve.process.pid)
        assert len(children) == 4
        serve.process.kill()
        # Two seconds is the promise; the margin is for a busy machine.
        wait_until(lambda: not any(map(is_running, children)), 5, "all children gone")


def test_kill_9_while_loading_leaves_no_child(tiny_checkpoint: Path) -> None:
    with Serve(*serve_flags(tiny_checkpoint)) as serve:
        wait_until(lambda: len(children_of(serve.process.pid)) == 4, 20, "children")
        children = children_of(serve.process.pid)
        serve.process.kill()
        wait_until(lambda: not any(map(is_running, children)), 5, "all children gone")


def test_serve_reads_environment_and_file(tiny_checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    port = free_port()
    file.write_text(f"model: [named={tiny_checkpoint}]\nport: 1\nkv-cache-memory: 16MiB\n")
    environ = {"PAGEWIRE_CONFIG": str(file), "PAGEWIRE_PORT": str(port)}
    with Serve("--grpc-port", str(free_port()), environ=environ) as serve:
        assert f":{port} " in serve.wait_ready()
        models = httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=10).json()
        assert [model["id"] for model in models["data"]] == ["named"]


def broken(checkpoint: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return folder


def test_a_broken_checkpoint_is_one_line(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = broken(tiny_checkpoint, tmp_path)
    with Serve(*serve_flags(folder)) as serve:
        pids: set[int] = set()
        while serve.process.poll() is None:
            pids.update(children_of(serve.process.pid))
            time.sleep(0.1)
        assert serve.finish(30) == 1
        errors = [line for line in serve.error.splitlines() if "error" in line]
        assert len(errors) == 1, serve.error
        assert errors[0].startswith("pagewire serve: error: worker-0: ")
        assert "model.safetensors" in errors[0]
        assert "Traceback" not in serve.error
        assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_taken_port_is_one_line(tiny_checkpoint: Path, taken_port: int, flag: str) -> None:
    result = run("serve", *serve_flags(tiny_checkpoint), flag, str(taken_port))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"{flag}: cannot listen on 127.0.0.1:{taken_port}" in result.stderr


def test_generate_from_a_running_server(cluster: Cluster) -> None:
    flags = ("--server", cluster.grpc_address, "--temperature", "0", "--max-tokens", "8")
    result = run("generate", "once upon", *flags)
    assert result.returncode == 0, result.stderr
    body = {"model": cluster.model, "prompt": "once upon", "max_tokens": 8, "temperature": 0}
    response = httpx.post(f"{cluster.http_url}/v1/completions", json=body, timeout=30).json()
    assert result.stdout == response["choices"][0]["text"] + "\n"
    assert result.stderr == ""
    assert run("generate", "-", *flags, text="once upon").stdout == result.stdout
    assert run("generate", *flags, text="once upon").stdout == result.stdout


def test_a_server_at_the_default_port_is_used_where_it_fits(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(*words: str) -> tuple[str, str] | None:
        parser = make_parser("generate", GenerationConfig, "")
        return running_server(load_settings(parser, GenerationConfig, words)[0])

    monkeypatch.setattr(running, "DEFAULT_SERVER", cluster.grpc_address)
    here = (cluster.grpc_address, cluster.model)
    assert found() == here
    assert found("--model", cluster.model, "--temperature", "0") == here
    assert found("--model", "another/model") is None
    assert found("--no-use-running") is None
    # A flag that shapes a deployment asks for one of its own.
    assert found("--dtype", "float32") is None
    monkeypatch.setattr(running, "DEFAULT_SERVER", f"127.0.0.1:{free_port()}")
    assert found() is None
    assert capsys.readouterr() == ("", "")


def test_a_model_is_pulled_and_listed(tmp_path: Path, tiny_checkpoint: Path) -> None:
    with running_hub("org/tiny", tiny_checkpoint) as url:
        environ = {**os.environ, "HF_ENDPOINT": url, "HF_HUB_CACHE": str(tmp_path)}
        pulled = run("pull", "org/tiny", environ=environ)
        assert pulled.returncode == 0, pulled.stderr
        assert pulled.stdout.endswith("pagewire serve org/tiny\n")
        missing = run("pull", "org/other", environ=environ)
    assert missing.returncode == 1
    assert "404" in missing.stderr.splitlines()[-1]
    assert "org/tiny" in run("models", environ=environ).stdout
    without_hub = {**environ, "HF_HUB_OFFLINE": "1"}
    # Names that are not there end at once; the cached one is used without a hub.
    began = time.monotonic()
    refused = run("serve", "org/other", environ=without_hub)
    assert "HF_HUB_OFFLINE is set" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert time.monotonic() - began < 30
    flags = ("--max-tokens", "4", "--temperature", "0", *TINY_FLAGS)
    told = run("generate", "once upon", "--model", "org/tiny", *flags, environ=without_hub)
    assert told.returncode == 0, told.stderr


def test_either_port_and_a_url_name_a_server(cluster: Cluster) -> None:
    asked = ("--temperature", "0", "--max-tokens", "4")
    http = cluster.http_url.removeprefix("http://")
    shown = {
        run("generate", "once upon", "--server", server, *asked).stdout
        for server in (cluster.grpc_address, cluster.http_url, http)
    }
    assert len(shown) == 1
    assert shown != {""}
    assert run("admin", "audit", "--server", cluster.http_url).returncode == 0
    # Only an HTTP port right before the gRPC port is found: this one was drawn.
    bench = run("bench", "--base-url", f"http://{cluster.grpc_address}", "--num-prompts", "2")
    assert "does not speak HTTP" in bench.stderr
    assert bench.stderr.count("\n") == 1


def test_generate_starts_a_deployment_of_its_own(cluster: Cluster) -> None:
    flags = ("--temperature", "0", "--max-tokens", "8")
    own = run("generate", "once upon", "--model", str(cluster.checkpoint), *TINY_FLAGS, *flags)
    assert own.returncode == 0, own.stderr
    running = run("generate", "once upon", "--server", cluster.grpc_address, *flags)
    assert own.stdout == running.stdout


def test_generate_without_a_server_there(cluster: Cluster) -> None:
    result = run("generate", "x", "--server", f"127.0.0.1:{free_port()}")
    assert result.returncode == 1
    assert "no server answers" in result.stderr
    assert result.stderr.count("\n") == 1


def test_generate_with_an_unknown_model(cluster: Cluster) -> None:
    result = run("generate", "x", "--server", cluster.grpc_address, "--model", "nobody")
    assert result.returncode == 1
    assert "nobody" in result.stderr


def test_chat_keeps_the_conversation(cluster: Cluster) -> None:
    flags = ("--server", cluster.grpc_address, "--temperature", "0", "--max-tokens", "6")
    both = run("chat", *flags, text="one\ntwo\n")
    assert both.returncode == 0, both.stderr
    forgotten = run("chat", *flags, text="one\n/clear\ntwo\n/exit\nthree\n")
    assert forgotten.returncode == 0, forgotten.stderr
    assert both.stdout != forgotten.stdout
    alone = run("chat", *flags, text="two\n")
    assert forgotten.stdout.endswith(alone.stdout)
    lines = run("chat", *flags, text='/temprature\n"""\ntwo\n"""\n/stats\n')
    assert lines.stdout == alone.stdout
    assert "/temprature is no command" in lines.stderr
    assert "tokens" in lines.stderr


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_bench_counts_what_it_asked_for(cluster: Cluster, endpoint: str) -> None:
    flags = ("--base-url", cluster.http_url, "--num-prompts", "6", "--max-concurrency", "3")
    lengths = ("--input-len", "20", "--output-len", "5", "--endpoint", endpoint)
    result = run("bench", *flags, *lengths, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["num_requests"] == 6
    assert report["num_failed"] == 0
    assert report["num_output_tokens"] == 30
    assert report["num_prompt_tokens"] > 0
    assert report["ttft"]["percentiles"]["p50"] > 0
    table = run("bench", *flags, *lengths, "--request-rate", "50")
    assert "TTFT" in table.stdout
    assert "output tokens     30" in table.stdout


def test_bench_says_who_does_not_answer() -> None:
    result = run("bench", "--base-url", f"http://127.0.0.1:{free_port()}")
    assert result.returncode == 1
    assert "no server answers" in result.stderr
    assert result.stderr.count("\n") == 1


def test_audit_of_an_idle_deployment(cluster: Cluster) -> None:
    result = run("admin", "audit", "--server", cluster.grpc_address)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "idle: nothing is held" in result.stdout
    shown = run("admin", "audit", "--server", cluster.grpc_address, "--json")
    (cell,) = json.loads(shown.stdout)
    assert len(cell["pools"]) == len(cell["workers"]) == len(cell["frontends"]) == 1
    assert cell["findings"] == []


def test_the_prefix_cache_can_be_reset(cluster: Cluster) -> None:
    server = ("--server", cluster.grpc_address)
    first = run("admin", "reset-prefix-cache", *server)
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.startswith("forgot ")
    again = run("admin", "reset-prefix-cache", *server)
    assert again.stdout == "forgot 0 cached blocks\n"
    unknown = run("admin", "reset-prefix-cache", *server, "--model", "nope")
    assert unknown.returncode == 1
    assert unknown.stderr == "pagewire admin: error: no worker serves 'nope'\n"


def test_a_role_by_its_name_becomes_that_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pagewire", "kvstore", "--listen", f"unix:{tmp_path / 's'}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PAGEWIRE_LOG_LEVEL": "warning"},
    )
    try:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"pagewire_kvstore" in command
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_deployment_with_keys_wants_one(make_cluster: MakeCluster) -> None:
    guarded = make_cluster(api_key=("sk-secret admin", "sk-plain"))
    server = ("--server", guarded.grpc_address)
    refused = run("admin", "audit", *server)
    assert refused.returncode == 1
    assert "an API key is required" in refused.stderr
    assert "--server-api-key" in refused.stderr
    bench = run("bench", "--base-url", guarded.http_url)
    assert "wants an API key: give it --api-key" in bench.stderr
    plain = run("admin", "audit", *server, "--server-api-key", "sk-plain")
    assert plain.returncode == 1
    assert "no scope 'admin'" in plain.stderr
    key = ("--server-api-key", "sk-secret")
    assert run("admin", "audit", *server, *key).returncode == 0
    assert run("admin", "reset-prefix-cache", *server, *key).returncode == 0
    said = run("generate", "x", *server, *key, "--max-tokens", "2", "--temperature", "0")
    assert said.returncode == 0, said.stderr


def test_the_demonstration_of_a_kill() -> None:
    done = run("demo", "kill")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    facts = dict(line.split("  ", 1) for line in done.stderr.splitlines() if "  " in line)
    assert facts["killed"].strip().startswith("worker-0 (process ")
    assert facts["recoveries"].strip() == "1"
    assert ": equal: 110 tokens" in facts["compared"]
