"""Each request of a traced cell has one trace whose spans cover its time, also after kills."""

import argparse

import pytest

from support.traffic import traced_requests


@pytest.mark.long
def test_spans_cover_the_time_of_every_request() -> None:
    given = argparse.Namespace(requests=84, at_once=32, kill_every=30, seed=3)
    assert traced_requests.run(given) == 0
