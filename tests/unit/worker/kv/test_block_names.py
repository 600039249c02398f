"""Names of blocks, both ways: compared with a list of pairs."""

from hypothesis import given
from hypothesis import strategies as st

from pagewire_worker.kv.block_names import BlockNames

BLOCKS = st.integers(0, 5)
NAMES = st.sampled_from([b"a" * 16, b"b" * 16, b"c" * 16])
ACTIONS = st.lists(st.tuples(st.just("name"), BLOCKS, NAMES) | st.tuples(st.just("forget"), BLOCKS))


@given(ACTIONS)
def test_a_name_leads_to_a_block_that_has_it(actions):
    names, plain = BlockNames(), {}
    for kind, block, *name in actions:
        if kind == "name":
            names.name(block, name[0])
            plain[block] = name[0]
        else:
            names.forget([block])
            plain.pop(block, None)
        assert names.held() == plain
        for one in (b"a" * 16, b"b" * 16, b"c" * 16):
            found = names.find(one)
            assert (found is None) == (one not in plain.values())
            assert found is None or plain[found] == one
    names.clear()
    assert len(names) == 0
    assert names.find(b"a" * 16) is None
