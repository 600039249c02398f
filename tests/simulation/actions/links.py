"""Faults of the network, and results that nobody should have sent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simulation.actions.faults import cut
from simulation.coverage import Violation
from simulation.model.answers import Answer
from simulation.processes.cell import WorkerPeer
from simulation.processes.frontend import LinkEnd
from simulation.processes.streams import Stream
from simulation.world import World

from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.errors import PagewireError
from pagewire_shared.steps.result import StepResult


def live_streams(world: World, is_wanted: Callable[[Stream], bool]) -> list[Stream]:
    """Streams to schedulers that are not cut."""
    return [s for cell in world.cells for s in cell.streams if is_wanted(s) and not s.is_cut]


def delay_stream(world: World, a: int, b: int, c: int) -> bool:
    streams = live_streams(world, lambda stream: True)
    if not streams:
        return False
    streams[a % len(streams)].frozen_until = world.clock.now + (0.02, 0.1, 0.5, 1.5)[b % 4]
    return True


def pause_writers(world: World, a: int, b: int, c: int) -> bool:
    """Nothing is written for a while between a frontend and a scheduler: what they have to say is
    merged, or made when it is written."""
    streams = live_streams(world, lambda stream: stream.kind == "frontend")
    if not streams:
        return False
    streams[a % len(streams)].unwritten_until = world.clock.now + (0.02, 0.1, 0.5, 1.5)[b % 4]
    return True


def cut_frontend(world: World, a: int, b: int, c: int) -> bool:
    streams = live_streams(world, lambda stream: stream.kind == "frontend")
    if not streams:
        return False
    stream = streams[a % len(streams)]
    cut(world, stream, b, c)
    if c % 3 == 0 and isinstance(stream.dialer, LinkEnd):
        # The frontend notices first and is back while the scheduler still reads the old stream.
        stream.dialer.end()
    return True


def _is_output(message: Any) -> bool:
    return message.WhichOneof("message") in ("tokens", "finished", "prompt_logprobs", "vectors")


def _with_output(world: World, count: int) -> list[tuple[Stream, int]]:
    """(stream, index) of tokens and ends on their way, `count` of them one after the other."""
    return [
        (stream, index)
        for stream in live_streams(world, lambda stream: stream.kind == "frontend")
        for index in range(len(stream.down) - count + 1)
        if all(_is_output(stream.down[index + i]) for i in range(count))
    ]


def lose_tokens(world: World, a: int, b: int, c: int) -> bool:
    """Tokens are lost; what follows them shows the gap."""
    found = [
        (s, i) for s, i in _with_output(world, 1) if s.down[i].WhichOneof("message") != "finished"
    ]
    if not found:
        return False
    stream, index = found[a % len(found)]
    del stream.down[index]
    return True


def duplicate_to_frontend(world: World, a: int, b: int, c: int) -> bool:
    found = _with_output(world, 1)
    if not found:
        return False
    stream, index = found[a % len(found)]
    stream.down.insert(index + 1 + b % (len(stream.down) - index), stream.down[index])
    return True


def reorder_to_frontend(world: World, a: int, b: int, c: int) -> bool:
    found = _with_output(world, 2)
    if not found:
        return False
    stream, index = found[a % len(found)]
    first, second = stream.down[index], stream.down[index + 1]
    stream.down[index], stream.down[index + 1] = second, first
    return True


def duplicate_from_frontend(world: World, a: int, b: int, c: int) -> bool:
    """A submit or an abort arrives twice."""
    found = [
        (stream, index)
        for stream in live_streams(world, lambda stream: stream.kind == "frontend")
        for index, message in enumerate(stream.up)
        if message.WhichOneof("message") in ("submit", "abort")
    ]
    if not found:
        return False
    stream, index = found[a % len(found)]
    stream.is_odd = True
    stream.up.insert(index + 1 + b % (len(stream.up) - index), stream.up[index])
    return True


def _results(world: World, count: int) -> list[tuple[Stream, list[int]]]:
    found = []
    for stream in live_streams(world, lambda stream: stream.kind == "worker"):
        indices = [i for i, message in enumerate(stream.up) if isinstance(message, Answer)]
        if len(indices) >= count:
            found.append((stream, indices))
    return found


def lose_result(world: World, a: int, b: int, c: int) -> bool:
    """The worker will seem stuck."""
    found = _results(world, 1)
    if not found:
        return False
    stream, indices = found[a % len(found)]
    del stream.up[indices[b % len(indices)]]
    return True


def duplicate_result(world: World, a: int, b: int, c: int) -> bool:
    found = _results(world, 1)
    if not found:
        return False
    stream, indices = found[a % len(found)]
    stream.up.append(stream.up[indices[b % len(indices)]])
    return True


def reorder_results(world: World, a: int, b: int, c: int) -> bool:
    found = _results(world, 2)
    if not found:
        return False
    stream, indices = found[a % len(found)]
    i, j = indices[0], indices[1]
    stream.up[i], stream.up[j] = stream.up[j], stream.up[i]
    return True


def _peers(world: World) -> list[WorkerPeer]:
    streams = live_streams(world, lambda stream: stream.kind == "worker")
    return [stream.peer for stream in streams if stream.peer is not None]


def late_result(world: World, a: int, b: int, c: int) -> bool:
    """A result of an old stream arrives on the new one, or on that of another worker."""
    peers = _peers(world)
    if not peers or not world.late_answers:
        return False
    found = [(answer, peer) for answer in world.late_answers for peer in peers]
    # The dangerous one has the number of the step that is waited for.
    fitting = [(answer, peer) for answer, peer in found if _awaited(peer) == answer.result.step_id]
    answer, peer = (fitting or found)[a % len(fitting or found)]
    world.late_answers.remove(answer)
    _expect_refusal(world, peer, answer.result)
    return True


def _awaited(peer: WorkerPeer) -> int | None:
    worker = peer.core.workers.get(peer.info.worker_id) if peer.is_current else None
    return worker.outstanding[0].step_id if worker is not None and worker.outstanding else None


def unknown_step(world: World, a: int, b: int, c: int) -> bool:
    """The answer to a step that is not the oldest under way."""
    peers = [peer for peer in _peers(world) if peer.is_current]
    if not peers:
        return False
    peer = peers[a % len(peers)]
    worker = peer.core.workers[peer.info.worker_id]
    oldest = worker.outstanding[0].step_id if worker.outstanding else worker.next_step_id
    step_id = max(0, oldest + (1, 5, -1)[b % 3])
    result = _blank(peer, step_id)
    _expect_refusal(world, peer, result)
    return True


def _blank(peer: WorkerPeer, step_id: int) -> StepResult:
    generation = peer.core.workers[peer.info.worker_id].generation
    return StepResult(generation, peer.info.incarnation, step_id)


def _expect_refusal(world: World, peer: WorkerPeer, result: Any) -> None:
    """Deliver what must change nothing."""
    core = peer.core
    worker = core.workers.get(peer.info.worker_id)
    before = _state_of(worker)
    cell = next(cell for cell in world.cells if cell.step_loop and cell.core is core)
    cell.loop.enter()
    try:
        peer._step_loop.apply(peer, result)
    except PagewireError as error:
        detail = f"a foreign result is taken for a wrong one: {error.message}"
        raise Violation("foreign_results_change_nothing", detail) from error
    worker = core.workers.get(peer.info.worker_id)
    after = _state_of(worker)
    # What has changed besides is what was due to be planned.
    is_same = before.items() <= after.items()
    world.coverage.require("foreign_results_change_nothing", is_same, f"{before} -> {after}")
    world.coverage.invariants["foreign_results_change_nothing"] += bool(before)


def _state_of(worker: WorkerState | None) -> dict[Any, Any]:
    """The steps under way, and what is known of who is in them."""
    state: dict[Any, Any] = {}
    for step in worker.outstanding if worker is not None else ():
        state[step.step_id] = step.is_void
        for sequence in step.sequences:
            # Not by its key: what is planned next may evict a search, which then starts over with
            # sequences of the same keys.
            state[sequence] = len(sequence.tokens)
    return state


def broken_result(world: World, a: int, b: int, c: int) -> bool:
    """A result that contradicts its plan: the worker is cut off, and nothing is applied."""
    found = [
        (stream, indices[0])
        for stream, indices in _results(world, 1)
        if stream.peer is not None and stream.peer.is_current
    ]
    if not found:
        return False
    stream, index = found[a % len(found)]
    answer = stream.up[index]
    worker = stream.peer.core.workers[stream.peer.info.worker_id]
    step = worker.outstanding[0] if worker.outstanding else None
    result = answer.result
    is_next = step is not None and step.step_id == result.step_id and not step.is_void
    if not is_next or result.failure is not None:
        return False
    for _ in range(index + 1):
        stream.up.popleft()
    stream.up.appendleft(replace(result, slots=[*result.slots, 99]))
    stream.cell.is_odd = True
    stream.cell.receive(stream)
    stream.cell.is_odd = False
    is_cut = worker.info.worker_id not in stream.peer.core.workers
    world.coverage.require("foreign_results_change_nothing", is_cut, "a broken result was taken")
    return True
