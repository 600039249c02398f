"""A store, or a process inside a `with`, whose checksums are all 0: what is left is moving bytes.

For comparison only; nothing in the product can do without them. Run as a script, this file is such
a store.
"""

import contextlib
import sys
from collections.abc import Iterator
from unittest import mock

from pagewire_kvstore import __main__ as kvstore
from pagewire_shared.kv import checksum

PROGRAM = [__file__]


@contextlib.contextmanager
def no_checksums() -> Iterator[None]:
    """Let every module that is loaded find 0 to be the checksum of everything."""
    functions = {"crc32c": checksum.crc32c, "joined_crc32c": checksum.joined_crc32c}
    with contextlib.ExitStack() as stack:
        for module in list(sys.modules.values()):
            for name, function in functions.items():
                if vars(module).get(name) is function:
                    stack.enter_context(mock.patch.object(module, name, _zero))
        yield


def _zero(*parts: object) -> int:
    return 0


if __name__ == "__main__":
    with no_checksums():
        sys.exit(kvstore.main())
