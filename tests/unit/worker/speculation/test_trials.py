"""In which steps it is asked whether drafts pay."""

from pagewire_worker.speculation.trials import MOST_REST, Rests


def asked(rests: Rests, num_steps: int, *, is_paying: bool) -> list[int]:
    """Return the steps in which it is asked, all with one answer."""
    found = []
    for step in range(num_steps):
        if not rests.take():
            rests.note(is_paying=is_paying)
            found.append(step)
    return found


def test_it_is_asked_ever_less_while_drafts_do_not_pay() -> None:
    steps = asked(Rests(), 40, is_paying=False)
    assert steps == [0, 2, 6, 14, 22, 30, 38]
    assert MOST_REST == 8


def test_it_is_asked_in_each_step_while_they_pay_and_when_a_sequence_begins() -> None:
    rests = Rests()
    assert asked(rests, 5, is_paying=True) == [0, 1, 2, 3, 4]
    asked(rests, 20, is_paying=False)
    rests.end()
    assert asked(rests, 3, is_paying=False) == [0, 2]
