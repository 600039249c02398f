"""Starts a worker: parses the flags, then imports torch and runs the process."""

import os
import sys

from pagewire_shared.process.extras import needs_extra
from pagewire_shared.process.process import ProcessContext, Serve, run_role
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cuda.defaults import set_allocator
from pagewire_worker.rank_hosts.lws import is_followed, place_of


def load() -> Serve[WorkerConfig]:
    """Import torch and the server."""
    # Read by the OpenMP runtime when torch loads it. By default its threads spin at every barrier;
    # with the other roles on the same cores that made small matrix products ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Torch's profiler writes what it does to standard error otherwise, also as errors.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    set_allocator(os.environ)
    with needs_extra("worker"):
        if is_followed(os.environ):
            return _serve_followed
        from pagewire_worker.server import serve_worker

    return serve_worker


async def _serve_followed(config: WorkerConfig, context: ProcessContext) -> None:
    """Serve the ranks of a pod behind the first; a worker where the settings have no such pods."""
    place = place_of(config, os.environ)
    if place is not None:
        from pagewire_worker.rank_hosts.follower import serve_pod

        await serve_pod(config, place, context)
        return
    from pagewire_worker.server import serve_worker

    await serve_worker(config, context)


def main() -> int:
    """Run the worker with the flags of this process."""
    return run_role(
        "worker", WorkerConfig, load, description="One model replica: KV cache, model, sampler."
    )


if __name__ == "__main__":
    sys.exit(main())
