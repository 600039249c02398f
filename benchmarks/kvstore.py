"""What a KV store brings and costs, with a real store process and real workers.

    python benchmarks/kvstore.py transfer    # GB/s by transport, beside memcpy and raw TCP
    python benchmarks/kvstore.py ttft        # time to first token of a long prefix, by tier
    python benchmarks/kvstore.py disturbed   # throughput with a store stopped, dead or slow
    python benchmarks/kvstore.py cold        # CPU time of requests that find nothing in a store

`ttft`, `disturbed` and `cold` take a checkpoint (`--checkpoint`, see make_checkpoint.py) or use the
built-in model. Results are in docs/performance.md.
"""

import argparse

import kvstore_cold
import kvstore_disturbed
import kvstore_transfer
import kvstore_ttft
from parts.machine import describe


def main() -> None:
    """Run one part and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    for part in (kvstore_transfer, kvstore_ttft, kvstore_disturbed, kvstore_cold):
        part.add_arguments(parts)
    options = parser.parse_args()
    if options.part == "transfer":
        kvstore_transfer.become_worker()
    print(describe())
    options.run(options)


if __name__ == "__main__":
    main()
