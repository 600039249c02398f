"""`make images-test`: builds images and runs them as a cluster does; prints what they came to.

python -m deploy.try_images [--folder FOLDER] [--volume SOURCE:TARGET] [ROLE ...]

Needs root, buildah and debootstrap. With a worker among the roles, a chat is answered, too.
"""

import argparse
import json
import sys
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from deploy.image_builder import BASE_IMAGE, ImageBuilder, ImageFacts, unpacked_bytes
from deploy.image_process import ImageProcess, run_confined

from support.processes.processes import free_port, wait_until
from support.source_tree import ROOT

ROLES = ("kvstore", "scheduler", "worker", "frontend")
"""In the order in which they are started."""

TORCH_FREE = ("kvstore", "scheduler", "frontend")
MODEL = "pagewire-builtin"
STOP_SECONDS = {"kvstore": 5.0, "scheduler": 5.0, "worker": 20.0, "frontend": 10.0}

# Run with the image's own Python: what must not be in it, and that it is held to what it runs as.
LOOK = """
import importlib.util, json, os, pathlib, shutil, sys, sysconfig

def is_compiled(path):
    compiled = pathlib.Path(importlib.util.cache_from_source(str(path)))
    # Not to be compared with its source: the second word of the header is 1.
    return compiled.exists() and compiled.read_bytes()[4:8] == b"\\x01\\0\\0\\0"

def is_python(path):
    try:
        compile(path.read_bytes(), path, "exec")
    except SyntaxError:  # of a newer version
        return False
    return True

modules = list(pathlib.Path(sysconfig.get_path("purelib")).rglob("*.py"))
tests = [name for name in ("tests", "conftest", "support") if importlib.util.find_spec(name)]
packages = ("torch", "transformers", "pip", "setuptools")
print(json.dumps({
    "packages": [name for name in packages if importlib.util.find_spec(name)],
    "tests": tests,
    "compilers": [name for name in ("cc", "gcc", "clang") if shutil.which(name)],
    "ids": [os.getuid(), os.getgid()],
    "writable": [path for path in ("/", "/etc", "/usr", sys.prefix) if os.access(path, os.W_OK)],
    "modules": len(modules),
    "not_compiled": [str(p) for p in modules if not is_compiled(p) and is_python(p)][:10],
    "has_tmp": os.access("/tmp", os.W_OK),
    "versions": len(open(sys.prefix + "/requirements.txt").readlines()),
}))
"""


@dataclass(slots=True)
class Ports:
    """Where the roles listen; all share this host's network."""

    kvstore: int = field(default_factory=free_port)
    scheduler: int = field(default_factory=free_port)
    worker: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)

    def flags(self, role: str) -> list[str]:
        """What a role is started with."""
        scheduler = f"127.0.0.1:{self.scheduler}"
        kvstore = f"127.0.0.1:{self.kvstore}"
        own = {
            "kvstore": ["--listen", kvstore, "--memory-size=64MiB", "--shared-memory-path=off"],
            "scheduler": ["--listen", scheduler, "--kvstore", kvstore],
            "worker": ["--listen", f"127.0.0.1:{self.worker}", "--scheduler", scheduler],
            "frontend": ["--port", str(self.http), "--grpc-port", str(self.grpc)],
        }
        own["worker"] += ["--model", MODEL, "--served-model-name", MODEL, "--device=cpu"]
        own["worker"] += ["--kv-cache-memory=64MiB", "--drain-seconds=5"]
        own["frontend"] += ["--scheduler", scheduler, "--model", f"{MODEL}={MODEL}"]
        return [*own[role], "--metrics-port", str(free_port())]

    def health(self, role: str) -> str:
        """What `pagewire health` is asked; a frontend without workers lives and is not ready."""
        if role == "frontend":
            return f"http://127.0.0.1:{self.http}/live"
        return f"127.0.0.1:{getattr(self, role)}"


@dataclass(slots=True)
class Built:
    """An image, and where its files are."""

    role: str
    facts: ImageFacts
    root: Path


