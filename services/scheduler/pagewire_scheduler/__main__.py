"""`python -m pagewire_scheduler`: one scheduler process."""

import sys

from pagewire_scheduler.config import SchedulerConfig
from pagewire_shared.extras import needs_extra
from pagewire_shared.process import ProcessContext, run_role


async def serve(config: SchedulerConfig, context: ProcessContext) -> None:
    """Serve until told to stop."""
    with needs_extra("scheduler"):
        from pagewire_scheduler.service import serve as serve_scheduler

    await serve_scheduler(config, context)


if __name__ == "__main__":
    sys.exit(
        run_role(
            "scheduler",
            SchedulerConfig,
            serve,
            description="Runs one cell: queues, block tables, placement and steps of its workers.",
        )
    )
