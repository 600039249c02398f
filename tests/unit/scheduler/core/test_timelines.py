"""Where the time of a choice went is told once, with its first token, however its prompt is cut."""

import pytest
from unit.scheduler.cell import Cell


@pytest.mark.parametrize("steps_in_flight", [1, 2])
@pytest.mark.parametrize("num_prompt", [8, 9, 10, 17])
def test_every_cut_of_a_prompt_tells_its_timeline_once(
    num_prompt: int, steps_in_flight: int
) -> None:
    """9 and 17 leave one token for the last piece, as if it were one that was sampled."""
    cell = Cell(max_num_batched_tokens=8, steps_in_flight=steps_in_flight)
    cell.submit(1, list(range(num_prompt)))
    tokens = 0
    for events in cell.turns():
        tokens += bool(events)
        assert len(cell.timelines) == min(tokens, 1)
    assert tokens > 1
