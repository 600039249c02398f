"""Loads checkpoints whose headers were changed at random: each is one clear error, or loads.

    cd tests && python -m support.checkpoints.mutated_headers --cases 10000 --seed 1

The headers of GGUF and safetensors files, of an index of shards, and the words of a config.json.
Cases run in processes that are forked from one with the good model loaded, with a limit of memory.
A process that dies, another exception than StartupError, an error of several lines and a case
that takes longer than a deadline are faults.
"""

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import torch
from gguf import GGUFReader

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.convert.gguf_folder import describe_gguf
from pagewire_worker.loading.loader import load_replica
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.gguf_files import write_gguf

SECONDS: Final = 30
"""Most that a case may take."""
MEMORY_BYTES: Final = 3 << 30
"""Of address space that a case may take on top of what the process has."""
CASES_PER_PROCESS: Final = 50
LONGEST_ERROR: Final = 4000
_NUMBERS: Final = (0, 1, -1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
_WORDS: Final = (
    b"null",
    b"-1",
    b"0",
    b"1e308",
    b"[]",
    b"{}",
    b'""',
    b"99999999999999999999",
    b"true",
)


@dataclass(slots=True)
class Outcomes:
    """What came of the cases.

    Attributes:
        counts: Cases by kind of file and outcome.
        faults: A line per case that did not end as it should.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def flip(data: bytes, chance: random.Random) -> bytes:
    """Return `data` with some bits turned."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def number(data: bytes, chance: random.Random) -> bytes:
    """Return `data` with an extreme whole number of 4 or 8 bytes in it."""
    size, place = chance.choice((4, 8)), chance.randrange(max(1, len(data) - 8))
    value = chance.choice(_NUMBERS) % (1 << 8 * size)
    return data[:place] + value.to_bytes(size, "little") + data[place + size :]


def cut(data: bytes, chance: random.Random) -> bytes:
    """Return `data` without a part of it."""
    first = chance.randrange(len(data))
    return data[:first] + data[first + chance.choice((1, 7, 64, len(data))) :]


def repeat(data: bytes, chance: random.Random) -> bytes:
    """Return `data` with a part of it twice."""
    first = chance.randrange(len(data))
    return data[:first] + data[first : first + chance.choice((1, 8, 256))] * 2 + data[first:]


def word(data: bytes, chance: random.Random) -> bytes:
    """Return `data` with a value of JSON, or its like, in another one's place."""
    places = [at for at, byte in enumerate(data) if byte in b":,["]
    if not places:
        return flip(data, chance)
    at = chance.choice(places) + 1
    end = next((e for e in range(at, len(data)) if data[e] in b",]}"), len(data))
    return data[:at] + chance.choice(_WORDS) + data[end:]


CHANGES: Final[Sequence[Callable[[bytes, random.Random], bytes]]] = (
    *(flip, number, cut, repeat, word),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A good checkpoint, and the part of it that is changed.

    Attributes:
        name: For reports.
        source: The folder, or the GGUF file.
        file: Name of the changed file.
        part: Returns where the changed part of its bytes begins and ends.
    """

    name: str
    source: Path
    file: str
    part: Callable[[bytes], tuple[int, int]]

    def read(self) -> bytes:
        """Return the good bytes."""
        return (self.source if self.source.is_file() else self.source / self.file).read_bytes()

    def place(self, data: bytes, folder: Path) -> Path:
        """Write the checkpoint with `data` as its changed file; return the folder to load."""
        (folder / self.file).write_bytes(data)
        if self.source.is_file():
            made = folder / "described"
            made.mkdir()
            describe_gguf(folder / self.file, made, is_linked=True)
            return made
        for one in self.source.iterdir():
            if one.name != self.file:
                (folder / one.name).symlink_to(one)
        return folder


def make_subjects(folder: Path) -> list[Subject]:
    """Write the good checkpoints into `folder`."""
    plain = make_checkpoint(folder / "plain", heads=4, kv_heads=2, hidden=64)
    sharded = make_checkpoint(folder / "sharded", heads=4, kv_heads=2, hidden=64, sharded=True)
    file = folder / "m.gguf"
    write_gguf(file, plain, "Q8_0")
    tensors, data = _tensor_list(file)
    return [
        Subject("GGUF metadata", file, file.name, lambda _: (0, tensors)),
        Subject("GGUF tensors", file, file.name, lambda _: (tensors, data)),
        Subject("safetensors", plain, "model.safetensors", _safetensors_header),
        Subject("index", sharded, "model.safetensors.index.json", lambda data: (0, len(data))),
        Subject("config", plain, "config.json", lambda data: (0, len(data))),
    ]


def _safetensors_header(data: bytes) -> tuple[int, int]:
    return 0, 8 + int.from_bytes(data[:8], "little")


def _tensor_list(file: Path) -> tuple[int, int]:
    """Return where the list of tensors begins and where their data does."""
    tensors = GGUFReader(file).tensors
    return min(one.field.offset for one in tensors), min(one.data_offset for one in tensors)


def mutant(subject: Subject, seed: str) -> bytes:
    """Return the bytes of the changed file of a case."""
    chance, data = random.Random(seed), subject.read()
    first, end = subject.part(data)
    part = data[first:end]
    for _ in range(chance.choice((1, 1, 1, 3))):
        part = chance.choice(CHANGES)(part, chance) or part
    return data[:first] + part + data[end:]


def outcome(subject: Subject, data: bytes, folder: Path) -> str:
    """Load a changed checkpoint; return `loaded`, `refused`, or what is wrong."""
    try:
        model = subject.place(data, folder)
        load_replica(
            WorkerConfig(
                model=str(model),
                cpu_threads=1,
                max_num_seqs=2,
                max_num_batched_tokens=64,
                kv_cache_memory=8 << 20,
            )
        )
    except StartupError as error:
        text = str(error)
        if not text.strip() or "\n" in text.strip() or len(text) > LONGEST_ERROR:
            return f"an error that is not one line: {text[:300]!r}"
        return "refused"
    except Exception:  # noqa: BLE001 - any other error is what is looked for
        return "".join(traceback.format_exc().splitlines(keepends=True)[-7:])
    return "loaded"


def run_cases(subject: Subject, seeds: Sequence[str], answers: Connection) -> None:
    """Run cases in this process; send an answer before and behind each."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, hard))
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    for seed in seeds:
        answers.send(None)
        signal.alarm(SECONDS)
        with tempfile.TemporaryDirectory() as folder:
            answers.send(outcome(subject, mutant(subject, seed), Path(folder)))
    answers.close()


def run(subject: Subject, seeds: Sequence[str], outcomes: Outcomes) -> None:
    """Run cases in processes of their own, and note what came of them."""
    left = list(seeds)
    context = get_context("fork")
    while left:
        mine, theirs = context.Pipe(duplex=False)
        part = left[:CASES_PER_PROCESS]
        process = context.Process(target=run_cases, args=(subject, part, theirs))
        process.start()
        theirs.close()
        num_begun = num_ended = 0
        try:
            while True:
                answer = mine.recv()
                num_begun += answer is None
                if answer is not None:
                    _note(outcomes, subject, part[num_ended], answer)
                    num_ended += 1
        except EOFError:
            process.join()
        if num_begun > num_ended or not num_begun:
            _note(outcomes, subject, part[num_ended], f"the process ended: {process.exitcode}")
        left = left[max(num_begun, 1) :]


def _note(outcomes: Outcomes, subject: Subject, seed: str, answer: str) -> None:
    is_well = answer in ("loaded", "refused")
    outcomes.counts[subject.name, answer if is_well else "fault"] += 1
    if not is_well:
        outcomes.faults.append(f"{subject.name}, {seed}: {answer}")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=1000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds with this text in their names")
    options = parser.parse_args()
    began, outcomes = time.monotonic(), Outcomes()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        subjects = [one for one in make_subjects(Path(folder)) if options.only in one.name]
        for subject in subjects:
            num = options.cases // len(subjects)
            run(subject, [f"{options.seed}-{subject.name}-{i}" for i in range(num)], outcomes)
            counts = {
                kind: num for (name, kind), num in outcomes.counts.items() if name == subject.name
            }
            print(f"{subject.name}: {counts}, {time.monotonic() - began:.0f} s", flush=True)
    print("\n".join(outcomes.faults[:200]))
    print(f"{sum(outcomes.counts.values())} cases, {len(outcomes.faults)} faults")
    return 1 if outcomes.faults else 0


if __name__ == "__main__":
    sys.exit(main())
