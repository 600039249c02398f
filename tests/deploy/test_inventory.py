"""Pins, bill of materials and audit of the images' packages; a server of the test is asked."""

import hashlib
import http.server
import io
import json
import subprocess
import sys
import threading
import zipfile
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


def wheel_of(name: str, version: str) -> bytes:
    """Return the bytes of an empty wheel."""
    made = io.BytesIO()
    folder = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(made, "w") as wheel:
        wheel.writestr(
            f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{folder}/RECORD", "")
    return made.getvalue()


def file_of(name: str) -> dict[str, Any]:
    """Return what an index says of a file."""
    return {"filename": name, "hashes": {"sha256": hashlib.sha256(name.encode()).hexdigest()}}


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    """Has two versions of a package, and files that are no packages."""
    names = ("redis-1.0-py3-none-any.whl", "redis-1.0.tar.gz", "redis-1.1-py3-none-any.whl")
    files = [file_of(name) for name in (*names, "redis-1.0.exe", "redis-1.0-docs.zip")]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/redis/":
                return self.send_error(404)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"files": files}).encode())
            return None

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


def test_images_list_the_hashes_of_their_versions(tmp_path: Path, index: str) -> None:
    (tmp_path / "list").write_text("Redis==1.0\n")
    words = ("constraints", tmp_path / "c.txt", "--list", tmp_path / "list", "--hashes", index)
    assert inventory(*words)[0] == 0
    assert (tmp_path / "c.txt").read_text().splitlines()[-1] == "redis==1.0"
    wanted = sorted(
        file_of(name)["hashes"]["sha256"]
        for name in ("redis-1.0-py3-none-any.whl", "redis-1.0.tar.gz")
    )
    for role, has_it in (("frontend", False), ("scheduler", False), ("kvstore", True)):
        text = (tmp_path / "hashes" / f"{role}.txt").read_text()
        lines = [one.strip(" \\") for one in text.splitlines() if one[0] != "#"]
        pin = ["redis==1.0", *(f"--hash=sha256:{one}" for one in wanted)]
        assert lines == (pin if has_it else [])


@pytest.mark.parametrize("pin", ["redis==1.2", "pyzmq==1.0"])
def test_hashes_without_files_are_not_written(tmp_path: Path, index: str, pin: str) -> None:
    (tmp_path / "list").write_text(f"{pin}\n")
    words = ("constraints", tmp_path / "c.txt", "--list", tmp_path / "list", "--hashes", index)
    status, said = inventory(*words)
    assert status == 2
    assert "no hashes, so nothing is written" in said
    assert [one.name for one in tmp_path.iterdir()] == ["list"]


@pytest.mark.parametrize("is_right", [True, False])
def test_pip_refuses_a_file_with_another_hash(tmp_path: Path, is_right: bool) -> None:
    wheel = wheel_of("pinned_thing", "1.0")
    (tmp_path / "pinned_thing-1.0-py3-none-any.whl").write_bytes(wheel)
    digest = hashlib.sha256(wheel if is_right else b"").hexdigest()
    (tmp_path / "role.txt").write_text(f"pinned-thing==1.0 \\\n    --hash=sha256:{digest}\n")
    words = ["--no-index", "--find-links", tmp_path, "--no-cache-dir", "--target", tmp_path / "t"]
    words += ["--require-hashes", "--requirement", tmp_path / "role.txt"]
    command = [sys.executable, "-m", "pip", "install", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == is_right, done.stderr
    assert is_right or "DO NOT MATCH THE HASHES" in done.stderr


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
