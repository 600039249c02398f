"""Choices of one request (n > 1): the leader computes the shared prompt, and its followers are
forked from it."""

from pagewire_scheduler.core.state.request import Request, Sequence


def follow(leader: Sequence, followers: list[Sequence]) -> None:
    """Let `followers` wait for `leader` to compute the prompt they have in common."""
    leader.followers = followers
    for follower in followers:
        follower.leader = leader


def leaders(sequences: list[Sequence]) -> list[Sequence]:
    """Let new choices with the same prompt follow the first of them; return who is to be queued."""
    fresh = [s for s in sequences if not s.num_emitted and s.leader is None and not s.followers]
    by_request: dict[Request, list[Sequence]] = {}
    for sequence in fresh:
        by_request.setdefault(sequence.request, []).append(sequence)
    for first, *others in by_request.values():
        if others:
            follow(first, others)
    return [sequence for sequence in sequences if sequence.leader is None]
