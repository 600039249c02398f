"""Choices of one request (n > 1): the leader computes the shared prompt, and its followers are
forked from it."""

from pagewire_scheduler.core.state.request import Branching, Request, Sequence


def follow(leader: Sequence, followers: list[Sequence]) -> None:
    """Make `followers` wait until `leader` has computed their common prompt."""
    leader.branch.followers = followers
    for follower in followers:
        follower.branch.leader = leader


def unfollow(follower: Sequence) -> Sequence:
    """Detach `follower` from its leader; return the leader."""
    leader = follower.branch.leader
    assert leader is not None, "a choice without a leader stops following"
    leader.branch.followers.remove(follower)
    follower.branch.leader = None
    return leader


def release_followers(leader: Sequence) -> list[Sequence]:
    """Detach all followers of `leader`; return them."""
    followers, leader.branch.followers = leader.branch.followers, []
    for follower in followers:
        follower.branch.leader = None
    return followers


def leaders(sequences: list[Sequence]) -> list[Sequence]:
    """Make new choices with the same prompt follow the first of them; return the ones to queue."""
    fresh = [s for s in sequences if not s.num_emitted and s.branch == Branching()]
    by_request: dict[Request, list[Sequence]] = {}
    for sequence in fresh:
        by_request.setdefault(sequence.request, []).append(sequence)
    for first, *others in by_request.values():
        if others:
            follow(first, others)
    return [sequence for sequence in sequences if sequence.branch.leader is None]
