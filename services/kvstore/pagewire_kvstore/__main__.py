"""Program of the KV store: `python -m pagewire_kvstore`."""

import sys

from pagewire_kvstore.config import KvStoreConfig
from pagewire_shared.process.extras import needs_extra
from pagewire_shared.process.process import Serve, run_role


def load() -> Serve[KvStoreConfig]:
    """Import the server and return its entry point."""
    with needs_extra("kvstore"):
        from pagewire_kvstore.store_process import serve

    return serve


def main() -> int:
    """Run the store with the flags of this process."""
    return run_role(
        "kvstore",
        KvStoreConfig,
        load,
        description="Content-addressed KV blocks that outlive the workers that computed them.",
    )


if __name__ == "__main__":
    sys.exit(main())
