"""Two schedulers of a cell and the processes that report to both, on a virtual clock. The decisions
are those of the product: SchedulerChoice, StandbyDesk. Streams, clocks and processes are played."""

import random
from collections import deque
from dataclasses import dataclass, field

from pagewire_scheduler.peers.standby import CellRole, PartyReport, StandbyDesk
from pagewire_shared.pair import choice as choices
from pagewire_shared.pair.choice import HeardReport, SchedulerChoice

TICK = 0.05
STATE_SECONDS = 0.25
REPORT_SECONDS = 0.5
REDIAL_SECONDS = 0.25
MAX_DELAY = 0.1
NUM_PARTIES = 3


@dataclass(eq=False)
class Line:
    """A stream between a party and a scheduler: messages each way, with the time they arrive."""

    to_party: deque[tuple[float, int]] = field(default_factory=deque)
    to_scheduler: deque[tuple[float, HeardReport]] = field(default_factory=deque)


class Scheduler:
    """One scheduler process, and those that follow it at the same address."""

    def __init__(self, skew: float) -> None:
        self.skew = skew
        self.is_stopped = False
        self.dead_until = 0.0
        self.terms: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Stand by, as a new process or after it was replaced."""
        self.desk = StandbyDesk(is_paired=True)
        self.number = 0

    @property
    def state(self) -> int:
        return self.number if self.desk.role is CellRole.ACTIVE else 0

    def decide(self, now: float) -> None:
        before = self.desk.role
        role = self.desk.decide(self.number, now)
        if role is CellRole.ACTIVE and before is CellRole.STANDBY:
            self.number = self.minted(now)
            self.terms.append(self.number)
        elif role is CellRole.REPLACED:
            self.begin()

    def minted(self, now: float) -> int:
        """As Generation.renew."""
        return max(int((1000 + now + self.skew) * 1000), self.desk.highest_seen + 1)


class Party:
    """A frontend or worker; it follows one scheduler at a time."""

    def __init__(self) -> None:
        self.choice = SchedulerChoice()
        self.is_stopped = False
        self.followed: list[tuple[int, int]] = []
        self.noted: object = None
        self.reported_at = -1.0


class PairWorld:
    """All of it; `run` moves the time on."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 0.0
        self.schedulers = [Scheduler(self.dice.uniform(-60, 60)) for _ in range(2)]
        self.parties = [Party() for _ in range(NUM_PARTIES)]
        self.lines: dict[tuple[int, int], Line] = {}
        self.cut: set[tuple[int, int]] = set()

    def kill(self, index: int, seconds: float) -> None:
        """Kill a scheduler; another process has its address after `seconds`."""
        scheduler = self.schedulers[index]
        scheduler.begin()
        scheduler.is_stopped = False
        scheduler.dead_until = self.now + seconds
        for key in [key for key in self.lines if key[1] == index]:
            self._end(key)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.now < end:
            self.now += TICK
            self._dial()
            self._deliver()
            for scheduler in self.schedulers:
                if not scheduler.is_stopped and scheduler.dead_until <= self.now:
                    scheduler.decide(self.now)
            for party in self.parties:
                if not party.is_stopped:
                    self._live(party)

    def _dial(self) -> None:
        for key in self._keys():
            party, scheduler = self.parties[key[0]], self.schedulers[key[1]]
            if key in self.cut or scheduler.dead_until > self.now:
                if key in self.lines:
                    self._end(key)
            elif key not in self.lines and not (party.is_stopped or scheduler.is_stopped):
                is_dialled = self.dice.random() < TICK / REDIAL_SECONDS
                self.lines.update({key: Line()} if is_dialled else {})

    def _keys(self) -> list[tuple[int, int]]:
        return [(party, index) for party in range(NUM_PARTIES) for index in range(2)]

    def _end(self, key: tuple[int, int]) -> None:
        line = self.lines.pop(key)
        self.schedulers[key[1]].desk.leave(line)
        self.parties[key[0]].choice.lose(key[1])

    def _deliver(self) -> None:
        is_beat = self.dice.random() < TICK / STATE_SECONDS * 2
        for (number, index), line in self.lines.items():
            party, scheduler = self.parties[number], self.schedulers[index]
            if not scheduler.is_stopped:
                while line.to_scheduler and line.to_scheduler[0][0] <= self.now:
                    said = line.to_scheduler.popleft()[1]
                    report = PartyReport(
                        said.active_generation, said.highest_generation, said.asks, self.now
                    )
                    scheduler.desk.report(line, report)
                if is_beat:
                    line.to_party.append((self._arrival(), scheduler.state))
            if not party.is_stopped:
                while line.to_party and line.to_party[0][0] <= self.now:
                    party.choice.hear(index, line.to_party.popleft()[1], self.now)

    def _arrival(self) -> float:
        return self.now + self.dice.uniform(0.0, MAX_DELAY)

    def _live(self, party: Party) -> None:
        number = self.parties.index(party)
        active = party.choice.active(self.now)
        noted = active, party.choice.candidate(self.now)
        if noted != party.noted or self.now - party.reported_at >= REPORT_SECONDS:
            party.noted, party.reported_at = noted, self.now
            for index in range(2):
                if (line := self.lines.get((number, index))) is not None:
                    line.to_scheduler.append(
                        (self._arrival(), party.choice.report(index, self.now))
                    )
        if active is not None:
            generation = party.choice.report(active, self.now).active_generation
            if not party.followed or party.followed[-1] != (active, generation):
                party.followed.append((active, generation))


