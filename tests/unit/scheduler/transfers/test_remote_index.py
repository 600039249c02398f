"""The index of what stores have: runs of names, bounds, and stores that come and go."""

from hypothesis import given
from hypothesis import strategies as st

from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_shared.identity.ids import BlockName


def name(number: int) -> BlockName:
    return BlockName(number.to_bytes(16, "little"))


def names(*numbers: int) -> list[BlockName]:
    return [name(number) for number in numbers]


def test_the_longest_run_comes_first_and_a_gap_ends_it() -> None:
    index = RemoteIndex()
    index.stored("a", names(1, 2, 4))
    index.stored("b", names(1, 2, 3, 5))
    index.stored("c", names(2, 3, 4))
    for store in "abc":
        index.set_up(store, is_up=True)
    assert index.longest_runs(iter(names(1, 2, 3, 4))) == [("b", 3), ("a", 2)]
    assert index.longest_runs(names(1)) == [("b", 1), ("a", 1)]
    assert index.longest_runs(names(9, 1)) == []
    assert index.longest_runs([]) == []


def test_names_are_read_no_further_than_a_store_goes() -> None:
    index = RemoteIndex()
    index.stored("a", names(1))
    index.set_up("a", is_up=True)
    read: list[int] = []

    def lazily() -> object:
        for number in range(1, 100):
            read.append(number)
            yield name(number)

    assert index.longest_runs(lazily()) == [("a", 1)]  # type: ignore[arg-type]
    assert read == [1, 2]


def test_a_store_that_is_down_keeps_its_names_and_is_not_asked() -> None:
    index = RemoteIndex()
    index.stored("a", names(1, 2))
    assert not index.is_usable
    index.set_up("a", is_up=True)
    assert index.is_usable
    index.set_up("a", is_up=False)
    assert not index.is_usable
    assert index.longest_runs(names(1)) == []
    index.set_up("a", is_up=True)
    assert index.longest_runs(names(1, 2)) == [("a", 2)]
    index.cleared("a")
    assert not index.is_usable


def test_it_is_bounded_and_counts_what_it_did_not_take() -> None:
    index = RemoteIndex(max_names=3)
    index.stored("a", names(*range(5)))
    index.stored("a", names(0, 1))
    assert (index.num_names("a"), index.num_untaken) == (3, 2)
    index.removed("a", names(0))
    index.stored("a", names(9))
    assert (index.num_names("a"), index.num_untaken) == (3, 2)


def test_unknown_stores_and_names_are_fine() -> None:
    index = RemoteIndex()
    index.removed("a", names(1))
    index.cleared("a")
    index.stored("a", names(1))
    index.removed("a", names(2))
    assert index.num_names("a") == 1


@given(
    st.lists(st.sets(st.integers(0, 6)), max_size=4),
    st.lists(st.integers(0, 6), max_size=6, unique=True),
)
def test_runs_are_those_of_a_plain_search(stores: list[set[int]], wanted: list[int]) -> None:
    index = RemoteIndex()
    for number, held in enumerate(stores):
        index.stored(str(number), names(*held))
        index.set_up(str(number), is_up=True)
    runs = index.longest_runs(names(*wanted))
    expected = {}
    for number, held in enumerate(stores):
        length = next((at for at, one in enumerate(wanted) if one not in held), len(wanted))
        if length:
            expected[str(number)] = length
    assert dict(runs) == expected
    assert [length for _, length in runs] == sorted(expected.values(), reverse=True)
