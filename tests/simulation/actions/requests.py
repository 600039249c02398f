"""What the kinds of events do: requests, clients and time. Each returns whether there was anything
to do it to."""

from functools import partial
from typing import Any

from simulation.actions import faults as actions_faults
from simulation.actions import links as actions_links
from simulation.actions import odd as actions_odd
from simulation.actions import roles as actions_roles
from simulation.actions import sleep as actions_sleep
from simulation.actions import stores as actions_stores
from simulation.actions import updates as actions_updates
from simulation.configuration import ADAPTERS, BAD_ADAPTER
from simulation.model.asks import Numbers, draw_ask, draw_beam_params, draw_params, salt_of
from simulation.model.naive import BAD_GRAMMAR, salt_of_weights
from simulation.processes.client import Ask, Client
from simulation.processes.frontend import Frontend, Letters
from simulation.world import DTYPE, LAYOUT, MODEL_FINGERPRINT, World

from pagewire_frontend.adapters.adapter_use import AdapterUse
from pagewire_frontend.session import session as session_module
from pagewire_frontend.session.events import FinishReason
from pagewire_frontend.session.journal import JournalEntry
from pagewire_frontend.session.prompt_blocks import PromptBlocks
from pagewire_frontend.session.selection import computed
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.kv.block_hash import block_names, root_name
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

OTHERS = (
    *(actions_faults, actions_links, actions_odd, actions_roles, actions_sleep, actions_stores),
    actions_updates,
)
"""Modules of other kinds of events."""


def pump(world: World, a: int, b: int, c: int) -> bool:
    return sum(world.turn() for _ in range(1 + b % 7)) > 0


def _submit(world: World, a: int, b: int, c: int, **fields: Any) -> bool:
    if not world.frontends:
        return False
    frontend = world.frontends[a % len(world.frontends)]
    world.num_requests += 1
    request_compile = draw_ask(world.num_requests, Numbers(a, b, c), **fields)
    return open_client(world, frontend, request_compile)


def open_client(world: World, frontend: Frontend, request_compile: Ask) -> bool:
    """Let a client send `request_compile` to `frontend`."""
    if world.configuration.max_adapters:
        pick = Numbers(world.num_requests, 7).pick
        request_compile.adapter = pick((b"", b"", b"", *ADAPTERS[:4] * 2, BAD_ADAPTER))
    request_compile.windows = world.configuration.groups.windows
    frontend.loop.enter()
    world.asks[request_compile.request_id] = request_compile
    params, selection = computed(request_compile.params)
    entry = JournalEntry(
        request_id=request_compile.request_id,
        model="tiny",
        prompt_token_ids=request_compile.prompt,
        params=params,
        eos_token_ids=request_compile.eos_ids,
        tenant=request_compile.tenant,
        cache_salt=request_compile.cache_salt,
        priority=request_compile.priority,
        pooling=request_compile.pooling,
        adapter=_adapter(request_compile),
        prompt_blocks=_named(world, request_compile) if world.num_requests % 2 else None,
    )
    request_compile.weights_of = partial(_weights_of, entry)
    session = session_module.Session(
        entry,
        Letters(),
        arrived_at=world.clock.now,
        deadline=request_compile.deadline,
        selection=selection,
    )
    frontend.open(Client(request_compile, session, world.coverage, world.excuses.allow))
    return True


def _weights_of(entry: JournalEntry) -> bytes:
    return b"" if entry.weights is None else salt_of_weights(entry.weights.fingerprint)


def _adapter(request_compile: Ask) -> AdapterUse | None:
    adapter = request_compile.adapter
    return AdapterUse(adapter, (f"file:/{adapter.hex()}",)) if adapter else None


def _named(world: World, request_compile: Ask) -> PromptBlocks:
    """What a frontend's engine does beside its event loop."""
    root = root_name(
        model_fingerprint=MODEL_FINGERPRINT,
        layout_fingerprint=LAYOUT,
        dtype=DTYPE,
        salt=request_compile.salt,
        adapter=request_compile.adapter,
    )
    size = world.configuration.block_size
    return PromptBlocks(root, size, block_names(root, pack_u32(request_compile.prompt), size))


