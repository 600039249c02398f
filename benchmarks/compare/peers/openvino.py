"""OpenVINO GenAI, by a Python that has it and the folder of the converted model. Without HTTP."""

from dataclasses import dataclass
from pathlib import Path

from compare.peers.driver_process import DriverProcess
from compare.peers.protocol import KV_BYTES, MAX_STREAMS, Setup

_DRIVER = Path(__file__).parent.parent / "drivers" / "run_openvino.py"


@dataclass(frozen=True, slots=True)
class OpenVino:
    """One installation with one converted model.

    Attributes:
        label: Its column.
        python: Of the environment that has it.
        model: Folder that optimum-cli has written.
    """

    label: str
    python: Path
    model: Path

    def settings(self, setup: Setup) -> str:
        """How it is set up."""
        return (
            f"{self.model.name} run in {setup.dtype}, {setup.num_threads} threads, "
            f"KV {KV_BYTES >> 20} MiB of its default type; in process, without HTTP"
        )

    def start(self, setup: Setup) -> DriverProcess:
        """Return it when it answers. Raises NotStartedError."""
        command = [str(self.python), str(_DRIVER), str(self.model), setup.dtype]
        command += [str(KV_BYTES >> 30), str(MAX_STREAMS), str(setup.num_threads)]
        return DriverProcess(
            command,
            {"PYTHONPATH": ""},
            log=setup.logs / f"{self.label}.log",
            start_seconds=setup.start_seconds,
        )
