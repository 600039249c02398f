"""The command line: reads what to compare, measures one server after the other, prints tables."""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from parts.machine import describe

from compare.cases import LETTERS, LONGEST
from compare.measurement import Plan, measure
from compare.peer_names import PeerNameError, our_variants, peer
from compare.peers.protocol import MAX_LENGTH, Peer, Setup
from compare.report import tables
from compare.results import document

_OURS_HELP = "a variant of ours, as NAME=ARGUMENTS or ARGUMENTS of `pagewire serve`; repeatable"
_PEER_HELP = """another server; repeatable; label= names its column
  vllm=PYTHON[,zentorch=FOLDER][,args=ARGUMENTS]
  llama.cpp=LLAMA_SERVER,gguf=FILE[,args=ARGUMENTS]
  openvino=PYTHON,model=FOLDER[,batched_tokens=COUNT]
  transformers=PYTHON"""


def main(description: str) -> None:
    """Compare what the command line names."""
    parser = _parser(description)
    options = parser.parse_args()
    try:
        ours = [] if options.without_ours else our_variants(options.ours)
        servers = [*ours, *(peer(text) for text in options.peer)]
    except PeerNameError as error:
        parser.error(f"--peer: {error}")
    twice = [label for label, count in Counter(one.label for one in servers).items() if count > 1]
    if twice or not servers:
        parser.error(f"two servers are called {twice[0]}" if twice else "nothing to compare")
    config = json.loads((options.model / "config.json").read_text())
    if config.get("max_position_embeddings", MAX_LENGTH) < LONGEST and "c" in options.cases:
        parser.error(f"the model is too short for case c, which needs {LONGEST} tokens")
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory() as folder:
        logs = options.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        _compare(options, _plan(options, logs, config["vocab_size"]), servers, ours)


def _compare(
    options: argparse.Namespace, plan: Plan, servers: Sequence[Peer], ours: Sequence[Peer]
) -> None:
    machine = describe()
    results = []
    for one in servers:
        results.append(measure(one, plan))
        if options.out:
            found = document(machine, _plain(options), results)
            options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{machine}; medians of {plan.repeats} (least..most)\n")
    print(tables(results, [one.label for one in ours], options.cases))


def _plan(options: argparse.Namespace, logs: Path, vocab: int) -> Plan:
    setup = Setup(
        model=options.model.resolve(),
        dtype=options.dtype,
        num_threads=options.threads,
        logs=logs,
        start_seconds=options.start_seconds,
    )
    return Plan(
        setup=setup,
        letters=options.cases,
        repeats=options.repeats,
        vocab=vocab,
        seed=options.seed,
        batch_seconds=options.batch_seconds,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compare", description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder of a checkpoint")
    parser.add_argument("--cases", type=_letters, default=list(LETTERS), help="such as a,b,f")
    parser.add_argument("--repeats", type=_count, default=3, help="of each case")
    parser.add_argument("--ours", action="append", default=[], help=_OURS_HELP)
    parser.add_argument("--without-ours", action="store_true", help="measure peers only")
    parser.add_argument("--peer", action="append", default=[], help=_PEER_HELP)
    parser.add_argument("--dtype", default="bfloat16", help="of all servers that can be told")
    parser.add_argument("--threads", type=_count, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument("--out", type=Path, help="file for all figures, as JSON")
    parser.add_argument("--logs", type=Path, help="folder for what the servers print")
    parser.add_argument("--start-seconds", type=float, default=900, help="most for one start")
    parser.add_argument("--batch-seconds", type=float, default=300, help="most for one batch")
    return parser


def _letters(text: str) -> list[str]:
    letters = text.split(",")
    if unknown := [letter for letter in letters if letter not in LETTERS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {','.join(LETTERS)}")
    return letters


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _plain(options: argparse.Namespace) -> dict[str, object]:
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
    }


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """End as an exception does, so that the server under way ends, too."""
    raise SystemExit("stopped")
