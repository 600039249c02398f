"""What the poisoned interpreter finds and lets pass, and the bugs planted for it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from simulation.planted.mutant import Mutant
from triton.runtime.errors import InterpreterError

from support.poison import is_on
from support.poison.extents import Extent
from support.poison.hunt import hunt_apart, patched
from support.poison.planted import PLANTED
from support.poison.recorded import FreedMemoryError, RecordedCapture
from support.products import WHOLE

needs_poison = pytest.mark.skipif(not is_on(), reason="PAGEWIRE_POISON=0")


@triton.jit
def _copy(source, target, offset, count, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    values = tl.load(source + offset + places, mask=places < count, other=0.0)
    tl.store(target + places, values, mask=places < count)


@triton.jit
def _quotients(target, first, last):
    for number in range(first, last):
        place = target + 2 * (number - first)
        tl.store(place, number // 4)
        tl.store(place + 1, number % 4)


def copy(source, count, offset=0, block=16):
    target = torch.full((block,), 7.0)
    _copy[(1,)](source, target, offset, count, BLOCK=block)
    return target


@needs_poison
@pytest.mark.parametrize(("offset", "count"), [(0, 9), (-1, 1), (8, 1), (2**30, 1)])
def test_reads_outside_of_a_tensor_are_found(offset, count):
    # The memory around it is somebody's: nothing else would fail.
    source = torch.zeros(24)[8:16]
    with pytest.raises(InterpreterError, match="_copy reads outside of source: element"):
        copy(source, count, offset)


def test_masked_lanes_may_point_anywhere():
    assert copy(torch.ones(8), 8).tolist() == [1.0] * 8 + [7.0] * 8


@needs_poison
def test_gaps_of_a_view_are_not_its_own():
    view = torch.zeros(4, 10)[:, :6]
    assert copy(view, 6, 10)[:6].tolist() == [0.0] * 6
    with pytest.raises(InterpreterError, match="reads outside of source: element 6 of 36"):
        copy(view, 7)


def test_an_empty_tensor_has_no_addresses():
    extent = Extent.of(torch.zeros(0))
    assert extent.outside(np.array([extent.begin], dtype=np.uint64)) is not None


@needs_poison
def test_whole_numbers_divide_as_in_c():
    """Also the variable of a loop, which Python would round down."""
    found = torch.empty((8, 2), dtype=torch.int32)
    _quotients[(1,)](found, -7, 1)
    expected = [[int(number / 4), int(np.fmod(number, 4))] for number in range(-7, 1)]
    assert found.tolist() == expected


def test_new_memory_of_the_product_is_no_number():
    if is_on():
        assert torch.empty(3).isnan().all()
        assert torch.ones(3, dtype=torch.float8_e4m3fn).new_empty(2).float().isnan().all()
        assert torch.empty_like(torch.ones(2, dtype=torch.int64)).min() == 2**63 - 1


def test_a_recorded_graph_starts_its_launches_again_and_no_python():
    calls, source, target = [], torch.ones(16), torch.zeros(16)

    def work():
        calls.append(1)
        _copy[(1,)](source * 2, target, 0, 16, BLOCK=16)

    captured = RecordedCapture()(work)
    source.fill_(3.0)
    captured.replay()
    assert target.tolist() == [6.0] * 16
    assert len(calls) == 2


def test_a_recorded_graph_keeps_nothing_alive():
    held, target = [torch.ones(16)], torch.zeros(16)
    captured = RecordedCapture()(lambda: target.copy_(held[0]))
    captured.replay()
    held[0] = torch.ones(16)
    with pytest.raises(FreedMemoryError, match="copy_"):
        captured.replay()


def test_a_recorded_graph_waits_for_nothing():
    with pytest.raises(AssertionError, match="cannot be captured"):
        RecordedCapture()(lambda: torch.ones(1).item())


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_a_bug_can_be_planted(mutant: Mutant):
    for module, before, after in mutant.patches:
        spec = importlib.util.find_spec(module)
        assert after in patched(module, spec.origin, [(before, after)])
    for test in mutant.caught_by:
        path, _, name = test.partition("::")
        text = (Path(__file__).parents[3] / path).read_text()
        assert f"def {name.partition('[')[0]}" in text


def test_there_are_enough_bugs():
    assert len({mutant.name for mutant in PLANTED}) == len(PLANTED) >= 10


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "chosen", [PLANTED[::3], pytest.param(PLANTED, marks=WHOLE)], ids=["third", "all"]
)
def test_each_planted_bug_is_found(chosen: list[Mutant]):
    found = hunt_apart([mutant.name for mutant in chosen])
    assert len(found) == len(chosen)
    assert not {name: how for name, (is_found, how) in found.items() if not is_found}
