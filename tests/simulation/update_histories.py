"""Histories of cells whose workers exchange their weights: those of `history`, with updates between
the other events."""

import random
from dataclasses import replace

from simulation import history
from simulation.configuration import Configuration
from simulation.events import Event

PER_UPDATE = 12
"""Other events for each update."""

LEAST_NEW_BYTES = 700
"""Room in a plan for the longest prompt and its blocks of two groups: real plans have megabytes."""

run = history.run


def configuration_of(seed: int) -> Configuration:
    configuration = history.configuration_of(seed)
    return replace(configuration, new_bytes=max(LEAST_NEW_BYTES, configuration.new_bytes))


def events_of(seed: int, num_events: int = history.NUM_EVENTS) -> list[Event]:
    dice = random.Random(seed + 1)
    events: list[Event] = []
    for event in history.events_of(seed, num_events):
        events.append(event)
        if not dice.randrange(PER_UPDATE):
            kind = dice.choice(["update_weights"] * 4 + ["load_fails"])
            events.append((kind, *(dice.randrange(1 << 16) for _ in range(3))))
    return events
