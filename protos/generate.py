"""Compile protos/pagewire/**/*.proto into the committed package protos/gen/pagewire_protos.

Owns the generator's versions, its private tool environment and the few edits made to its output;
never touches a .proto file. ``--check`` generates into a temporary folder and fails if the
committed stubs differ. See docs/adr/0002-committed-stubs-and-generator-pin.md.
"""

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
ROOT = PROTOS.parent
GENERATED = PROTOS / "gen"
PACKAGE = "pagewire_protos"
TOOLS = ROOT / ".tools" / "protoc"

# Generated code refuses a runtime older than its generator: grpcio-tools 1.76.0 carries protoc
# 31.1, which makes grpcio 1.76.0 and protobuf 6.31.1 the floor in pyproject.toml. protobuf here
# only runs the typing plugin, which needs a newer one than the floor.
REQUIREMENTS = (
    "grpcio-tools==1.76.0",
    "grpcio==1.76.0",
    "protobuf==6.33.6",
    "mypy-protobuf==5.1.0",
)

REPAIR = "make proto"
MAX_DIFF_LINES = 40

# protoc derives Python module names from file paths; these two patterns are all of them.
IMPORT = re.compile(r"^from pagewire\.", re.MULTILINE)
BUILDER_MODULE = re.compile(r"(BuildTopDescriptorsAndMessages\(DESCRIPTOR, ')pagewire\.")
# mypy-protobuf types the context by what a handler returns, types-grpcio by the bare messages.
CONTEXT = re.compile(r"^(\s+context: _aio\.ServicerContext\[)(.+)(\],)$", re.MULTILINE)
WRAPPED = re.compile(r"_\w+\.(?:Awaitable|AsyncIterator)\[([\w.]+)\]")


def main() -> int:
    """Generate, or with ``--check`` compare; returns the process exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the committed stubs differ"
    )
    parser.add_argument(
        "--tools-only",
        action="store_true",
        help="only prepare the tool environment, print its path",
    )
    arguments = parser.parse_args()
    tools = ensure_tools()
    if arguments.tools_only:
        print(tools)
        return 0
    with tempfile.TemporaryDirectory(prefix="pagewire-protos-") as folder:
        fresh = Path(folder)
        generate(tools, fresh)
        if arguments.check:
            return check(fresh / PACKAGE, GENERATED / PACKAGE)
        shutil.rmtree(GENERATED / PACKAGE, ignore_errors=True)
        shutil.copytree(fresh / PACKAGE, GENERATED / PACKAGE)
    print(f"wrote {(GENERATED / PACKAGE).relative_to(ROOT)}")
    return 0


def ensure_tools() -> Path:
    """Create or repair the tool environment; returns its folder of executables."""
    stamp = TOOLS / "requirements.txt"
    wanted = "\n".join((*REQUIREMENTS, f"# Python {sys.version_info[0]}.{sys.version_info[1]}\n"))
    executables = TOOLS / ("Scripts" if os.name == "nt" else "bin")
    if stamp.exists() and stamp.read_text() == wanted:
        return executables
    print(f"preparing {TOOLS.relative_to(ROOT)} ({REQUIREMENTS[0]})", file=sys.stderr)
    venv.create(TOOLS, clear=True, with_pip=True)
    install = (executables / "python", "-m", "pip", "install", "-q", "--no-input", *REQUIREMENTS)
    subprocess.run(install, check=True, stdout=sys.stderr)
    stamp.write_text(wanted)
    return executables


def generate(tools: Path, output: Path) -> None:
    """Fill ``output/pagewire_protos`` with stubs for every .proto file."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("pagewire/**/*.proto"))
    if not sources:
        raise SystemExit(f"no .proto files under {PROTOS / 'pagewire'}")
    plugin = tools / "protoc-gen-mypy_grpc"
    command = [
        str(tools / "python"),
        "-m",
        "grpc_tools.protoc",
        "--proto_path=.",
        f"--plugin=protoc-gen-mypy_grpc={plugin}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_grpc_out=quiet,only_async:{output}",
        *sources,
    ]
    if subprocess.run(command, cwd=PROTOS, check=False).returncode:
        raise SystemExit("protoc failed; its message is above")
    drop_empty_services(output / "pagewire", sources)
    package = output / PACKAGE
    (output / "pagewire").rename(package)
    for path in sorted(package.rglob("*.py*")):
        path.write_text(re_root(path.read_text(encoding="utf-8")), encoding="utf-8")
    write_package_files(package)


def drop_empty_services(folder: Path, sources: list[str]) -> None:
    """Remove the ``_pb2_grpc`` pair of each .proto file that declares no service."""
    for source in sources:
        if re.search(r"^service\s", (PROTOS / source).read_text(encoding="utf-8"), re.MULTILINE):
            continue
        stem = folder.parent / source.removesuffix(".proto")
        for suffix in (".py", ".pyi"):
            stem.with_name(f"{stem.name}_pb2_grpc{suffix}").unlink(missing_ok=True)


def re_root(text: str) -> str:
    """Move module names from ``pagewire.`` to ``pagewire_protos.``; names on the wire stay."""
    text = IMPORT.sub(f"from {PACKAGE}.", text)
    text = BUILDER_MODULE.sub(rf"\g<1>{PACKAGE}.", text)
    return CONTEXT.sub(lambda m: m[1] + WRAPPED.sub(r"\g<1>", m[2]) + m[3], text)


def write_package_files(package: Path) -> None:
    """Write ``__init__.py`` into every folder and the ``py.typed`` marker."""
    (package / "py.typed").write_text("")
    (package / "__init__.py").write_text(
        '"""Messages and stubs generated from protos/pagewire; made by protos/generate.py."""\n'
    )
    for folder in sorted(path for path in package.rglob("*") if path.is_dir()):
        name = ".".join(("pagewire", *folder.relative_to(package).parts))
        (folder / "__init__.py").write_text(f'"""Generated from the proto package {name}."""\n')


def check(fresh: Path, committed: Path) -> int:
    """Compare two trees; prints what differs and the repairing command. 0 if equal, else 1."""
    differences = compare(read_tree(fresh), read_tree(committed))
    if not differences:
        return 0
    print(f"{committed.relative_to(ROOT)} does not match the .proto files:")
    for line in differences[:MAX_DIFF_LINES]:
        print(f"  {line}")
    if len(differences) > MAX_DIFF_LINES:
        print(f"  ... and {len(differences) - MAX_DIFF_LINES} more lines")
    print(f"repair it with: {REPAIR}")
    return 1


def read_tree(folder: Path) -> dict[str, str]:
    """Return relative path -> text of every file below ``folder``, byte code left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


def compare(fresh: dict[str, str], committed: dict[str, str]) -> list[str]:
    """Return one line per missing or unexpected file and a unified diff per changed one."""
    lines = [f"missing: {name}" for name in sorted(fresh.keys() - committed.keys())]
    lines += [f"unexpected: {name}" for name in sorted(committed.keys() - fresh.keys())]
    for name in sorted(fresh.keys() & committed.keys()):
        if fresh[name] != committed[name]:
            lines += difflib.unified_diff(
                committed[name].splitlines(),
                fresh[name].splitlines(),
                f"committed/{name}",
                f"generated/{name}",
                lineterm="",
                n=1,
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