def look_into(image: Built) -> None:
    """Fail where an image holds what it must not, or says what it must not."""
    facts = image.facts
    assert facts.user == "10001:10001"
    assert facts.entrypoint == ("pagewire", image.role)
    assert facts.stop_signal == "SIGTERM"
    result = run_confined(image.root, facts, "python", "-c", LOOK)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    wanted = [] if image.role in TORCH_FREE else ["torch", "transformers"]
    assert [name for name in found["packages"] if name != "setuptools"] == wanted, found
    assert found["tests"] == found["compilers"] == found["writable"] == [], found
    assert found["has_tmp"], found
    assert found["modules"] > 500, found
    assert found["not_compiled"] == [], found
    assert found["ids"] == [10001, 10001], found
    assert found["versions"] > 5, found


def wait_serving(image: Built, process: ImageProcess, asked: str) -> None:
    """Return when `pagewire health`, run in the image, says that the role serves."""

    def serves() -> bool:
        assert process.process.poll() is None, process.log.read_text()
        return run_confined(image.root, image.facts, "pagewire", "health", asked).returncode == 0

    wait_until(serves, 120, f"{image.role} serves")


def ask_chat(port: int) -> str:
    """Return what the deployment answers to a question."""
    url = f"http://127.0.0.1:{port}"
    body = {"model": MODEL, "temperature": 0, "max_tokens": 16}
    body["messages"] = [{"role": "user", "content": "Tell me a story about a fox."}]
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        text: str = json.load(response)["choices"][0]["message"]["content"]
    assert text, "an empty answer"
    return text


def run_together(images: list[Built], folder: Path) -> None:
    """Start all, wait until all serve, ask them where there is a worker, and stop them."""
    ports = Ports()
    with ExitStack() as stack:
        started = []
        for image in images:
            log = folder / f"{image.role}.log"
            flags = ports.flags(image.role)
            process = ImageProcess(image.root, image.facts, log, *flags)
            stack.callback(process.kill)
            started.append(process)
            wait_serving(image, process, ports.health(image.role))
            print(f"{image.role}: serves as {image.facts.user} on a read-only root", flush=True)
        if {"worker", "frontend", "scheduler"} <= {image.role for image in images}:
            wait_serving(images[-1], started[-1], f"http://127.0.0.1:{ports.http}/ready")
            print(f"the deployment answers: {ask_chat(ports.http)!r}", flush=True)
        for image, process in reversed(list(zip(images, started, strict=True))):
            status = process.stop(STOP_SECONDS[image.role])
            assert status == 0, f"{image.role}: exit status {status}\n{process.log.read_text()}"
            print(f"{image.role}: exit status 0 after SIGTERM", flush=True)


def print_sizes(base_bytes: int, images: list[Built]) -> None:
    """Print a table in MB of a million bytes, unpacked."""
    print("| image | whole, MB | without the base, MB |")
    print("| --- | ---: | ---: |")
    for image in images:
        whole = unpacked_bytes(image.root)
        print(f"| {image.role} | {whole / 1e6:.0f} | {(whole - base_bytes) / 1e6:.0f} |")


def main() -> int:
    """Build, look, run, and print the sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roles", nargs="*", metavar="ROLE", help="(those without torch)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".tools" / "images")
    parser.add_argument("--volume", action="append", default=[], help="for RUN steps; repeatable")
    parser.add_argument("--build-arg", action="append", default=[], help="NAME=VALUE; repeatable")
    options = parser.parse_args()
    roles = [role for role in ROLES if role in (options.roles or TORCH_FREE)]
    if unknown := set(options.roles) - set(ROLES):
        parser.error(f"no such role: {', '.join(sorted(unknown))}")
    builder = ImageBuilder(options.folder, options.volume)
    builder.make_base()
    images = []
    try:
        for role in roles:
            name = builder.build(role, options.build_arg)
            print(f"{role}: built", flush=True)
            images.append(Built(role, builder.facts(name), builder.mount(name)))
            look_into(images[-1])
        run_together(images, options.folder)
        print_sizes(unpacked_bytes(builder.mount(BASE_IMAGE)), images)
    finally:
        builder.tidy()
    return 0


if __name__ == "__main__":
    sys.exit(main())
