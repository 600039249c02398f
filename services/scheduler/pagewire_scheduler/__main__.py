"""`python -m pagewire_scheduler`: one scheduler process."""

import sys

from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.service import serve
from pagewire_shared.process import run_role

if __name__ == "__main__":
    sys.exit(
        run_role(
            "scheduler",
            SchedulerConfig,
            serve,
            description="Runs one cell: queues, block tables, placement and steps of its workers.",
        )
    )
