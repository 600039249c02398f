"""schemathesis, which makes requests from /openapi.json, good and bad, finds no answer that the
document does not describe and no bad request that is taken."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.cells.clusters import Cluster, start_cluster
from support.products import WHOLE

RUN_SECONDS = 280
# All but positive_data_acceptance: most bounds depend on the model or on other fields, and are in
# docs/limits.md and not in the document.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
)


@pytest.fixture(scope="module")
def short(tiny_checkpoint: Path) -> Iterator[Cluster]:
    """A deployment with a short context: what asks for all of it ends soon."""
    cluster = start_cluster(tiny_checkpoint, max_model_len=32)
    yield cluster
    cluster.local.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("num_examples", [4, pytest.param(8, marks=WHOLE)])
def test_schemathesis_finds_nothing(
    short: Cluster, clients_python: str, tmp_path: Path, num_examples: int
) -> None:
    document = httpx.get(f"{short.http_url}/openapi.json").json()
    num_operations = sum(len(operations) for operations in document["paths"].values())
    program = str(Path(clients_python).with_name("st"))
    options = {
        "--checks": ",".join(CHECKS),
        "--phases": "coverage,fuzzing",
        "--max-examples": str(num_examples),
        "--seed": "1",
        "--request-timeout": "20",
        "--warnings": "off",
    }
    done = subprocess.run(
        [
            program,
            "run",
            f"{short.http_url}/openapi.json",
            "--no-color",
            "--continue-on-failure",
            *(text for option in options.items() for text in option),
        ],
        cwd=tmp_path,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert f"Tested: {num_operations}" in done.stdout
    assert "Traceback" not in short.log
