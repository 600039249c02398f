"""transformers' own forward pass, by a Python that has it. In process: without HTTP, batches as
they come, no cache of prefixes."""

from dataclasses import dataclass
from pathlib import Path

from compare.peers.driver_process import DriverProcess
from compare.peers.protocol import Setup

_DRIVER = Path(__file__).parent.parent / "drivers" / "run_transformers.py"


@dataclass(frozen=True, slots=True)
class Transformers:
    """One installation.

    Attributes:
        label: Its column.
        python: Of the environment that has it.
    """

    label: str
    python: Path

    def settings(self, setup: Setup) -> str:
        """How it is set up."""
        return f"{setup.dtype}, {setup.num_threads} threads; in process, without HTTP"

    def start(self, setup: Setup) -> DriverProcess:
        """Return it when it answers. Raises NotStartedError."""
        command = [str(self.python), str(_DRIVER), str(setup.model), setup.dtype]
        return DriverProcess(
            [*command, str(setup.num_threads)],
            {"PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
            log=setup.logs / f"{self.label}.log",
            start_seconds=setup.start_seconds,
        )
