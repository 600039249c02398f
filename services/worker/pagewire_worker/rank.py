"""Runs the process of a rank behind the first; rank 0, a worker, starts it."""

import os
import signal
import sys

from pagewire_shared.errors import PagewireError
from pagewire_shared.process.logs import configure_logging
from pagewire_worker.parallel.rank_task import RankTask, die_with, show_stacks


def main() -> int:
    """Serve rank 0 until it ends; return the exit status."""
    task = RankTask.decode(sys.stdin.buffer.readline())
    die_with(task.parent)
    show_stacks(task.stacks_fd)
    role = f"worker rank {task.rank}"
    configure_logging(role, task.config.log_level, task.config.log_format)
    # As in __main__, for torch that is imported now.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    # A terminal sends it to all processes; rank 0 ends the others when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    from pagewire_worker.serving.rank_loop import serve_task

    try:
        lost = serve_task(task)
    except PagewireError as error:
        message = " ".join(error.message.split())
        print(f"pagewire {role}: error: {message}", file=sys.stderr, flush=True)
        return 1
    if lost == 0 and task.host == 0 and os.getppid() == task.parent:
        # It stands still, and so would its streams: a worker that has ended is started again.
        print(f"pagewire {role}: rank 0 stands still, its process is ended", file=sys.stderr)
        os.kill(task.parent, signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main())
