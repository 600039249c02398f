"""`python -m pagewire_kvstore`: the KV store's program."""

import sys

from pagewire_kvstore.config import KvStoreConfig
from pagewire_kvstore.store_process import serve
from pagewire_shared.process import run_role


def main() -> int:
    """Run the store with the flags of this process."""
    return run_role(
        "kvstore",
        KvStoreConfig,
        serve,
        description="Content-addressed KV blocks that outlive the workers that computed them.",
    )


if __name__ == "__main__":
    sys.exit(main())
