"""The publisher's sockets: replays, snapshots, heartbeats, bounds and keys."""

import re
import select
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.auth
from prometheus_client import REGISTRY

from pagewire_scheduler.core.blocks.cache_changes import (
    CLEARED,
    BlockContent,
    CacheChange,
    ChangeKind,
)
from pagewire_scheduler.kv_events import publisher as module
from pagewire_scheduler.kv_events.batch_queue import BatchQueue, CacheBatch
from pagewire_scheduler.kv_events.events_config import KvEventsConfig
from pagewire_scheduler.kv_events.publisher import KvEventPublisher
from pagewire_scheduler.kv_events.wire_events import STORE, CacheInstance
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_u32
from support.kv_events.vllm_format import decoder

INSTANCE = CacheInstance(rank=0, topic=b"kv@a@m", block_size=4, windows=(None,))
SHELF = CacheInstance(rank=1, topic=b"kv@s@", medium=STORE)
END = (-1).to_bytes(8, "big", signed=True)


def stored(number):
    content = BlockContent(BlockName(number.to_bytes(16, "big")), 0, None, pack_u32([number] * 4))
    return CacheChange(ChangeKind.STORED, content)


def batch(*changes, instance=INSTANCE, **fields):
    return CacheBatch(instance=instance, changes=[*changes], timestamp=1.0, **fields)


class Scene:
    """A publisher and its clients."""

    def __init__(self, folder, **changes):
        names = ("endpoint", "replay_endpoint", "snapshot_endpoint")
        endpoints = {name: f"ipc://{folder}/{name}" for name in names}
        given = {**endpoints, "enable_kv_cache_events": True, **changes}
        self.config = KvEventsConfig(**given)
        self.queue = BatchQueue(1000)
        self.publisher = KvEventPublisher(self.config, self.queue)
        self.context = zmq.Context()
        self.subscribers = []

    def put(self, *batches):
        for one in batches:
            assert self.queue.put(one)
        deadline = time.monotonic() + 5
        while self.queue._batches and time.monotonic() < deadline:
            time.sleep(0.001)

    def ask(self, kind, request, num=1):
        dealer = self.context.socket(zmq.DEALER)
        dealer.connect(self.publisher.endpoints[f"{kind}_endpoint"])
        dealer.send_multipart([b"", request] if isinstance(request, bytes) else request)
        answers = []
        while len(answers) < num and dealer.poll(2000):
            answers.append(dealer.recv_multipart())
            if answers[-1][-2] == END:
                break
        dealer.close(0)
        return answers

    def subscribe(self, **options):
        subscriber = self.context.socket(zmq.SUB)
        self.subscribers.append(subscriber)
        for option, value in options.items():
            setattr(subscriber, option, value)
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        subscriber.connect(self.publisher.endpoints["endpoint"])
        return subscriber

    def close(self):
        self.publisher.close()
        for subscriber in self.subscribers:
            subscriber.close(0)
        self.context.term()