def submit(world: World, a: int, b: int, c: int) -> bool:
    return _submit(world, a, b, c)


def submit_shared(world: World, a: int, b: int, c: int) -> bool:
    return _submit(world, a, b, c, is_shared=True)


def submit_urgent(world: World, a: int, b: int, c: int) -> bool:
    """One that takes the place of others at once, while steps that hold them are out."""
    return _submit(world, a, b, c, is_shared=True, priority=-100)


def submit_many(world: World, a: int, b: int, c: int) -> bool:
    return _submit(world, a, b, c, num_choices=2 + b % 3)


def submit_beam(world: World, a: int, b: int, c: int) -> bool:
    numbers = Numbers(a, b, c, 1)
    return _submit(world, a, b, c, params=draw_beam_params(numbers))


def submit_guided(world: World, a: int, b: int, c: int) -> bool:
    """One whose output follows a grammar, now and then one that does not compile."""
    numbers = Numbers(a, b, c, 1)
    regex = numbers.pick(("g", "g1", "gg", "gg1", "ggg", BAD_GRAMMAR))
    params = draw_params(numbers, 1 + c % 3)
    outputs = StructuredOutputsParams(regex=regex)
    return _submit(world, a, b, c, params=params.with_(structured_outputs=outputs))


def submit_scored(world: World, a: int, b: int, c: int) -> bool:
    """One that wants to know what the model thinks of its prompt."""
    params = draw_params(Numbers(a, b, c, 1), 1 + c % 2)
    return _submit(world, a, b, c, is_shared=b % 2 == 0, params=params.with_(prompt_logprobs=c % 3))


def submit_pooled(world: World, a: int, b: int, c: int) -> bool:
    """One that wants a vector and no tokens."""
    pooling = PoolingParams(pooling="mean" if c % 2 else "last")
    params = SamplingParams(seed=0, temperature=0.0, max_tokens=1)
    return _submit(world, a, b, c, is_shared=b % 2 == 0, params=params, eos_ids=(), pooling=pooling)


def submit_deadline(world: World, a: int, b: int, c: int) -> bool:
    seconds = (0.0, 0.02, 0.2, 1.0, 3.0)[b % 5]
    return _submit(world, a, b, c, deadline=world.clock.now + seconds)


def submit_poison(world: World, a: int, b: int, c: int) -> bool:
    return _submit(world, a, b, c, is_poison=True)


def submit_deadly(world: World, a: int, b: int, c: int) -> bool:
    """One that ends every worker that gets so far with it; every third is a search."""
    numbers = Numbers(a, b, c, 1)
    params = {"params": draw_beam_params(numbers)} if c % 3 == 0 else {}
    return _submit(world, a, b, c, deadly_after=b % 5, **params)


def submit_too_large(world: World, a: int, b: int, c: int) -> bool:
    """More blocks than any worker has, or more than a small one has."""
    configuration = world.configuration
    prompt = tuple(range(1, 24)) * (1 + c % 3)
    return _submit(
        world,
        a,
        b,
        c,
        prompt=prompt,
        params=SamplingParams(seed=c, max_tokens=max(1, configuration.max_model_len - len(prompt))),
        eos_ids=(),
    )


def burst(world: World, a: int, b: int, c: int) -> bool:
    """Requests that arrive together and begin alike."""
    return sum(_submit(world, a, b % 7, c + i, is_shared=True) for i in range(2 + b % 4)) > 0


