"""Finds out where the code of this process is: its threads and its asyncio tasks.

A stack has files, lines and names of functions, and no values: neither prompts nor keys. Everything
is bounded; tasks that wait at the same place are one entry with their number.
"""

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

MAX_FRAMES: Final = 64
"""Frames of one stack, the innermost ones."""
MAX_THREADS: Final = 256
MAX_TASKS: Final = 2000
"""Tasks that are looked at: about ten microseconds each on the event loop."""
MAX_PLACES: Final = 200
"""Entries of tasks, those of the most tasks."""
MAX_TEXT: Final = 200
"""Characters of a name, and of a file the last ones."""

_TASKS: Final = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A place in the code; `line` is 0 where it is not known."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPlaces:
    """One thread, the innermost frame first; without frames it runs no Python."""

    name: str = ""
    native_name: str = ""
    native_id: int = 0
    frames: tuple[CodePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskPlaces:
    """Tasks that wait at the same place, the innermost frame first."""

    name: str
    count: int
    frames: tuple[CodePlace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlaces:
    """One process; `error` says why something is missing, "" when nothing is."""

    role: str
    name: str
    pid: int = 0
    error: str = ""
    threads: tuple[ThreadPlaces, ...] = ()
    tasks: tuple[TaskPlaces, ...] = ()
    num_left_out: int = 0


def own_stacks(role: str, name: str) -> ProcessPlaces:
    """Return where the code of this process is; called on its event loop."""
    threads = list(_threads())
    tasks, num_tasks_left_out = _tasks()
    num_left_out = max(0, len(threads) - MAX_THREADS) + num_tasks_left_out
    return ProcessPlaces(
        role=role,
        name=name,
        pid=os.getpid(),
        threads=tuple(threads[:MAX_THREADS]),
        tasks=tasks,
        num_left_out=num_left_out,
    )


def is_asked_for(target: str | None, role: str, name: str) -> bool:
    """Return whether a process is one of `target`: a role, or the beginning of a name."""
    return target is None or target == role or name.startswith(target)


def _threads() -> Iterator[ThreadPlaces]:
    """Yield the threads of Python, then the others of the process."""
    frames = sys._current_frames()
    native_names = _native_names()
    for thread in threading.enumerate():
        native_id = thread.native_id or 0
        frame = None if thread.ident is None else frames.get(thread.ident)
        yield ThreadPlaces(
            name=thread.name[:MAX_TEXT],
            native_name=native_names.pop(native_id, ""),
            native_id=native_id,
            frames=tuple(_callers(frame)),
        )
    for native_id, native_name in native_names.items():
        yield ThreadPlaces(native_name=native_name, native_id=native_id)


def _native_names() -> dict[int, str]:
    """Return the names of all threads by their number in the system; nothing but on Linux."""
    names = {}
    try:
        for folder in _TASKS.iterdir():
            names[int(folder.name)] = (folder / "comm").read_text().strip()
    except (OSError, ValueError):
        pass  # a thread that ends meanwhile, or no such system
    return names


def _tasks() -> tuple[tuple[TaskPlaces, ...], int]:
    """Return the tasks of the running loop by their places, and the number of those left out."""
    try:
        tasks = list(asyncio.all_tasks())
    except RuntimeError:
        return (), 0
    places = Counter(map(_task_place, tasks[:MAX_TASKS]))
    shown = places.most_common(MAX_PLACES)
    num_shown = sum(count for _, count in shown)
    found = (TaskPlaces(name, count, frames) for (name, frames), count in shown)
    return tuple(found), len(tasks) - num_shown


def _task_place(task: "asyncio.Task[Any]") -> tuple[str, tuple[CodePlace, ...]]:
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", type(coroutine).__name__)
    frames = list(_awaited(coroutine))
    return str(name)[:MAX_TEXT], tuple(reversed(frames[-MAX_FRAMES:]))


def _awaited(awaitable: Any) -> Iterator[CodePlace]:
    """Yield the places of a coroutine and of what it awaits, the outermost first."""
    for _ in range(4 * MAX_FRAMES):
        frame, inner = None, None
        for kind, waits in (("cr", "await"), ("gi", "yieldfrom"), ("ag", "await")):
            frame = frame or getattr(awaitable, f"{kind}_frame", None)
            inner = inner or getattr(awaitable, f"{kind}_{waits}", None)
        if frame is None:
            return
        yield _place(frame)
        awaitable = inner


def _callers(frame: FrameType | None) -> Iterator[CodePlace]:
    """Yield the places of a frame and its callers."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        yield _place(frame)
        frame = frame.f_back


def _place(frame: FrameType) -> CodePlace:
    code = frame.f_code
    return CodePlace(code.co_filename[-MAX_TEXT:], frame.f_lineno or 0, code.co_qualname[:MAX_TEXT])
