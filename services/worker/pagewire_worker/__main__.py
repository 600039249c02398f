"""Starts a worker: flags, then the life of the process. Imports torch after parsing the flags."""

import os
import sys

from pagewire_shared.extras import needs_extra
from pagewire_shared.process import ProcessContext, run_role
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cuda_defaults import set_allocator


async def serve(config: WorkerConfig, context: ProcessContext) -> None:
    """Load the model and serve it until told to stop."""
    # Read by the OpenMP runtime when torch loads it. By default its threads spin at every barrier;
    # with the other roles on the same cores that made small matrix products ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    set_allocator(os.environ)
    with needs_extra("worker"):
        from pagewire_worker.server import serve_worker

    await serve_worker(config, context)


def main() -> int:
    """Run the worker with the flags of this process."""
    return run_role(
        "worker", WorkerConfig, serve, description="One model replica: KV cache, model, sampler."
    )


if __name__ == "__main__":
    sys.exit(main())
