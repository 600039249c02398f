"""Clients in another language: Node over the public gRPC API, with no generated code, and npm's
openai package over HTTP."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.tools import npm_install

HERE = Path(__file__).resolve().parent
PROTOS = HERE.parents[2] / "protos"
INSTALL = "apt-get install nodejs npm"


@pytest.fixture(scope="module")
def node_client(tmp_path_factory):
    """Return the client's folder with its packages installed, outside the source tree."""
    folder = tmp_path_factory.mktemp("node") / "client"
    shutil.copytree(HERE / "node_client", folder, ignore=shutil.ignore_patterns("node_modules"))
    npm_install(folder)
    return folder


def test_node_streams_a_chat_and_a_completion_and_embeds(cluster, node_client, require_tool):
    node = require_tool("node", INSTALL)
    done = subprocess.run(
        [node, "client.js", cluster.grpc_address, str(PROTOS)],
        cwd=node_client,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    *streams, embedded, error = lines
    vectors = [embedding["values"] for embedding in embedded["embeddings"]]
    assert [len(vector) for vector in vectors] == [8, 8]
    assert [sum(x * x for x in vector) for vector in vectors] == pytest.approx([1.0, 1.0])
    assert (error["event"], error["code"], error["detail"]) == ("error", "INVALID_ARGUMENT", True)
    for rpc in ("Chat", "Complete"):
        events = [line for line in streams if line["rpc"] == rpc]
        assert (events[0]["event"], events[-1]["event"]) == ("opened", "closed")
        ids = [i for line in events if line["event"] == "delta" for i in line["delta"]["token_ids"]]
        assert len(ids) == 8
        assert sum(line["event"] == "finished" for line in events) == 1
        assert events[-1]["closed"]["usage"]["completion_tokens"] == 8


def run_openai(cluster, folder, node, *what):
    done = subprocess.run(
        [node, "openai.mjs", f"{cluster.http_url}/v1", cluster.model, *what],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"


def test_the_openai_package(builtin_cluster, node_client, require_tool):
    run_openai(builtin_cluster, node_client, require_tool("node", INSTALL))


def test_tools_with_the_openai_package(tools, builtin_cluster, node_client, require_tool):
    run_openai(builtin_cluster, node_client, require_tool("node", INSTALL), "tools")
