"""The places where the content of an adapter may be read, in the order in which they are asked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_worker.adapters.metrics import FOLDER, PEER, STORE

_FILE: Final = "file:"
_GRPC: Final = "grpc:"


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """One place.

    Attributes:
        kind: "folder", "peer" or "store", as in metrics; empty for none of them.
        place: Path of a folder, or address of a server.
    """

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind} {self.place}"


def sources_in_order(named: Sequence[str], stores: Sequence[str]) -> list[AdapterSource]:
    """Return folders first, then the other named sources, then the KV stores.

    Args:
        named: Sources of an order, `file:PATH` or `grpc:ADDRESS`.
        stores: Addresses of KV stores.
    """
    found = [*_named(named), *(AdapterSource(STORE, address) for address in stores)]
    found.sort(key=lambda one: one.kind != FOLDER)
    return found


def _named(texts: Sequence[str]) -> Iterator[AdapterSource]:
    for text in texts:
        if text.startswith(_FILE):
            yield AdapterSource(FOLDER, text.removeprefix(_FILE))
        elif text.startswith(_GRPC):
            yield AdapterSource(PEER, text.removeprefix(_GRPC))
        else:
            yield AdapterSource("", text)
