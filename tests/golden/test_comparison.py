"""What the golden comparison lets pass, and what it does not."""

import pytest

from support.oracles.greedy import Greedy, assert_equal_but_for_near_ties

CLEAR = Greedy((1, 2), (1.0, 1.0))
TIED = Greedy((1, 2), (1.0, 1e-5))


def test_a_near_tie_in_one_of_a_hundred_passes_and_is_shown() -> None:
    with pytest.warns(UserWarning, match=r"near ties in x at .*\(0, 1\)"):
        assert_equal_but_for_near_ties([(1, 3)] + [(1, 2)] * 99, [TIED] + [CLEAR] * 99, "x")


@pytest.mark.parametrize("output", [(1, 3), (1,), (1, 2, 3), ()])
def test_any_other_difference_fails(output: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError, match="1 of 100 outputs differ"):
        assert_equal_but_for_near_ties([output] + [(1, 2)] * 99, [CLEAR] * 100, "x")


@pytest.mark.filterwarnings("ignore:near ties")
def test_too_many_near_ties_fail() -> None:
    with pytest.raises(AssertionError, match="too many near ties"):
        assert_equal_but_for_near_ties([(1, 3)] * 2 + [(1, 2)] * 98, [TIED] * 100, "x")