def crowd(world: World, a: int, b: int, c: int) -> bool:
    """One large request, and many small ones that keep coming after it; all of one tenant."""
    if not world.frontends:
        return False
    fields: dict[str, Any] = {"tenant": "a", "cache_salt": None, "salt": salt_of("a", None)}
    fields |= {"priority": 0, "eos_ids": ()}
    configuration = world.configuration
    length = min(44, configuration.num_blocks * configuration.block_size - 4)
    large, small = SamplingParams(seed=c, max_tokens=2), SamplingParams(seed=c, max_tokens=4)
    for number in range(60):
        if number == 6:
            prompt = tuple((c + 3 * i) % 29 for i in range(length))
            _submit(world, a, b, c, prompt=prompt, params=large, **fields)
        prompt = tuple((c + number + 5 * i) % 29 for i in range(2 + number % 5))
        _submit(world, a, b, c, prompt=prompt, params=small, **fields)
        for _ in range(1 + b % 4):
            world.turn()
    return True


def cancel_request(world: World, a: int, b: int, c: int) -> bool:
    """The client goes away."""
    frontends = [frontend for frontend in world.frontends if frontend.clients]
    if not frontends:
        return False
    frontend = frontends[a % len(frontends)]
    frontend.close(frontend.clients[b % len(frontend.clients)])
    return True


def cancel_choice(world: World, a: int, b: int, c: int) -> bool:
    """One choice is not wanted any more; as a stop string that ends it at this token."""
    clients = [
        client
        for client in world.clients()
        if client.session.entry.handle is not None
        and not client.session.entry.params.use_beam_search
    ]
    if not clients:
        return False
    client = clients[a % len(clients)]
    entry = client.session.entry
    index = b % len(entry.choices)
    choice = entry.choices[index]
    if choice.is_finished or not choice.token_ids:
        return False
    known = list(choice.token_ids)
    truth = client.request_compile.expected()[index][0]
    is_right = known == truth[: len(known)]
    world.coverage.require("tokens_of_the_model", is_right, f"{known} instead of {truth}")
    client.request_compile.expected()[index] = (known, FinishReason.STOP)
    frontend = next(f for f in world.frontends if client in f.clients)
    frontend.loop.enter()
    entry.cut(index, choice.next_position)
    carrier = client.session.carrier
    client.session._end(index, FinishReason.STOP, None)
    if carrier is not None:
        carrier.abort_choice(client.session, index)
    return True


def client_reads_late(world: World, a: int, b: int, c: int) -> bool:
    """The clients of a frontend read nothing for a while, whatever is ready for them."""
    if not world.frontends:
        return False
    frontend = world.frontends[a % len(world.frontends)]
    frontend.unread_until = world.clock.now + (0.05, 0.3, 1.0, 3.0)[b % 4]
    return True


def outbox_full(world: World, a: int, b: int, c: int) -> bool:
    """The next request finds no room in the outbox: it is refused."""
    ends = [end for frontend in world.frontends for end in frontend.ends if end.outgoing]
    if not ends:
        return False
    end = ends[a % len(ends)]
    submits = end.link.carried.submits
    submits.max_new_bytes, most = 0, submits.max_new_bytes
    numbers = Numbers(a, b, c)
    world.num_requests += 1
    request_compile = draw_ask(world.num_requests, numbers, may_be_refused=True)
    open_client(world, end.frontend, request_compile)
    submits.max_new_bytes = most
    return True


def time(world: World, a: int, b: int, c: int) -> bool:
    world.pass_time((0.01, 0.05, 0.1, 0.3)[a % 4])
    return True


def time_jump(world: World, a: int, b: int, c: int) -> bool:
    """Long enough for deadlines and leases, in steps that leave the watches awake."""
    for _ in range(4):
        world.pass_time((0.3, 0.6, 1.6)[a % 3])
        world.turn()
    return True


def pause_scheduler(world: World, a: int, b: int, c: int) -> bool:
    """The scheduler's process stood still: nobody is to blame for the silence."""
    world.pass_time(3.0, lateness=3.0)
    return True


def act(world: World, kind: str, a: int, b: int, c: int) -> bool:
    """Let one event happen; False when it found nothing to happen to."""
    world.dice = hash((a, b, c)) & (1 << 64) - 1
    for module in (globals(), *map(vars, OTHERS)):
        if kind in module:
            return bool(module[kind](world, a, b, c))
    raise KeyError(kind)
