"""A group of frontends whose processes die, start and lose their links, and all that is known to be
true of its streams."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations

from simulation.group.members import GroupProcess, make_task
from simulation.group.schedulers import ModelScheduler, letter

from pagewire_frontend.access.api_keys import ApiKeys
from pagewire_frontend.http.kept_streams.kept_stream import KeptState

GROUP_INVARIANTS = (
    "each_event_once",
    "bits_are_equal",
    "one_maker",
    "streams_survive",
    "recipes_live",
    "tenants_apart",
    "keys_once",
    "streams_end",
)
NAMES = ("anna", "bert", "carl", "dora")
PAUSE_SECONDS = 0.004
WATCH_SECONDS = 0.05


class GroupViolation(AssertionError):
    """An invariant of the group does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass(frozen=True, slots=True)
class GroupConfiguration:
    """What does not change in one world."""

    seed: int
    num_frontends: int
    num_replicas: int
    is_exact: bool
    has_cuts: bool
    max_deaths: int


@dataclass
class KnownStream:
    """What is known of one stream.

    Attributes:
        frames: Its events, as the first reader of each saw them.
        holders: Processes that had its recipe when its first event was seen.
        begun: When that was.
    """

    begun: float
    frames: list[bytes] = field(default_factory=list)
    holders: list[GroupProcess] = field(default_factory=list)


