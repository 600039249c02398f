"""The product runs no bytes that somebody else wrote: calls that would, but for those named."""

import ast
from collections.abc import Iterator

import pytest

from support.source_tree import package_folders, relative

READERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
"""Modules whose readers may run code, or fail, on bytes that were not written by their writer."""
CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}

ALLOWED = {
    # Says that the flag is refused.
    "pagewire/vllm_names/model_names.py": {"refused with code of a checkpoint"},
    # The message of torch's unpickler of tensors, which makes nothing else of a pickle.
    "services/worker/pagewire_worker/convert/__main__.py": {"pickle"},
    # Frames between a frontend and its own child, over a pipe.
    "services/frontend/pagewire_frontend/http/body/json_link.py": {"marshal"},
    "services/frontend/pagewire_frontend/http/body/json_process.py": {"marshal"},
    "services/frontend/pagewire_frontend/http/body/value_pieces.py": {"marshal"},
}


def unsafe(source: str) -> Iterator[str]:
    """Yield what a module imports or calls of these."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from READERS & {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            yield from READERS & {(node.module or "").partition(".")[0]}
        elif isinstance(node, ast.Call):
            yield from _unsafe_call(node)


def _unsafe_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    given = {word.arg: ast.unparse(word.value) for word in node.keywords}
    if name in CALLS:
        yield name
    if name == "torch.load" and given.get("weights_only") != "True":
        yield "torch.load without weights_only=True"
    if given.get("shell", "False") != "False":
        yield f"{name} with a shell"
    if given.get("trust_remote_code", "False") != "False":
        yield f"{name} with code of a checkpoint"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from dill.source import x", ["dill"]),
        ("import pickletools_of_ours", []),
        ("eval(text)", ["eval"]),
        ("model.eval()", []),
        ("re.compile(text)", []),
        ("os.system(text)", ["os.system"]),
        ("subprocess.run(text, shell=True)", ["subprocess.run with a shell"]),
        ("subprocess.run(text, shell=False)", []),
        ("torch.load(file)", ["torch.load without weights_only=True"]),
        ("torch.load(file, weights_only=True)", []),
        ("load(x, trust_remote_code=given)", ["load with code of a checkpoint"]),
    ],
)
def test_they_are_found(source: str, found: list[str]) -> None:
    assert list(unsafe(source)) == found


def test_nothing_runs_the_bytes_of_others() -> None:
    found = {}
    for folder in package_folders():
        for path in folder.rglob("*.py"):
            if names := set(unsafe(path.read_text())):
                found[relative(path)] = names
    assert found == ALLOWED
