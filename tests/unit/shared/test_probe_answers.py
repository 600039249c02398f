"""Probes come from a thread, answers from the event loop."""

import asyncio
import threading

from pagewire_shared.process.probe_answers import ProbeAnswers


async def test_the_event_loop_answers() -> None:
    answered = asyncio.Event()
    threads = []

    def answer() -> None:
        threads.append(threading.current_thread())
        answered.set()

    probes = ProbeAnswers(answer)
    probes.serve(asyncio.get_running_loop())
    for _ in range(3):
        await asyncio.to_thread(probes.asked)
        await asyncio.wait_for(answered.wait(), 10)
        answered.clear()
    assert threads == [threading.main_thread()] * 3


async def test_probes_before_the_loop_runs_are_answered_once() -> None:
    answers = []
    probes = ProbeAnswers(lambda: answers.append(1))
    probes.asked()
    probes.asked()
    probes.serve(asyncio.get_running_loop())
    for _ in range(5):
        await asyncio.sleep(0)
    assert answers == [1]


def test_an_ended_loop_is_no_error() -> None:
    probes = ProbeAnswers(lambda: None)
    loop = asyncio.new_event_loop()
    probes.serve(loop)
    loop.close()
    probes.asked()
