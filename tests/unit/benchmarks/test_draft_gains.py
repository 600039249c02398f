"""The gain of drafts that is computed for another model."""

import pytest
from parts.draft_gains import Acceptance, speedup


def rising(num_rows):
    return 1.0 + 0.1 * (num_rows - 1)


@pytest.mark.parametrize(
    ("measured", "num_drafts", "expected"),
    [
        # Ten steps of a token each, and no draft.
        (Acceptance(10, 0, (0, 0)), 2, 1.0),
        # Every step has two right drafts: three tokens in 1.2 steps.
        (Acceptance(30, 10, (10, 10)), 2, 3 / 1.2),
        (Acceptance(30, 10, (10, 10)), 1, 2 / 1.1),
        # Half of ten steps have drafts that are wrong.
        (Acceptance(10, 5, (0, 0)), 2, 1 / 1.1),
        # Half of ten steps have drafts; the first one is right in four of five, both in two.
        (Acceptance(16, 5, (4, 2)), 2, 1.6 / 1.1),
    ],
)
def test_gains_of_made_up_steps(measured, num_drafts, expected):
    assert speedup(measured, num_drafts, rising) == pytest.approx(expected)
