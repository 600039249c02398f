"""Pins, bill of materials and audit of the images' packages; a server of the test is asked."""

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from support.processes.processes import free_port
from support.source_tree import ROOT


def inventory(*words: str | Path) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "docker" / "inventory.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Knows a fault of one package."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            purls = [query["package"]["purl"] for query in asked["queries"]]
            known = {"vulns": [{"id": "X-1"}, {"id": "X-2"}]}
            results: list[Any] = [known if one == "pkg:pypi/bad@1.0" else {} for one in purls]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"results": results}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


def test_constraints_are_what_is_installed(tmp_path: Path) -> None:
    assert inventory("constraints", tmp_path / "c.txt")[0] == 0
    lines = (tmp_path / "c.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for name in ("grpcio", "fastapi", "torch", "redis", "starlette", "cryptography"):
        assert pins[name] == metadata.version(name).partition("+")[0]
    assert not {"pagewire", "pytest", "ruff", "mypy"} & set(pins)


def test_the_bill_names_each_package_once(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("Foo_Bar==1.0+cpu\nbaz==2\n# nothing\n")
    assert inventory("sbom", tmp_path / "b.json", "--list", tmp_path / "list")[0] == 0
    made = json.loads((tmp_path / "b.json").read_text())
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    refs = [one["purl"] for one in made["components"]]
    assert refs == ["pkg:pypi/foo-bar@1.0", "pkg:pypi/baz@2"]
    assert made["dependencies"][0]["dependsOn"] == refs


def test_the_audit_tells_known_faults(tmp_path: Path, server: str) -> None:
    (tmp_path / "list").write_text("good==1.0\nbad==1.0\n")
    status, said = inventory("audit", "--list", tmp_path / "list", "--server", server)
    assert (status, said) == (1, "bad==1.0: X-1, X-2\n2 packages, 1 with known faults\n")
    (tmp_path / "list").write_text("good==1.0\n")
    assert inventory("audit", "--list", tmp_path / "list", "--server", server)[0] == 0


def test_without_a_network_the_audit_says_so(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("good==1.0\n")
    nowhere = f"http://127.0.0.1:{free_port()}"
    status, said = inventory("audit", "--list", tmp_path / "list", "--server", nowhere)
    assert status == 2
    assert "cannot be asked, so nothing is known" in said
