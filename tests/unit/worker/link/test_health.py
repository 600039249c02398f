"""Whether a worker's model gets on."""

from pagewire_worker.link.health import StuckWatch


def test_a_job_without_progress_is_stuck_in_the_end():
    watch = StuckWatch(5.0, now=0.0)
    assert not watch.is_stuck(4.0, 0, is_busy=True)
    assert not watch.is_stuck(5.0, 0, is_busy=True)
    assert watch.is_stuck(5.1, 0, is_busy=True)
    # And it may come back.
    assert not watch.is_stuck(6.0, 1, is_busy=True)
    assert not watch.is_stuck(11.0, 1, is_busy=True)
    assert watch.is_stuck(11.1, 1, is_busy=True)


def test_who_has_no_job_waits_as_long_as_it_likes():
    watch = StuckWatch(5.0, now=0.0)
    assert not watch.is_stuck(100.0, 0, is_busy=False)
    assert not watch.is_stuck(104.0, 0, is_busy=True)
    assert watch.is_stuck(106.0, 0, is_busy=True)