def disturb(world: PairWorld) -> None:
    """Do one harm, or undo one."""
    dice = world.dice
    index, number = dice.randrange(2), dice.randrange(NUM_PARTIES)
    scheduler = world.schedulers[index]
    match dice.randrange(6):
        case 0 | 1:
            world.kill(index, dice.uniform(0.1, 2.0))
        case 2:
            scheduler.is_stopped = not scheduler.is_stopped
        case 3:
            world.parties[number].is_stopped = not world.parties[number].is_stopped
        case _:
            world.cut ^= {(number, index)}


def history(seed: int) -> list[str]:
    """Disturb a pair, leave one scheduler or party broken, and return what went wrong."""
    world = PairWorld(seed)
    world.run(3.0)
    for _ in range(world.dice.randrange(1, 10)):
        disturb(world)
        world.run(world.dice.choice([0.05, 0.3, 1.0, 3.0]))
    world.cut.clear()
    for process in (*world.schedulers, *world.parties):
        process.is_stopped = False
    match world.dice.randrange(4):
        case 0:
            world.kill(world.dice.randrange(2), 1000.0)
        case 1:
            world.dice.choice(world.schedulers).is_stopped = True
        case 2:
            world.dice.choice(world.parties).is_stopped = True
            world.kill(world.dice.randrange(2), 1.0)
    world.run(4 * choices.SILENCE_SECONDS if choices.SILENCE_SECONDS < 5 else 8.0)
    return faults(world)


def faults(world: PairWorld) -> list[str]:
    """Return what is wrong in a world that has had time to settle."""
    found = []
    for party in world.parties:
        generations = [generation for _, generation in party.followed]
        if generations != sorted(generations):
            found.append("a party went back to an older generation")
    living = [party for party in world.parties if not party.is_stopped]
    heard = {party.choice.active(world.now) for party in living}
    if len(heard) > 1 or None in heard:
        return [*found, f"parties follow {heard}"]
    [index] = heard
    assert index is not None
    active = world.schedulers[index]
    if active.is_stopped or active.state == 0:
        found.append("parties follow a scheduler that does not serve")
    for other in world.schedulers:
        is_serving = not other.is_stopped and other.state not in (0, active.state)
        if other is not active and is_serving:
            found.append("two schedulers are active")
    return found


def one_bad_link(seed: int) -> list[str]:
    """Cut links of one party only: the others have a scheduler, which must stay the active one."""
    world = PairWorld(seed)
    world.run(4.0)
    before = [list(scheduler.terms) for scheduler in world.schedulers]
    number = world.dice.randrange(NUM_PARTIES)
    for _ in range(4):
        world.cut ^= {(number, world.dice.randrange(2))}
        world.run(world.dice.choice([0.3, 1.0, 3.0]))
    after = [scheduler.terms for scheduler in world.schedulers]
    return [] if before == after else ["a link of one party moved the cell"]
