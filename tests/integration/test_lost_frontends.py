"""Streams that go on at another frontend when theirs is killed."""

from collections.abc import Iterator

import httpx
import pytest

from support.cells.clusters import Cluster
from support.traffic.lost_frontends import (
    KINDS,
    SECONDS,
    body_of,
    broken,
    shown,
    started,
    undisturbed,
    wait_all,
)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three frontends before one worker."""
    with started(tmp_path_factory.mktemp("lost")) as cluster:
        yield cluster


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_goes_on_where_its_frontend_was_killed(group: Cluster, kind: str) -> None:
    path, body = body_of(group.model, kind, 7)
    whole = undisturbed(group.http_url, path, body)
    joined, _ = broken(group, path, body, len(whole.read) // 2)
    assert shown(joined) == shown(whole)
    assert [one for one, _ in joined.read] == [
        f"{joined.stream_id}:{number}" for number in range(len(joined.read))
    ]
    again = httpx.get(f"{group.http_url}/v1/streams/{joined.stream_id}", timeout=SECONDS)
    assert again.text == "".join(f"id: {name}\ndata: {data}\n\n" for name, data in joined.read)
    wait_all(group)
