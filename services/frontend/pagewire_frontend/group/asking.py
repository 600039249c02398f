"""Asks the members of a group in the order in which they may have a stream."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from pagewire_frontend.group.holders import holders_of, maker_of
from pagewire_frontend.http.kept_streams.ids import StreamElsewhereError, stream_elsewhere
from pagewire_shared.errors import UnavailableError

Answer = TypeVar("Answer")


def path_of(stream_id: str, names: Iterable[str], maker_name: str = "") -> list[str]:
    """Return the members in the order in which they are asked: the maker first.

    Args:
        maker_name: Who made the stream again, as far as it is known; it comes next.
    """
    names = list(names)
    first = [maker_of(stream_id, names), maker_name]
    path = [*(name for name in first if name in names), *holders_of(stream_id, names)]
    return list(dict.fromkeys(name for name in path if name is not None))


def path_before(stream_id: str, own: str, names: Iterable[str], maker_name: str) -> list[str]:
    """Return the members that are asked before the member `own`."""
    path = path_of(stream_id, [own, *names], maker_name)
    return path[: path.index(own)]


async def first_answer(
    stream_id: str, names: Iterable[str], ask: Callable[[str], Awaitable[Answer]]
) -> Answer:
    """Return what the first member answers that has the stream.

    Args:
        ask: Asks the member of a name.

    Raises:
        UnavailableError: None has it, and one that may have it does not answer.
        StreamElsewhereError: None has it.
        PagewireError: What the member answers that has it.
    """
    away: UnavailableError | None = None
    for name in names:
        try:
            return await ask(name)
        except StreamElsewhereError:
            continue
        except UnavailableError as error:
            away = error
    raise away or stream_elsewhere(stream_id)
