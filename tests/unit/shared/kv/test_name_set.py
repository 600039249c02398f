"""A set of names in parts is a set, and forgets in parts."""

from hypothesis import given
from hypothesis import strategies as st

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.name_set import NameSet


def names(numbers: list[int]) -> list[BlockName]:
    # Few first bytes, so that parts have several names.
    return [BlockName(bytes([number % 3]) + number.to_bytes(15, "big")) for number in numbers]


NUMBERS = st.lists(st.integers(0, 12), max_size=6)
STEPS = st.tuples(st.sampled_from(["add", "bounded", "discard", "clear"]), NUMBERS)


@given(st.lists(STEPS))
def test_name_set_behaves_like_a_set(steps: list[tuple[str, list[int]]]) -> None:
    made, expected = NameSet(), set[BlockName]()
    for step, numbers in steps:
        given = names(numbers)
        if step == "clear":
            made.clear()
            expected.clear()
        elif step == "discard":
            made.discard_all(given)
            expected.difference_update(given)
        elif step == "add":
            assert made.add_all(given) == 0
            expected.update(given)
        else:
            num_left_out = 0
            for name in given:
                if len(expected) < 5 or name in expected:
                    expected.add(name)
                else:
                    num_left_out += 1
            assert made.add_all(given, max_length=5) == num_left_out
        assert len(made) == len(expected)
        assert sorted(made) == sorted(expected)
        assert all((name in made) == (name in expected) for name in names(list(range(13))))


def test_cleared_names_are_freed_in_parts() -> None:
    made = NameSet(names(list(range(9))))
    made.clear()
    assert (len(made), list(made)) == (0, [])
    assert sum(map(len, made._old_shards)) == 6
    made.add_all(())
    made.discard_all(())
    assert made._old_shards == []