class GroupWorld:
    """Everything that lives.

    Attributes:
        alive: The processes that are there, by name.
        known: Streams by id.
        key_streams: The stream of each key that a client has seen.
        twice: Streams that two made at a time.
        violation: The first one.
    """

    def __init__(self, configuration: GroupConfiguration) -> None:
        self.configuration = configuration
        self.draw = random.Random(configuration.seed)
        self.names = NAMES[: configuration.num_frontends]
        self.keys = ApiKeys(("sk-first-0000000", "sk-second-000000"))
        self.scheduler = ModelScheduler(self.draw, is_exact=configuration.is_exact)
        self.alive: dict[str, GroupProcess] = {}
        self.known: dict[str, KnownStream] = {}
        self.key_streams: dict[str, str] = {}
        self.twice: set[str] = set()
        self.violation: GroupViolation | None = None
        self.counts: Counter[str] = Counter()
        self.num_deaths = self.num_lives = self.num_cuts = 0
        self._was_cut: set[frozenset[str]] = set()
        self._cuts: dict[frozenset[str], asyncio.Future[None]] = {}
        loop = asyncio.get_running_loop()
        loop.set_task_factory(make_task)
        for name in self.names:
            self.start(name)
        self._watch = loop.create_task(self._watch_makers())

    async def pause(self) -> None:
        """Let what a message takes pass."""
        await asyncio.sleep(self.draw.uniform(0.0, PAUSE_SECONDS))

    def start(self, name: str) -> None:
        """Start a frontend that is not there."""
        if name not in self.alive:
            self.num_lives += 1
            replicas = self.configuration.num_replicas
            self.alive[name] = GroupProcess(self, name, self.num_lives, self.keys, replicas)

    def kill(self, name: str) -> None:
        """Kill a frontend, unless it is the last one, or enough have died."""
        process = self.alive.get(name)
        is_enough = self.num_deaths >= self.configuration.max_deaths
        if process is None or len(self.alive) == 1 or is_enough:
            return
        self._check_recipes(process)
        del self.alive[name]
        self.num_deaths += 1
        process.kill()
        self.scheduler.lose(process)

    def cut(self, one: str, other: str) -> None:
        """Let two frontends lose each other."""
        if self.configuration.has_cuts and one != other:
            self.num_cuts += 1
            self._was_cut.add(frozenset((one, other)))
            cut = self.cut_of(one, other)
            if not cut.done():
                cut.set_result(None)

    def heal(self) -> None:
        """Join what was cut."""
        self._cuts.clear()

    def cut_of(self, one: str, other: str) -> "asyncio.Future[None]":
        """Return what is done once two frontends do not reach each other."""
        pair = frozenset((one, other))
        if pair not in self._cuts:
            self._cuts[pair] = asyncio.get_running_loop().create_future()
        return self._cuts[pair]

    def require(self, invariant: str, is_right: bool, detail: str) -> None:
        """Note and raise a violation unless it holds."""
        self.counts[invariant] += 1
        if not is_right:
            self.violation = self.violation or GroupViolation(invariant, detail)
            raise self.violation

    @property
    def is_gentle(self) -> bool:
        """Whether so little has happened that nothing may be lost."""
        return self.num_deaths <= 1 and not self.num_cuts

    def is_left(self, stream_id: str) -> bool:
        """Whether a process has a stream, or what it is made again from where its maker is gone."""
        alive = self.alive.values()
        has_maker = any(one.local.is_own(stream_id) for one in alive)
        return any(
            one.local.find(stream_id) is not None
            or (stream_id in one.store._recipes and not has_maker)
            for one in alive
        )

    def is_held(self, stream_id: str) -> bool:
        """Whether a scheduler has the tokens of a stream for whichever frontend asks."""
        if stream_id not in self.known:
            return False
        opening = self.known[stream_id].frames[0].rpartition(b"open ")[2].split()[0]
        held = self.scheduler.held.get(bytes.fromhex(opening.decode()))
        return held is not None and held.is_orphan

    def saw(self, stream_id: str, number: int, frame: bytes) -> None:
        """Note an event that a client has read: it is always the same."""
        now = asyncio.get_running_loop().time()
        known = self.known.setdefault(stream_id, KnownStream(now))
        if number == 0 and not known.frames:
            known.holders = [one for one in self.alive.values() if stream_id in one.store._recipes]
        if number == len(known.frames):
            known.frames.append(frame)
        # Token counts are not those of the recipe where a cut link kept them from it, or two made
        # the stream.
        has_other_run = self.num_cuts > 0 or stream_id in self.twice
        may_differ = b"data: usage" in frame and has_other_run
        detail = f"{frame!r} instead of {known.frames[number]!r}"
        self.require("bits_are_equal", may_differ or known.frames[number] == frame, detail)

    def check_tokens(self, stream_id: str, seed: int, num_tokens: int, num_choices: int) -> None:
        """Check a whole stream against the model."""
        said = [frame.rpartition(b"data: ")[2].decode().strip() for frame in self.frames(stream_id)]
        numbers = range(num_choices)
        wanted = [f"{one} {letter(seed, one, at)}" for at in range(num_tokens) for one in numbers]
        wanted += [f"{one} end" for one in numbers]
        self.require("bits_are_equal", said[1:-2] == wanted, f"{said[1:-2]} instead of {wanted}")

    def frames(self, stream_id: str) -> list[bytes]:
        """Return the events of a stream so far."""
        return self.known[stream_id].frames

    def _check_recipes(self, dying: GroupProcess) -> None:
        """What a frontend keeps is renewed at those that could go on with it."""
        for stream_id in dying.local.ids():
            known = self.known.get(stream_id)
            for holder in known.holders if known and not self.num_cuts else ():
                if not holder.is_dead and holder is not dying and dying.local.is_own(stream_id):
                    has_recipe = stream_id in holder.store._recipes
                    self.require("recipes_live", has_recipe, f"{holder.name} lost {stream_id}")

    async def _watch_makers(self) -> None:
        """No two frontends make one stream, as long as they reach each other."""
        while True:
            makers: dict[str, list[GroupProcess]] = {}
            for process in self.alive.values():
                for stream_id in process.local.ids():
                    stream = process.local.find(stream_id)
                    if stream is not None and stream.state is KeptState.RUNNING:
                        makers.setdefault(stream_id, []).append(process)
            for stream_id, found in makers.items():
                names = [one.name for one in found]
                is_split = any(frozenset(pair) in self._was_cut for pair in combinations(names, 2))
                if len(found) > 1:
                    self.twice.add(stream_id)
                is_one = len(found) == 1 or is_split
                self.require("one_maker", is_one, f"{names} make {stream_id}")
            await asyncio.sleep(WATCH_SECONDS)
