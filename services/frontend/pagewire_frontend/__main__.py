"""Starts the frontend role: `python -m pagewire_frontend`."""

import sys

from pagewire_frontend.config import FrontendConfig
from pagewire_shared.process.extras import needs_extra
from pagewire_shared.process.process import Serve, run_role


def load() -> Serve[FrontendConfig]:
    """Import the serving modules."""
    with needs_extra("frontend"):
        from pagewire_frontend.serve import serve

    return serve


if __name__ == "__main__":
    description = (
        "Text in and out: HTTP and gRPC APIs, tokenizers, and the journal of open streams."
    )
    sys.exit(run_role("frontend", FrontendConfig, load, description=description))
