"""Processes that stand by: started for a child that does not answer, and told to go when it has
ended. One for each child at most. Decides nothing about when.
"""

from collections.abc import Callable

from pagewire.local.child_process import ChildProcess
from pagewire.local.layout import ChildSpec

END_SECONDS = 5.0
"""From SIGKILL until a process is gone; one that waits for a disk may take longer."""


class Standbys:
    """The processes that wait, and those that were ended and are not gone yet.

    Args:
        launch: Starts the process of a child; one that waits if `is_standby`.
    """

    def __init__(self, launch: Callable[..., ChildProcess]) -> None:
        self._launch = launch
        self._waiting: dict[str, ChildProcess] = {}
        self._dismissed: set[ChildProcess] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def owns(self, process: ChildProcess) -> bool:
        """Whether what `process` tells is not of a child that runs."""
        return process in self._dismissed or self._waiting.get(process.name) is process

    def prepare(self, spec: ChildSpec) -> int:
        """Start one for a child that has none; return its process id. Raises OSError."""
        process = self._waiting[spec.name] = self._launch(spec, is_standby=True)
        return process.pid

    def take(self, name: str) -> ChildProcess | None:
        """Tell the one of a child to go; it is that child's process from now on. None without one.

        It may still import, or have ended and not be known to: then its exit is the child's.
        """
        process = self._waiting.pop(name, None)
        if process is not None:
            process.go()
        return process

    def dismiss(self, name: str) -> bool:
        """End the one of a child; return whether there was one."""
        process = self._waiting.pop(name, None)
        if process is None:
            return False
        self._dismissed.add(process)
        process.kill()
        return True

    def exited(self, process: ChildProcess) -> bool:
        """One that is owned is gone; return whether it waited still."""
        if process in self._dismissed:
            self._dismissed.remove(process)
            return False
        del self._waiting[process.name]
        return True

    def end(self) -> None:
        """End all and wait until they are gone."""
        for name in tuple(self._waiting):
            self.dismiss(name)
        for process in self._dismissed:
            process.wait_gone(END_SECONDS)
