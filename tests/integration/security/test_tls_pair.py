"""A pair of schedulers whose links have certificates: the other takes over, and streams go on with
the tokens of an undisturbed run."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire_shared.security.roles import LinkRole
from support.cells.role_cells import RoleCell, role_cell
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import free_ports, wait_until
from support.processes.role_processes import Place, RoleProcess
from support.security.certificates import make_certificates
from support.traffic.signalled import follow_with_signal, seeded_requests
from support.traffic.streams import eventually_clean, follow_all

NUM_STREAMS = 4
NUM_TOKENS = 160
SECONDS = 40.0
TAKES_OVER = "takes over as generation"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RoleCell, RoleProcess]]:
    """A cell, and its second scheduler."""
    certificates = make_certificates(tmp_path / "certificates")
    checkpoint = make_checkpoint(
        tmp_path / "model", architecture="Qwen3ForCausalLM", hidden=256, layers=4
    )
    first = free_ports(3)
    names = ("scheduler", "second", "worker-0")
    addresses = {name: f"127.0.0.1:{first + number}" for number, name in enumerate(names)}

    def find_place(name: str, role: str) -> Place:
        return Place(addresses.get(name, f"unix:{tmp_path / name}.sock"))

    both = f"{addresses['scheduler']}+{addresses['second']}"
    roles = [LinkRole.SCHEDULER, LinkRole.WORKER, LinkRole.FRONTEND]
    flags = {role.value: ["--tls-dir", str(certificates / role)] for role in roles}
    flags["scheduler"] += ["--paired", "--cell", "pair", "--log-level", "info"]
    for role in ("frontend", "worker"):
        flags[role] += ["--scheduler", both]
    own = ["--listen", addresses["second"], "--insecure", *flags["scheduler"]]
    with (
        RoleProcess("second", "scheduler", Place(addresses["second"]), own) as second,
        role_cell(checkpoint, ["worker-0"], find_place, has_store=False, flags=flags) as cell,
    ):
        yield cell, second
        assert "Traceback" not in cell.log + second.log


def test_the_other_takes_over(pair: tuple[RoleCell, RoleProcess]) -> None:
    cell, second = pair
    requests = seeded_requests(cell.model, NUM_STREAMS, NUM_TOKENS)
    undisturbed = asyncio.run(follow_all(cell.grpc_address, requests))
    assert [stream.error for stream in undisturbed] == [""] * NUM_STREAMS
    assert TAKES_OVER in cell.members["scheduler"].log
    assert TAKES_OVER not in second.log
    streams = asyncio.run(
        follow_with_signal(
            cell.grpc_address,
            requests,
            cell.members["scheduler"].pid,
            signal.SIGKILL,
            patience_seconds=SECONDS,
        )
    )
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert [stream.token_ids for stream in streams] == [one.token_ids for one in undisturbed]
    assert all(stream.num_resumes >= 1 for stream in streams)
    wait_until(lambda: TAKES_OVER in second.log, SECONDS, "the second one takes over")
    asyncio.run(eventually_clean(cell.grpc_address, 1, SECONDS))
