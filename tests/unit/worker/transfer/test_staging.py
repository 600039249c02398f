"""Memory for blocks on their way out: bounded, shared where it can be, and gone at the end."""

import pytest

from pagewire_shared.kv.arena import boot_id
from pagewire_shared.kv.extents import GRANULE_BYTES
from pagewire_worker.offload.shared_arena import open_arena
from pagewire_worker.transfer import staging as staging_module
from pagewire_worker.transfer.outgoing_pull import LayerRange, OutgoingPull, Run, StagedLayers
from pagewire_worker.transfer.staging import PREFIX, Staging

PAGE = GRANULE_BYTES


@pytest.fixture
def staging():
    made = Staging(4 * PAGE, is_shared=False)
    made.make()
    yield made
    made.close()


def piece_of(pull, num_bytes=PAGE):
    offset = pull.take_room(num_bytes)
    return None if offset is None else StagedLayers(LayerRange(0, 1, 0, 1), offset, num_bytes)


def pull_of(staging, *, names=4, most=2 * PAGE, tell=lambda: None):
    wanted = [bytes([index]) * 16 for index in range(names)]
    return OutgoingPull(wanted, staging, most, tell, num_layers=2)


def test_others_find_what_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(staging_module, "is_in_memory", lambda folder: True)
    made = Staging(2 * PAGE - 1, is_shared=True, folder=tmp_path)
    assert made.facts is None
    made.make()
    made.make()
    assert (made.num_bytes, made.facts.num_bytes) == (2 * PAGE, 2 * PAGE)
    assert made.facts.boot_id == boot_id()
    made.region(PAGE, 3).fill_(7)
    seen = open_arena(made.facts)
    assert bytes(seen.copy(PAGE, 4)) == b"\7\7\7\0"
    assert bytes(made.view(PAGE, 4)) == b"\7\7\7\0"
    made.close()
    assert list(tmp_path.iterdir()) == []


def test_what_dead_workers_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(staging_module, "is_in_memory", lambda folder: True)
    (tmp_path / f"{PREFIX}old.arena").write_bytes(b"x")
    (tmp_path / "other.arena").write_bytes(b"x")
    made = Staging(PAGE, is_shared=True, folder=tmp_path)
    made.make()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"other.arena", made.facts.path.rpartition("/")[2]}
    made.close()


def test_without_room_it_is_private(tmp_path, monkeypatch):
    monkeypatch.setattr(staging_module, "is_in_memory", lambda folder: True)
    monkeypatch.setattr(staging_module, "free_bytes", lambda folder: PAGE - 1)
    made = Staging(PAGE, is_shared=True, folder=tmp_path)
    made.make()
    assert made.facts is None
    assert list(tmp_path.iterdir()) == []
    made.region(0, 4).fill_(1)
    made.close()


def test_a_pull_holds_its_share_at_most(staging):
    pull, other = pull_of(staging), pull_of(staging)
    pieces = [piece_of(pull), piece_of(pull)]
    assert piece_of(pull) is None
    assert piece_of(other) is not None
    pull.give_back(pieces[0])
    assert piece_of(pull) is not None


def test_one_piece_may_always_be_staged(staging):
    pull = pull_of(staging, most=1)
    assert piece_of(pull, 2 * PAGE) is not None
    assert piece_of(pull) is None


def test_what_is_put_after_the_end_is_given_back(staging):
    pull = pull_of(staging)
    first, second = piece_of(pull), piece_of(pull)
    pull.put(first)
    pull.close()
    pull.put(second)
    assert pull.take() is None
    assert pull.take_room(PAGE) is None
    assert staging.num_free_bytes == staging.num_bytes


def test_a_run_that_was_begun_ends_the_pull_where_it_lies(staging):
    told = []
    pull = pull_of(staging, names=6, tell=lambda: told.append(1))
    pull.runs.extend([Run(0, 1, 1), Run(1, 2, 0), Run(3, 2, 1), Run(5, 1, 1)])
    assert pull.drop_runs(1)
    assert (pull.num_wanted, len(pull.runs), told) == (3, 1, [])
    assert pull.drop_runs(0)
    assert (pull.num_wanted, pull.is_staged, told) == (0, True, [1])


def test_a_run_that_was_not_begun_is_waited_for_again(staging):
    pull = pull_of(staging)
    pull.runs.extend([Run(0, 1), Run(1, 2)])
    assert not pull.drop_runs(0)
    assert (pull.num_wanted, pull.end) == (4, 0)


def test_a_run_is_split_where_blocks_are_lost(staging):
    pull = pull_of(staging)
    pull.runs.append(Run(0, 3, 1))
    head = pull.split_head(2)
    assert [(run.first, run.num_blocks, run.next_layer) for run in pull.runs] == [
        (0, 2, 1),
        (2, 1, 1),
    ]
    assert head is pull.runs[0]
    pull.finish_head()
    assert (pull.num_done, pull.end) == (2, 3)
