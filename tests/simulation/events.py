"""What may happen to a world, as data: an event is a kind and a few numbers that mean something
only together with the state they meet, so that any part of a list of events is a list of events.
"""

import random
from typing import Final

Event = tuple[str, int, int, int]

WEIGHTS: Final[dict[str, int]] = {
    "pump": 190,
    "submit": 24,
    "submit_shared": 16,
    "submit_urgent": 8,
    "submit_many": 9,
    "submit_beam": 7,
    "submit_guided": 12,
    "submit_scored": 8,
    "submit_pooled": 8,
    "submit_deadline": 6,
    "submit_poison": 2,
    "submit_deadly": 1,
    "submit_too_large": 3,
    "submit_odd": 6,
    "burst": 3,
    "crowd": 2,
    "cancel_request": 8,
    "cancel_choice": 4,
    "client_reads_late": 2,
    "outbox_full": 1,
    "fail_step": 5,
    "fail_step_with_culprit": 28,
    "slow_step": 3,
    "stuck_worker": 1,
    "delay_stream": 4,
    "pause_writers": 3,
    "cut_worker": 3,
    "cut_frontend": 4,
    "worker_dies": 2,
    "worker_joins": 3,
    "drain_worker": 2,
    "frontend_dies": 1,
    "scheduler_dies": 2,
    "usurp": 1,
    "claim_generation": 1,
    "reset_cache": 2,
    "lose_tokens": 3,
    "duplicate_to_frontend": 3,
    "old_epoch_to_frontend": 3,
    "reorder_to_frontend": 3,
    "duplicate_from_frontend": 2,
    "lose_result": 1,
    "duplicate_result": 2,
    "reorder_results": 1,
    "late_result": 3,
    "unknown_step": 2,
    "broken_result": 1,
    "submit_again": 20,
    "store_loses": 4,
    "store_damages": 2,
    "store_clears": 1,
    "store_switches": 3,
    "load_ends_oddly": 6,
    "loads_hang": 4,
    "cancel_loading": 8,
    "answer_unknown_load": 3,
    "set_roles": 5,
    "probe_pair": 5,
    "sleep_worker": 4,
    "wake_worker": 6,
    "sleeper_dies": 2,
    "cancel_handed_off": 6,
    "source_dies": 2,
    "time": 16,
    "time_jump": 3,
    "pause_scheduler": 1,
}
"""How often each kind is drawn; the names are those of the rules in `actions`."""


def draw_events(seed: int, num_events: int) -> list[Event]:
    """Return the events of a seed."""
    dice = random.Random(seed * 2)
    return [
        (kind, dice.randrange(1 << 16), dice.randrange(1 << 16), dice.randrange(1 << 16))
        for kind in dice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=num_events)
    ]
