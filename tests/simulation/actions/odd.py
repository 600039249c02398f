"""Messages that another version, or another life, of a frontend or scheduler might send."""

from typing import Any

from simulation.actions.links import live_streams
from simulation.model.asks import Numbers, draw_ask
from simulation.model.naive import VOCAB_SIZE
from simulation.processes.frontend import LinkEnd
from simulation.processes.streams import Stream
from simulation.world import World

from pagewire_frontend.scheduler import convert as link_messages
from pagewire_frontend.session.journal import JournalEntry
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.kv.arrays import pack_u32


def old_epoch_to_frontend(world: World, a: int, b: int, c: int) -> bool:
    """Tokens of an earlier life of a request, which was submitted again since."""
    found = [
        (end, handle, session.entry)
        for frontend in world.frontends
        for end in frontend.ends
        for handle, session in end.link.carried.handles.items()
        if frontend.num_submits[session.entry.request_id] > 1
        and end.outgoing is not None
        and not session.entry.params.use_beam_search
    ]
    if not found:
        return False
    end, handle, entry = found[a % len(found)]
    choice = b % len(entry.choices)
    position = entry.choices[choice].next_position
    truth = [*world.asks[entry.request_id].expected()[choice][0], 0]
    wrong = (truth[position] + 1) % VOCAB_SIZE if position < len(truth) else 0
    batch = pb.TokenBatch(
        handles=pack_u32([handle]),
        choices=pack_u32([choice]),
        epochs=pack_u32([end.frontend.num_submits[entry.request_id] - 2]),
        first_positions=pack_u32([position]),
        counts=pack_u32([1]),
        token_ids=pack_u32([wrong]),
        num_cached_tokens=pack_u32([0]),
    )
    assert end.stream is not None
    end.stream.down.appendleft(pb.AttachFrontendResponse(tokens=batch))
    return True


def submit_odd(world: World, a: int, b: int, c: int) -> bool:
    """A submit that another version, or another frontend, might send: with output of an earlier
    life, of a known id, of an old epoch, or of an unknown kind."""
    streams = live_streams(world, lambda s: s.kind == "frontend" and s.peer is not None)
    streams = [stream for stream in streams if isinstance(stream.dialer, LinkEnd)]
    if not streams:
        return False
    stream = streams[a % len(streams)]
    world.num_requests += 1
    numbers = Numbers(a, b, c)
    request_compile = draw_ask(
        world.num_requests, numbers, windows=world.configuration.groups.windows
    )
    world.asks[request_compile.request_id] = request_compile
    message = _odd_submit(world, request_compile, numbers, stream)
    if message is None:
        return False
    stream.is_odd = True
    stream.cell.loop.enter()
    stream.peer._receive(pb.AttachFrontendRequest(submit=message))
    return True


def _odd_submit(
    world: World, request_compile: Any, numbers: Numbers, stream: Stream
) -> pb.Submit | None:
    entry = JournalEntry(
        request_id=request_compile.request_id,
        model="tiny",
        prompt_token_ids=request_compile.prompt,
        params=request_compile.params,
        eos_token_ids=request_compile.eos_ids,
        tenant=request_compile.tenant,
        cache_salt=request_compile.cache_salt,
        priority=request_compile.priority,
    )
    handle = 1_000_000 + world.num_requests
    # No tokens of the model, and nobody is there yet who could say so.
    kind = numbers.below(6) if stream.cell.core.workers else 6
    message = link_messages.submit_message(entry.submit(handle), None, 0).submit
    tokens = request_compile.expected()[0][0]
    if kind <= 2:
        # Whole outputs, and parts of them, under a first epoch.
        num = len(tokens) if kind else numbers.below(len(tokens) + 1)
        message.emitted[0].token_ids = b"".join(t.to_bytes(4, "little") for t in tokens[:num])
    elif kind == 3:
        live = [r for r in stream.cell.core.requests.values() if r.submission.epoch]
        if not live:
            return None
        known = live[numbers.below(len(live))]
        message.request_id, message.epoch = known.request_id, known.submission.epoch - 1
    elif kind == 4:
        message.priority = 10**6
    elif kind == 6:
        message.prompt_token_ids = b"\0\x01\0\0" * 3
    else:
        message.prompt_token_ids = b""
    return message
