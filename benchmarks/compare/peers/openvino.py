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
        batched_tokens: Most tokens in one step; 0 for its default.
    """

    label: str
    python: Path
    model: Path
    batched_tokens: int = 0

    def settings(self, setup: Setup) -> str:
        """How it is set up."""
        tokens = f"at most {self.batched_tokens} tokens a step, " if self.batched_tokens else ""
        return (
            f"{self.model.name} run in {setup.dtype}, {setup.num_threads} threads, {tokens}"
            f"KV {KV_BYTES >> 20} MiB of its default type; in process, without HTTP"
        )

    def start(self, setup: Setup) -> DriverProcess:
        """Return it when it answers. Raises NotStartedError."""
        command = [str(self.python), str(_DRIVER), str(self.model), setup.dtype]
        command += [str(KV_BYTES >> 30), str(MAX_STREAMS), str(setup.num_threads)]
        command += [str(self.batched_tokens)]
        return DriverProcess(
            command,
            {"PYTHONPATH": ""},
            log=setup.logs / f"{self.label}.log",
            start_seconds=setup.start_seconds,
        )
