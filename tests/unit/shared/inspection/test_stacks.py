"""Stacks of this process: threads, tasks at their places, no values, and bounds."""

import asyncio
import os
import threading
from dataclasses import replace

import pytest

from pagewire_shared.inspection import stacks
from pagewire_shared.inspection.stacks import (
    CodePlace,
    ProcessPlaces,
    TaskPlaces,
    ThreadPlaces,
    is_asked_for,
    own_stacks,
)
from pagewire_shared.inspection.stacks_convert import (
    MAX_PROCESS_BYTES,
    MAX_STACKS_BYTES,
    fitted_stacks,
    stacks_from_message,
    stacks_to_message,
    without_stacks,
)

SECRET = "sk-not-to-be-shown"


async def wait_inside(event: asyncio.Event, secret: str) -> None:
    await wait_outside(event, secret)


async def wait_outside(event: asyncio.Event, secret: str) -> None:
    await event.wait()


async def test_tasks_that_wait_at_one_place_are_one_entry_without_values():
    event = asyncio.Event()
    tasks = [asyncio.create_task(wait_inside(event, SECRET)) for _ in range(30)]
    await asyncio.sleep(0)
    process = own_stacks("worker", "aa")
    event.set()
    await asyncio.gather(*tasks)
    (waiting,) = [task for task in process.tasks if task.name == "wait_inside"]
    assert waiting.count == 30
    functions = [frame.function for frame in waiting.frames]
    assert functions == ["Event.wait", "wait_outside", "wait_inside"]
    assert waiting.frames[1].file == __file__[-200:]
    assert waiting.frames[1].line == wait_outside.__code__.co_firstlineno + 1
    assert process.pid == os.getpid()
    assert SECRET not in repr(process)


async def test_threads_of_python_have_frames_and_the_numbers_of_the_system():
    leave, there = threading.Event(), threading.Event()

    def hang(secret: str) -> None:
        there.set()
        leave.wait(20)

    thread = threading.Thread(target=hang, args=(SECRET,), name="hanging")
    thread.start()
    try:
        there.wait(20)
        process = own_stacks("worker", "aa")
    finally:
        leave.set()
        thread.join()
    (found,) = [one for one in process.threads if one.name == "hanging"]
    assert any(frame.function.endswith("hang") for frame in found.frames)
    assert found.native_id == thread.native_id
    assert SECRET not in repr(process)


async def test_what_is_too_much_is_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stacks, "MAX_TASKS", 10)
    monkeypatch.setattr(stacks, "MAX_THREADS", 0)
    event = asyncio.Event()
    tasks = [asyncio.create_task(wait_inside(event, "")) for _ in range(25)]
    await asyncio.sleep(0)
    process = own_stacks("worker", "aa")
    event.set()
    await asyncio.gather(*tasks)
    assert sum(task.count for task in process.tasks) == 10
    assert process.threads == ()
    # The test itself is a task.
    assert process.num_left_out >= 16 + threading.active_count()


def test_a_deep_recursion_has_its_innermost_frames():
    def descend(depth: int) -> tuple[CodePlace, ...]:
        if depth:
            return descend(depth - 1)
        (own,) = [
            one
            for one in own_stacks("worker", "aa").threads
            if one.native_id == threading.get_native_id()
        ]
        return own.frames

    frames = descend(200)
    assert len(frames) == stacks.MAX_FRAMES
    assert frames[10].function.endswith("descend")


def places(num_frames: int, size: int = 0) -> tuple[CodePlace, ...]:
    return tuple(CodePlace("f" * size, line, "g") for line in range(num_frames))


PROCESS = ProcessPlaces(
    role="worker",
    name="ab",
    pid=7,
    error="late",
    threads=(ThreadPlaces(name="model", native_name="python", native_id=3, frames=places(2)),),
    tasks=(TaskPlaces("run", 4, places(3)),),
    num_left_out=2,
)


def test_stacks_survive_the_wire():
    assert stacks_from_message(stacks_to_message(PROCESS)) == PROCESS


def test_a_message_is_bounded():
    tasks = tuple(TaskPlaces(f"t{number}", 2, places(64, 200)) for number in range(200))
    message = stacks_to_message(replace(PROCESS, tasks=tasks, num_left_out=0))
    assert message.ByteSize() <= MAX_PROCESS_BYTES
    assert len(message.threads) == 1
    assert message.num_left_out == 2 * (200 - len(message.tasks)) > 0


def test_processes_that_do_not_fit_an_answer_are_named():
    tasks = tuple(TaskPlaces(f"t{number}", 1, places(64, 150)) for number in range(40))
    large = stacks_to_message(replace(PROCESS, tasks=tasks))
    number = MAX_STACKS_BYTES // large.ByteSize() + 3
    fitted = fitted_stacks([large] * number)
    assert len(fitted) == number
    assert sum(one.ByteSize() for one in fitted) < MAX_STACKS_BYTES + 10_000
    assert fitted[-1].error.startswith("left out")


def test_a_target_is_a_role_or_the_beginning_of_a_name():
    assert is_asked_for(None, "worker", "abc")
    assert is_asked_for("worker", "worker", "abc")
    assert is_asked_for("ab", "worker", "abc")
    assert not is_asked_for("frontend", "worker", "abc")
    assert without_stacks("worker", "abc", "gone").error == "gone"
