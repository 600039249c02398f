"""Standby processes: replacements for children that do not answer, at most one per child.

watchdog.py decides when a standby is prepared or dismissed.
"""

from collections.abc import Callable

from pagewire.local.child_process import ChildProcess
from pagewire.local.layout import ChildSpec

END_SECONDS = 5.0
"""Longest wait from SIGKILL to the end of a process; waiting for a disk may take longer."""


class Standbys:
    """The waiting standbys, and dismissed ones that have not ended yet.

    Args:
        launch: Starts the process of a child; a standby if `is_standby`.
    """

    def __init__(self, launch: Callable[..., ChildProcess]) -> None:
        self._launch = launch
        self._waiting: dict[str, ChildProcess] = {}
        self._dismissed: set[ChildProcess] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def owns(self, process: ChildProcess) -> bool:
        """Return whether `process` is a standby, waiting or dismissed, not a running child."""
        return process in self._dismissed or self._waiting.get(process.name) is process

    def prepare(self, spec: ChildSpec) -> int:
        """Start a standby for a child without one; return its process id. Raises OSError."""
        process = self._waiting[spec.name] = self._launch(spec, is_standby=True)
        return process.pid

    def take(self, name: str) -> ChildProcess | None:
        """Let the standby of a child serve as that child's process; None without a standby.

        The standby may still import. If it has ended unnoticed, its exit counts as the child's.
        """
        process = self._waiting.pop(name, None)
        if process is not None:
            process.go()
        return process

    def dismiss(self, name: str) -> bool:
        """End the standby of a child; return whether the child had one."""
        process = self._waiting.pop(name, None)
        if process is None:
            return False
        self._dismissed.add(process)
        process.kill()
        return True

    def exited(self, process: ChildProcess) -> bool:
        """Note that a standby has ended; return whether it was still waiting."""
        if process in self._dismissed:
            self._dismissed.remove(process)
            return False
        del self._waiting[process.name]
        return True

    def end(self) -> None:
        """End all standbys and wait for their end."""
        for name in tuple(self._waiting):
            self.dismiss(name)
        for process in self._dismissed:
            process.wait_gone(END_SECONDS)
