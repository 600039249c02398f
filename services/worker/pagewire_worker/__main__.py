"""Starts a worker: parses the flags, then imports torch and runs the process."""

import os
import sys

from pagewire_shared.process.extras import needs_extra
from pagewire_shared.process.process import Serve, run_role
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cuda.defaults import set_allocator


def load() -> Serve[WorkerConfig]:
    """Import torch and the server."""
    # Read by the OpenMP runtime when torch loads it. By default its threads spin at every barrier;
    # with the other roles on the same cores that made small matrix products ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    set_allocator(os.environ)
    with needs_extra("worker"):
        from pagewire_worker.server import serve_worker

    return serve_worker


def main() -> int:
    """Run the worker with the flags of this process."""
    return run_role(
        "worker", WorkerConfig, load, description="One model replica: KV cache, model, sampler."
    )


if __name__ == "__main__":
    sys.exit(main())
