"""Follows KV events as a router of others would: it knows ZMQ, msgpack and the public contract, and
nothing of Pagewire."""

import time
from collections import Counter
from typing import Any

import msgspec
import zmq

Batch = tuple[int, bytes | None, Any]
"""Sequence number, publisher and decoded payload."""


class OutsideIndex:
    """The blocks of every rank and medium, kept from batches, replays and snapshots.

    Attributes:
        blocks: (rank, medium) -> (hash, group) -> token ids; empty where they were not said.
        counts: How often each of its ways of getting in step was needed.
    """

    def __init__(self, endpoint: str, replay: str, snapshot: str, topic: bytes = b"kv@", **loss):
        self._context = zmq.Context()
        self._subscriber = self._context.socket(zmq.SUB)
        self._subscriber.setsockopt(zmq.RCVHWM, loss.get("hwm", 1000))
        self._subscriber.setsockopt(zmq.SUBSCRIBE, topic)
        self._subscriber.connect(endpoint)
        self._endpoints = {"replay": replay, "snapshot": snapshot}
        self._lost = loss.get("lost", lambda: False)
        self.blocks: dict[tuple[int, str], dict[tuple[int, int | None], tuple[int, ...]]] = {}
        self.tokens: dict[int, tuple[int, ...]] = {}
        self.counts: Counter[str] = Counter()
        self.last: int | None = None
        self._publisher: bytes | None = None

    def close(self) -> None:
        self._context.destroy(linger=0)

    def follow(self, timeout: float = 0.0) -> int:
        """Take what has come, waiting so long for the first message; return how many came."""
        num, wait = 0, timeout
        while self._subscriber.poll(round(1000 * wait)):
            wait = 0.0
            _, sequence, payload = self._subscriber.recv_multipart()
            num += 1
            if self._lost():
                self.counts["lost"] += 1
                continue
            self._take(decoded(sequence, payload))
        return num

    def _take(self, batch: Batch) -> None:
        sequence, publisher, _ = batch
        if self.last is not None and publisher != self._publisher:
            self.counts["publisher"] += 1
            self.last = None
        if self.last is not None and sequence <= self.last:
            return
        if self.last is not None and sequence > self.last + 1:
            self._replay()
        if self.last is not None and sequence > self.last + 1:
            self.last = None
        if self.last is None and not self._load_snapshot():
            return
        assert self.last is not None
        if sequence == self.last + 1:
            self._apply(batch)
        elif sequence > self.last + 1:
            self.last = None  # what the snapshot lacks is on its way: begin with the next message

    def _ask(self, kind: str, request: bytes, num_frames: int) -> list[list[bytes]]:
        """Return the answers up to the end marker of a replay, or the one of a snapshot."""
        dealer = self._context.socket(zmq.DEALER)
        dealer.connect(self._endpoints[kind])
        dealer.send_multipart([b"", request])
        answers: list[list[bytes]] = []
        try:
            while dealer.poll(2000):
                frames = dealer.recv_multipart()[1:]
                if kind == "snapshot":
                    return [frames]
                assert len(frames) == num_frames
                if frames[1] == (-1).to_bytes(8, "big", signed=True):
                    return answers
                answers.append(frames)
            return []
        finally:
            dealer.close(linger=0)

    def _replay(self) -> None:
        assert self.last is not None
        self.counts["replay"] += 1
        for _, sequence, payload in self._ask("replay", (self.last + 1).to_bytes(8, "big"), 3):
            batch = decoded(sequence, payload)
            if batch[1] == self._publisher and batch[0] == self.last + 1:
                self._apply(batch)

    def _load_snapshot(self) -> bool:
        answers = self._ask("snapshot", b"snapshot", 0)
        if not answers:
            self.counts["silent"] += 1
            return False
        sequence = int.from_bytes(answers[0][0], "big", signed=True)
        if sequence < 0:
            self.counts["no_snapshot"] += 1
            time.sleep(0.01)
            return False
        self.counts["snapshot"] += 1
        self.blocks, self.last = {}, sequence
        self._publisher = answers[0][1]
        for chunk in answers[0][2:]:
            self._apply_events(msgspec.msgpack.decode(chunk), "in snapshots: ")
        return True

    def _apply(self, batch: Batch) -> None:
        self.last = batch[0]
        self._apply_events(batch[2])

    def _apply_events(self, payload: list[Any], where: str = "") -> None:
        rank = payload[2] if len(payload) > 2 else None
        for event in payload[1]:
            self.counts[where + event["type"]] += len(event.get("block_hashes", "1"))
            if event["type"] == "AllBlocksCleared":
                self.blocks.pop((rank, "GPU"), None)
                continue
            held = self.blocks.setdefault((rank, event["medium"]), {})
            group = event.get("group_idx")
            if event["type"] == "BlockRemoved":
                for one in event["block_hashes"]:
                    del held[one, group]  # it was said to be there
                continue
            size, parent = event["block_size"], event["parent_block_hash"]
            for index, one in enumerate(event["block_hashes"]):
                ids = tuple(event["token_ids"][index * size : (index + 1) * size])
                assert (one, group) not in held, "a block is stored twice"
                held[one, group] = ids
                if ids:
                    before = () if parent is None else self.tokens.get(parent)
                    if before is None:
                        self.counts["unknown parents"] += 1
                    else:
                        self.tokens[one] = before + ids
                parent = one


def decoded(sequence: bytes, payload: bytes) -> Batch:
    """Return a batch, without any definition of its messages."""
    batch = msgspec.msgpack.decode(payload)
    return int.from_bytes(sequence, "big"), batch[3] if len(batch) > 3 else None, batch
