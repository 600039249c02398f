"""`pagewire admin topology`, `roles` and `selftest` against a scheduler."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contract.fake_pairs import NAMES
from contract.operated_cell import DECODE, PREFILL, Cell, cell

from pagewire.cli import main
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_scheduler.core.data.worker_info import Role


@pytest.fixture
def open_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    return partial(cell, tmp_path, monkeypatch)


async def admin(cell: Cell, *words: str) -> int:
    """Run the command in a thread, as it has an event loop of its own."""
    return await asyncio.to_thread(main, ["admin", *words, "--server", cell.address])


async def test_topology_is_a_table(open_cell, capsys) -> None:
    async with open_cell() as cell:
        cell.pairs.pair(DECODE, PREFILL, "the layouts differ")
        cell.pairs.warnings = ("something is odd",)
        cell.pairs.roles[PREFILL] = frozenset({Role.PREFILL})
        assert await admin(cell, "topology") == 0
        generation = cell.pairs.loop.generation.number
    head, workers, *rows, refused, warning = capsys.readouterr().out.splitlines()
    assert head == f"scheduler, generation {generation}: hand-off auto"
    assert workers.split()[:6] == ["worker", "model", "roles", "running", "waiting", "weights"]
    shown = sorted(row.split() for row in rows[:2])
    facts = ["1", "2", "-", "0f0f0f0f", "127.0.0.1:5", "(grpc)"]
    assert shown == [
        ["aa000000", "tiny", "prefill", *facts],
        ["ab000000", "tiny", "prefill,decode", *facts],
    ]
    assert rows[3].split() == ["aa000000", "ab000000", "grpc", "1.0", "3", "1"]
    assert refused.split()[:2] == ["ab000000", "aa000000"]
    assert refused.endswith(" refused: the layouts differ")
    assert warning == "WARNING: something is odd"


async def test_topology_is_json(open_cell, capsys) -> None:
    async with open_cell() as cell:
        assert await admin(cell, "topology", "--json") == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert {worker["worker"] for worker in shown["workers"]} == {PREFILL.hex(), DECODE.hex()}
    assert shown["workers"][0]["roles"] == ["prefill", "decode"]
    [pair] = shown["pairs"]
    assert (pair["refusal"], pair["transport"], pair["bytes_per_second"]) == (None, "grpc", 1e6)


async def test_roles_change(open_cell, capsys) -> None:
    async with open_cell() as cell:
        assert await admin(cell, "roles", "aa", "prefill, decode") == 0
        assert await admin(cell, "roles", "ab", "decode") == 0
        assert cell.pairs.roles[DECODE] == {Role.DECODE}
        assert await admin(cell, "roles", "a", "decode") == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "worker aa000000 is used for prefill, decode",
        "worker ab000000 is used for decode",
    ]
    assert shown.err.startswith("pagewire admin: error: 'a' is the beginning of several workers")


async def test_a_self_test_of_what_is_well_ends_with_0(open_cell, capsys) -> None:
    async with open_cell() as cell:
        assert await admin(cell, "selftest") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[2].split() == [
            *("aa000000", "ab000000", "shared_memory"),
            *("2", "128", "0.250", "equal"),
        ]
        assert lines[-1] == "blocks moved intact between 1 pair of workers"
        cell.pairs.pairs.clear()
        assert await admin(cell, "selftest") == 0
        assert capsys.readouterr().out.splitlines()[-1] == "no worker needs another one's blocks"


async def test_a_self_test_of_what_is_broken_says_so_and_ends_with_1(open_cell, capsys) -> None:
    async with open_cell() as cell:
        await cell.set_roles("aa", [wa.WORKER_ROLE_PREFILL])
        cell.decode.digests[NAMES[0]] = b"x" * 32
        assert await admin(cell, "selftest", "--timeout-seconds", "3") == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[2].endswith("DIFFERENT")
        assert lines[3:] == [
            "BROKEN: aa000000 to ab000000: the bytes that arrived are not those that were computed",
            "BROKEN: no pair of workers exchanges KV blocks of tiny",
        ]
        assert await admin(cell, "selftest", "--json") == 1
        [shown] = json.loads(capsys.readouterr().out)
        assert shown["probes"][0]["is_equal"] is False
        assert len(shown["problems"]) == 2
        [begun, _] = cell.pairs.begun
        assert 0 < begun[2] < 3


@pytest.mark.parametrize("action", ["audit", "selftest"])
@pytest.mark.parametrize("text", ["-5", "0", "nan", "inf", "soon"])
def test_a_time_that_is_none_is_told(
    action: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["admin", action, f"--timeout-seconds={text}"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert f"--timeout-seconds: {text} is not between" in shown or f"'{text}' is no number" in shown
