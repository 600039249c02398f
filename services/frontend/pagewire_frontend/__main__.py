"""Starts the frontend role: `python -m pagewire_frontend`."""

import sys

from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.serve import serve
from pagewire_shared.process import run_role

if __name__ == "__main__":
    description = (
        "Text in and out: HTTP and gRPC APIs, tokenizers, and the journal of open streams."
    )
    sys.exit(run_role("frontend", FrontendConfig, serve, description=description))
