"""`python -m pagewire_scheduler`: runs one scheduler process."""

import sys

from pagewire_scheduler.config import SchedulerConfig
from pagewire_shared.process.extras import needs_extra
from pagewire_shared.process.process import Serve, run_role


def load() -> Serve[SchedulerConfig]:
    """Import and return the function that serves."""
    with needs_extra("scheduler"):
        from pagewire_scheduler.service import serve

    return serve


if __name__ == "__main__":
    sys.exit(
        run_role(
            "scheduler",
            SchedulerConfig,
            load,
            description="Runs one cell: queues, block tables, placement and steps of its workers.",
        )
    )
