"""The tables, as markdown: medians with their spread, then ours against every other server."""

from collections.abc import Iterator, Sequence

from compare.cases import Metric, rows
from compare.results import ServerResult, advantage

LOUD = 0.05
NOTHING = "-"


def tables(servers: Sequence[ServerResult], ours: Sequence[str], letters: Sequence[str]) -> str:
    """Return all tables and notes; `ours` are labels of servers."""
    parts = ["\n".join(_server_rows(servers)), "\n".join(_figure_rows(servers, letters))]
    measured = [server for server in servers if server.runs]
    peers = [server for server in measured if server.label not in ours]
    for server in measured:
        if server.label in ours and peers:
            parts.append("\n".join(_advantage_rows(server, peers, letters)))
    parts.append("\n".join(_notes(servers)))
    return "\n\n".join(part for part in parts if part)


def _header(cells: Sequence[str]) -> list[str]:
    return [_row(cells), _row(["---"] * len(cells))]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _server_rows(servers: Sequence[ServerResult]) -> Iterator[str]:
    yield from _header(["server", "settings", "state"])
    for server in servers:
        failure = server.failures.get("")
        yield _row([server.label, server.settings, f"not run: {failure}" if failure else "ran"])


def _figure_rows(servers: Sequence[ServerResult], letters: Sequence[str]) -> Iterator[str]:
    yield from _header(["case", "figure", *(server.label for server in servers)])
    for case, metric, (letter, title) in _titled(letters):
        cells = [figure(server.figures(letter, metric.name), metric.digits) for server in servers]
        yield _row([f"{letter}) {title}" if case else "", metric.title, *cells])


def figure(values: Sequence[float], digits: int) -> str:
    """Return median and, of several values, least and most."""
    if not values:
        return NOTHING
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    spread = f" ({ordered[0]:.{digits}f}..{ordered[-1]:.{digits}f})" if len(ordered) > 1 else ""
    return f"{middle:.{digits}f}{spread}"


def _advantage_rows(
    ours: ServerResult, peers: Sequence[ServerResult], letters: Sequence[str]
) -> Iterator[str]:
    yield f"{ours.label}, times as good as (above 1 is better):\n"
    yield from _header(["case", "figure", *(peer.label for peer in peers), "the best of them"])
    for _, metric, (letter, _) in _titled(letters):
        found = [_advantage(ours, peer, letter, metric) for peer in peers]
        known = [one for one in found if one is not None]
        cells = [NOTHING if one is None else f"{one:.2f}" for one in found]
        if known:
            yield _row([letter, metric.title, *cells, f"{min(known):.2f}"])


def _advantage(ours: ServerResult, peer: ServerResult, letter: str, metric: Metric) -> float | None:
    mine, theirs = ours.median(letter, metric.name), peer.median(letter, metric.name)
    if not mine or not theirs:
        return None
    return advantage(mine, theirs, more_is_better=metric.more_is_better)


def _titled(letters: Sequence[str]) -> Iterator[tuple[bool, Metric, tuple[str, str]]]:
    """Yield whether a row is the first of its case, its metric, and the case."""
    before = ""
    for letter, title, metric in rows(letters):
        yield letter != before, metric, (letter, title)
        before = letter


def _notes(servers: Sequence[ServerResult]) -> Iterator[str]:
    for server in servers:
        for letter, reason in sorted(server.failures.items()):
            if letter:
                yield f"- {server.label}, case {letter} failed: {reason}"
        loud = server.loud_cases(LOUD)
        if loud:
            told = "; ".join(
                f"{letter} {', '.join(f'{share:.0%}' for share in shares)}"
                for letter, shares in loud.items()
            )
            yield f"- {server.label}, foreign CPU in each run: {told}"
