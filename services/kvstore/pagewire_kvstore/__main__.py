"""`python -m pagewire_kvstore`: the KV store's program."""

import sys

from pagewire_kvstore.config import KvStoreConfig
from pagewire_shared.extras import needs_extra
from pagewire_shared.process import ProcessContext, run_role


async def serve(config: KvStoreConfig, context: ProcessContext) -> None:
    """Serve until told to stop."""
    with needs_extra("kvstore"):
        from pagewire_kvstore.store_process import serve as serve_store

    await serve_store(config, context)


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