@pytest.fixture
def scene(tmp_path):
    made = []

    def make(**changes):
        made.append(Scene(tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def number(frame):
    return int.from_bytes(frame, "big", signed=True)


def test_a_replay_has_topic_sequence_and_payload_as_it_was_sent(scene):
    made = scene(snapshot_endpoint="")
    made.put(*(batch(stored(n)) for n in range(1, 6)))
    answers = made.ask("replay", (2).to_bytes(8, "big"), 4)
    assert [frames[0] for frames in answers] == [b""] * 4
    assert [number(frames[2]) for frames in answers] == [2, 3, 4, -1]
    assert answers[-1] == [b"", b"", END, b""]
    assert {frames[1] for frames in answers[:-1]} == {b"kv@a@m"}
    hashes = [decoder.decode(frames[3]).events[0].block_hashes for frames in answers[:-1]]
    assert hashes == [[3], [4], [5]]


def test_a_replay_is_bounded_by_steps_and_bytes(scene, monkeypatch):
    made = scene(buffer_steps=3, snapshot_endpoint="")
    made.put(*(batch(stored(n)) for n in range(1, 8)))
    assert [number(one[2]) for one in made.ask("replay", bytes(8), 4)] == [4, 5, 6, -1]
    monkeypatch.setattr(module, "MAX_REPLAY_BYTES", 1)
    made.put(batch(stored(8)))
    assert [number(one[2]) for one in made.ask("replay", bytes(8))] == [-1]


def test_dropped_batches_leave_a_gap(scene):
    made = scene(snapshot_endpoint="")
    made.put(batch(stored(1)), batch(stored(2), num_dropped=3))
    assert [number(one[2]) for one in made.ask("replay", bytes(8), 3)] == [0, 4, -1]


def test_a_snapshot_names_the_newest_batch_and_the_publisher(scene):
    made = scene()
    made.put(batch(stored(1), stored(2)), batch(stored(3)))
    ((_, sequence, publisher, *chunks),) = made.ask("snapshot", b"snapshot")
    assert (number(sequence), publisher) == (1, made.publisher.publisher_id)
    events = [event for chunk in chunks for event in decoder.decode(chunk).events]
    assert sorted(one for event in events for one in event.block_hashes) == [1, 2, 3]


def test_an_empty_publisher_has_a_snapshot_too(scene):
    ((_, sequence, publisher),) = scene().ask("snapshot", b"snapshot")
    assert (number(sequence), len(publisher)) == (-1, 16)


@pytest.mark.parametrize("why", ["lagging", "blocks", "bytes"])
def test_a_snapshot_that_cannot_be_had_is_refused(scene, why):
    limits = {"blocks": {"snapshot_max_blocks": 1}, "bytes": {"snapshot_max_response_bytes": 1}}
    made = scene(**limits.get(why, {}))
    made.put(batch(stored(1), stored(2), is_lagging=why == "lagging"))
    ((_, sequence, publisher),) = made.ask("snapshot", b"snapshot")
    assert (number(sequence), publisher) == (-2, made.publisher.publisher_id)


@pytest.mark.parametrize("kind", ["replay", "snapshot"])
def test_a_malformed_request_is_counted_and_the_next_is_answered(scene, kind):
    made, label = scene(), {"kind": "malformed"}
    name = "pagewire_scheduler_kv_event_requests_total"
    before = REGISTRY.get_sample_value(name, label)
    for request in ([b"", b"x"], [b"snapshot"], [b"", b"", b""]):
        dealer = made.context.socket(zmq.DEALER)
        dealer.connect(made.publisher.endpoints[f"{kind}_endpoint"])
        dealer.send_multipart(request)
        assert not dealer.poll(50)
        dealer.close(0)
    good = bytes(8) if kind == "replay" else b"snapshot"
    assert made.ask(kind, good)
    assert REGISTRY.get_sample_value(name, label) == before + 3


def test_an_idle_publisher_of_snapshots_beats(scene, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.05)
    made = scene()
    subscriber = made.subscribe()
    beats = []
    while len(beats) < 3:
        assert subscriber.poll(2000)
        beats.append(subscriber.recv_multipart())
    numbers = [number(frames[1]) for frames in beats]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert msgspec.msgpack.decode(beats[0][2])[1:] == [[], None, made.publisher.publisher_id]
    assert beats[0][0] == b"kv@"


def test_a_slow_subscriber_sees_a_gap_and_holds_nothing_up(scene):
    made = scene(hwm=5, snapshot_endpoint="")
    subscriber = made.subscribe(rcvhwm=5)
    made.put(batch(stored(1)))
    while not subscriber.poll(10):
        made.put(batch(stored(1)))
    large = [stored(n) for n in range(2, 500)]
    made.put(*(batch(*large) for _ in range(60)))
    numbers = []
    while subscriber.poll(200):
        numbers.append(number(subscriber.recv_multipart()[1]))
    newest = max(number(one[2]) for one in made.ask("replay", bytes(8), 10_000))
    assert newest >= 60
    assert len(numbers) < newest


def test_a_store_is_removed_block_by_block(scene, monkeypatch):
    monkeypatch.setattr(module, "MAX_GONE", 2)
    made = scene()
    made.put(batch(*map(stored, (1, 2, 3)), instance=SHELF))
    made.put(batch(CLEARED, stored(9), instance=SHELF))
    replayed = [one for one in made.ask("replay", bytes(8), 5) if one[3]]
    events = [event for one in replayed for event in decoder.decode(one[3]).events]
    removed = [one for e in events if type(e).__name__ == "BlockRemoved" for one in e.block_hashes]
    assert sorted(removed) == [1, 2, 3]
    assert {event.medium for event in events} == {"CPU"}
    ((_, _, _, chunk),) = made.ask("snapshot", b"snapshot")
    (event,) = decoder.decode(chunk).events
    assert (event.block_hashes, event.token_ids, event.block_size) == ([9], [], 0)


def test_a_taken_endpoint_is_named(scene, tmp_path):
    port = scene(endpoint="tcp://127.0.0.1:0", snapshot_endpoint="").publisher.endpoints["endpoint"]
    queue = BatchQueue(10)
    with pytest.raises(StartupError, match=f"endpoint {port}: Address already in use"):
        KvEventPublisher(KvEventsConfig(endpoint=port), queue)
    queue.release()


def test_what_is_queued_is_published_before_the_end(scene):
    made = scene(snapshot_endpoint="", replay_endpoint="")
    subscriber = made.subscribe()
    while not subscriber.poll(10):
        made.put(batch(stored(1)))
    for n in range(2, 30):
        made.queue.put(batch(stored(n)))
    made.publisher.close()
    hashes = set()
    while subscriber.poll(200):
        hashes.add(decoder.decode(subscriber.recv_multipart()[2]).events[0].block_hashes[0])
    assert {*range(2, 30)} <= hashes


def test_the_example_of_the_page_follows(scene):
    page = (Path(__file__).parents[4] / "docs" / "operations" / "kv-events.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    made = scene(endpoint="tcp://127.0.0.1:0", snapshot_endpoint="")
    code = code.replace("tcp://127.0.0.1:5557", made.publisher.endpoints["endpoint"])
    given = [sys.executable, "-c", code]
    with subprocess.Popen(given, stdout=subprocess.PIPE, text=True) as example:
        try:
            while not select.select([example.stdout], [], [], 0.02)[0]:
                made.put(batch(stored(1), stored(2)))
            line = example.stdout.readline()
        finally:
            example.kill()
    assert line.endswith("b'kv@a@m' {(0, 'GPU'): 2}\n")


def keys(folder, *names):
    folder.mkdir()
    for name in names:
        zmq.auth.create_certificates(folder, name)
    return folder


@pytest.mark.parametrize("is_known", [True, False])
def test_only_subscribers_with_a_known_key_hear_anything(scene, tmp_path, is_known):
    own = keys(tmp_path / "own", "server")
    clients, strangers = keys(tmp_path / "clients", "router"), keys(tmp_path / "others", "router")
    made = scene(
        endpoint="tcp://127.0.0.1:0",
        curve_secret_key_file=str(own / "server.key_secret"),
        curve_client_keys=str(clients),
    )
    folder = clients if is_known else strangers
    public, secret = zmq.auth.load_certificate(folder / "router.key_secret")
    server, _ = zmq.auth.load_certificate(own / "server.key")
    options = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": server}
    with_key, without = made.subscribe(**options), made.subscribe()
    for _ in range(30):
        made.put(batch(stored(1)))
        if with_key.poll(10) and is_known:
            break
    assert bool(with_key.poll(100)) is is_known
    assert not without.poll(100)


@pytest.mark.parametrize(
    ("name", "said"),
    [("server.key", "has no secret key"), ("missing", "curve_secret_key_file .*missing")],
)
def test_a_key_file_that_cannot_be_used_is_named(tmp_path, name, said):
    own = keys(tmp_path / "own", "server")
    config = KvEventsConfig(
        endpoint=f"ipc://{tmp_path}/a",
        curve_secret_key_file=str(own / name),
        curve_client_keys=str(own),
    )
    queue = BatchQueue(10)
    with pytest.raises(StartupError, match=said):
        KvEventPublisher(config, queue)
    queue.release()


def test_one_that_fails_says_so_and_leaves_its_endpoints(scene, monkeypatch):
    made = scene()

    def fail(*_):
        raise ValueError("planted")

    monkeypatch.setattr(made.publisher._writer, "events", fail, raising=True)
    made.put(batch(stored(1)))
    deadline = time.monotonic() + 5
    while not made.publisher.has_failed and time.monotonic() < deadline:
        time.sleep(0.001)
    assert made.publisher.has_failed
    made.publisher.close()
    other = KvEventPublisher(made.config, BatchQueue(10))
    assert other.publisher_id != made.publisher.publisher_id
    other.close()
