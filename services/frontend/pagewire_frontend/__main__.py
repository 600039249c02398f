"""Starts the frontend role: `python -m pagewire_frontend`."""

import sys

from pagewire_frontend.config import FrontendConfig
from pagewire_shared.extras import needs_extra
from pagewire_shared.process import ProcessContext, run_role


async def serve(config: FrontendConfig, context: ProcessContext) -> None:
    """Serve until told to stop."""
    with needs_extra("frontend"):
        from pagewire_frontend.serve import serve as serve_frontend

    await serve_frontend(config, context)


if __name__ == "__main__":
    description = (
        "Text in and out: HTTP and gRPC APIs, tokenizers, and the journal of open streams."
    )
    sys.exit(run_role("frontend", FrontendConfig, serve, description=description))
