"""`pagewire models` and `pagewire pull ID`: the models on this machine, and how to get another."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pagewire.models import BUILTIN_FOLDERS
from pagewire_shared.errors import PagewireError, StartupError
from pagewire_shared.identity.model_folder import cache_folder, is_hub_id, resolve_model
from pagewire_shared.model_files.config import read_config, refuse_unsupported
from pagewire_shared.model_files.folder import check_tokenizer, check_weights
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.process.sizes import format_size

_PREFIX: Final = "models--"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on disk.

    Attributes:
        name: What `pagewire serve` takes.
        num_bytes: Size of its files.
        architecture: From config.json; "" where it cannot be read.
        problem: Why it cannot be served; "" where nothing speaks against it.
    """

    name: str
    num_bytes: int
    architecture: str
    problem: str


def run(name: str, argv: Sequence[str]) -> int:
    """List models, or fetch one."""
    if name == "pull":
        return _pull(name, argv)
    parser = HintingParser(prog=f"pagewire {name}", description="List the models on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    found = list(local_models(cache_folder(os.environ)))
    if options.json:
        print(json.dumps([asdict(model) for model in found], indent=2))
        return 0
    width = max(len(model.name) for model in found)
    for model in found:
        note = f"  ({model.problem})" if model.problem else ""
        size = format_size(model.num_bytes)
        print(f"{model.name:<{width}}  {size:>10}  {model.architecture}{note}")
    print("pagewire serve NAME serves one, pagewire pull ID fetches another", file=sys.stderr)
    return 0


def local_models(cache: Path) -> Iterator[LocalModel]:
    """Yield the built-in models, and those of the hub cache, by name."""
    for name, folder in BUILTIN_FOLDERS.items():
        if folder.is_dir():
            yield _described(name, folder)
    for repository in sorted(cache.glob(f"{_PREFIX}*")):
        snapshots = sorted(repository.glob("snapshots/*"), key=lambda path: path.stat().st_mtime)
        if snapshots and (snapshots[-1] / "config.json").is_file():
            name = repository.name.removeprefix(_PREFIX).replace("--", "/")
            yield _described(name, snapshots[-1])


def _described(name: str, folder: Path) -> LocalModel:
    num_bytes = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    architecture = problem = ""
    try:
        data = read_config(folder)
        architecture = str((data.get("architectures") or [""])[0])
        refuse_unsupported(data)
        check_tokenizer(folder, "it")
        check_weights(folder, "it")
    except PagewireError as error:
        problem = error.message.removeprefix("--model: ")
    return LocalModel(name, num_bytes, architecture, problem)


def _pull(name: str, argv: Sequence[str]) -> int:
    parser = HintingParser(
        prog=f"pagewire {name}",
        description="Fetch a model from the hub into its cache: safetensors, configuration and"
        " tokenizer. HF_TOKEN and HF_ENDPOINT are honoured.",
    )
    parser.add_argument("ID", help="org/name, or org/name@revision")
    options = parser.parse_args(argv)
    if not is_hub_id(options.ID) or Path(options.ID).exists():
        raise StartupError(f"ID: {options.ID!r} is not an id such as org/name", field="ID")
    print(f"into {cache_folder(os.environ)}", file=sys.stderr, flush=True)
    try:
        folder = resolve_model(options.ID, has_weights=True)
    except StartupError as error:
        message = error.message.removeprefix("--model: ")
        raise StartupError(f"ID: {message}", field="ID") from error
    model = _described(options.ID, folder)
    if model.problem:
        raise StartupError(f"ID: {options.ID} is there, but cannot be served: {model.problem}")
    print(f"{options.ID}: {format_size(model.num_bytes)}, pagewire serve {options.ID}")
    return 0
