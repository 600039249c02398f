"""Converts stacks to messages and back."""

from collections.abc import Iterable
from typing import Final

from pagewire_protos.common.v1 import stacks_pb2
from pagewire_shared.inspection.stacks import CodePlace, ProcessPlaces, TaskPlaces, ThreadPlaces

MAX_PROCESS_BYTES: Final = 512 * 1024
MAX_STACKS_BYTES: Final = 6 * 1024 * 1024
"""Of all processes of an answer, which is one message."""


def stacks_to_message(process: ProcessPlaces) -> stacks_pb2.ProcessStacks:
    """Return a process as a message of at most MAX_PROCESS_BYTES; what is too much is counted."""
    message = stacks_pb2.ProcessStacks(
        role=process.role,
        name=process.name,
        pid=process.pid,
        error=process.error,
        num_left_out=process.num_left_out,
    )
    num_bytes = message.ByteSize()
    for thread in process.threads:
        stack = stacks_pb2.ThreadStack(
            name=thread.name,
            native_name=thread.native_name,
            native_id=thread.native_id,
            frames=_frames(thread.frames),
        )
        num_bytes += stack.ByteSize() + 8
        if num_bytes > MAX_PROCESS_BYTES:
            message.num_left_out += 1
        else:
            message.threads.append(stack)
    for task in process.tasks:
        waiting = stacks_pb2.TaskStack(
            name=task.name, count=task.count, frames=_frames(task.frames)
        )
        num_bytes += waiting.ByteSize() + 8
        if num_bytes > MAX_PROCESS_BYTES:
            message.num_left_out += task.count
        else:
            message.tasks.append(waiting)
    return message


def stacks_from_message(message: stacks_pb2.ProcessStacks) -> ProcessPlaces:
    """Return the process of a message."""
    return ProcessPlaces(
        role=message.role,
        name=message.name,
        pid=message.pid,
        error=message.error,
        threads=tuple(
            ThreadPlaces(
                name=one.name,
                native_name=one.native_name,
                native_id=one.native_id,
                frames=_places(one.frames),
            )
            for one in message.threads
        ),
        tasks=tuple(TaskPlaces(one.name, one.count, _places(one.frames)) for one in message.tasks),
        num_left_out=message.num_left_out,
    )


def without_stacks(role: str, name: str, error: str) -> stacks_pb2.ProcessStacks:
    """Return the entry of a process that did not answer."""
    return stacks_pb2.ProcessStacks(role=role, name=name, error=error)


def fitted_stacks(
    processes: Iterable[stacks_pb2.ProcessStacks],
) -> list[stacks_pb2.ProcessStacks]:
    """Return the processes that fit one message with their stacks, the others without."""
    fitted, num_bytes = [], 0
    for process in processes:
        num_bytes += process.ByteSize()
        if num_bytes > MAX_STACKS_BYTES:
            reason = "left out, the answer is too long: ask for this process alone"
            process = without_stacks(process.role, process.name, reason)
        fitted.append(process)
    return fitted


def _frames(places: Iterable[CodePlace]) -> list[stacks_pb2.StackFrame]:
    return [
        stacks_pb2.StackFrame(file=one.file, line=one.line, function=one.function) for one in places
    ]


def _places(frames: Iterable[stacks_pb2.StackFrame]) -> tuple[CodePlace, ...]:
    return tuple(CodePlace(one.file, one.line, one.function) for one in frames)
