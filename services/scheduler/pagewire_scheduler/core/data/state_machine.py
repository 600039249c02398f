"""The states of a sequence, and the table of legal moves between them."""

import enum


class State(enum.Enum):
    """The state of a sequence; moves are checked by `require_move`."""

    WAITING = "waiting"  # in a queue, holds neither slot nor blocks
    WAITING_FOR_GRAMMAR = "waiting_for_grammar"  # its grammar is being compiled
    WAITING_FOR_ADAPTER = "waiting_for_adapter"  # its adapter is not in a slot of the worker
    WAITING_FOR_REMOTE_KV = "waiting_for_remote_kv"  # its blocks are on their way
    RUNNING = "running"  # holds a slot and blocks of one worker
    PREEMPTED = "preempted"  # lost slot and blocks, queued again once its last step returned
    FINISHED_STOPPED = "finished_stopped"  # a stop token
    FINISHED_LENGTH = "finished_length"  # max_tokens or the end of the context
    FINISHED_ABORTED = "finished_aborted"  # the client, a lease or a deadline ended it
    FINISHED_FAILED = "finished_failed"  # the system could not go on

    @property
    def is_finished(self) -> bool:
        """Whether no move leads out of this state."""
        return self in FINISHED


FINISHED = frozenset(
    {
        State.FINISHED_STOPPED,
        State.FINISHED_LENGTH,
        State.FINISHED_ABORTED,
        State.FINISHED_FAILED,
    }
)

WAITING = frozenset(
    {
        State.WAITING,
        State.WAITING_FOR_GRAMMAR,
        State.WAITING_FOR_ADAPTER,
        State.WAITING_FOR_REMOTE_KV,
        State.PREEMPTED,
    }
)

MOVES: dict[State, frozenset[State]] = {
    # Emitted tokens that came with a Submit may already end a sequence, hence WAITING to any end.
    State.WAITING: FINISHED
    | {
        State.RUNNING,
        State.WAITING_FOR_GRAMMAR,
        State.WAITING_FOR_ADAPTER,
        State.WAITING_FOR_REMOTE_KV,
    },
    State.WAITING_FOR_GRAMMAR: frozenset(
        {State.WAITING, State.FINISHED_ABORTED, State.FINISHED_FAILED}
    ),
    State.WAITING_FOR_ADAPTER: frozenset(
        {State.WAITING, State.FINISHED_ABORTED, State.FINISHED_FAILED}
    ),
    # Whatever the outcome of the load, the sequence takes its turn in the queue.
    State.WAITING_FOR_REMOTE_KV: frozenset({State.WAITING, State.FINISHED_ABORTED}),
    # Back to WAITING when the worker is lost.
    State.RUNNING: FINISHED | {State.PREEMPTED, State.WAITING},
    # A token sampled before the preemption may still end it.
    State.PREEMPTED: FINISHED | {State.RUNNING, State.WAITING},
    **{state: frozenset() for state in FINISHED},
}


class IllegalMoveError(AssertionError):
    """A sequence was moved along an edge that the table does not have."""


def require_move(source: State, target: State) -> None:
    """Raise IllegalMoveError unless the table has `source` -> `target`."""
    if target not in MOVES[source]:
        raise IllegalMoveError(f"no move from {source.value} to {target.value}")
