"""What a load comes to: arrivals, percentiles, and requests that fail."""

import math
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pagewire.bench.openai_stream import Target, Timed, first_model, run_request
from pagewire.bench.page import durations, goodput_points, page, percentile_points
from pagewire.bench.report import make_report, percentile, table
from pagewire.bench.workload import BenchRun, Workload, arrival_seconds
from pagewire.cli import bench
from pagewire_shared.errors import StartupError, UnavailableError


def test_percentiles_are_linear_between_neighbours() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0], 99) == 3.0
    assert percentile([0.0, 1.0, 2.0, 3.0], 50) == 1.5
    assert percentile([0.0, 10.0], 90) == 9.0


def test_arrivals_follow_the_request_rate() -> None:
    assert arrival_seconds(random.Random(0), 3, math.inf) == [0.0, 0.0, 0.0]
    arrivals = arrival_seconds(random.Random(0), 2000, 10.0)
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    assert 180 < arrivals[-1] < 220


def test_a_report_counts_failures_separately() -> None:
    good = Timed(1.0, [1.5, 1.6, 1.9], 2.0, 10, 3)
    bad = Timed(1.0, [1.1], 1.2, 5, 5, error="status 500: x")
    report = make_report([good, bad], 2.0)
    assert (report.num_requests, report.num_failed) == (2, 1)
    assert report.output_tokens_per_second == 1.5
    assert report.ttft.mean == pytest.approx(0.5)
    assert report.itl.mean == pytest.approx(0.2)
    assert report.tpot.mean == pytest.approx(0.25)
    assert report.latency.percentiles["p99"] == pytest.approx(1.0)
    assert "error: status 500: x" in table(report)
    assert "TTFT" in table(make_report([bad], 1.0))


def test_a_page_draws_what_was_measured() -> None:
    good = [Timed(1.0, [1.0 + 0.1 * place], 2.0, 10, 3) for place in range(1, 5)]
    bad = Timed(1.0, [1.1], 1.2, 5, 5, error="status 500: x")
    found = durations([*good, bad])
    assert found["TTFT"] == pytest.approx([100, 200, 300, 400])
    assert found["TPOT"] == pytest.approx([300, 350, 400, 450])
    points = percentile_points(found["TTFT"])
    assert points[0] == pytest.approx((0, 100))
    assert points[-1] == pytest.approx((100, 400))
    # Of four requests in two seconds, three meet 300 ms.
    assert goodput_points([100.0, 200.0, 300.0, 400.0], 2.0)[3] == (300.0, 1.5)
    assert goodput_points([], 2.0) == ((0.0, 0.0),)
    many = goodput_points([float(place) for place in range(100_000)], 1.0)
    assert len(many) < 300
    assert many[-1] == (99_999.0, 100_000.0)
    drawn = page("<m>", make_report([*good, bad], 2.0), [*good, bad])
    assert "<h1>&lt;m&gt;</h1>" in drawn
    assert drawn.count("<polyline") == 6
    assert "error: status 500: x" in drawn
    assert "<polyline" in page("m", make_report([bad], 1.0), [bad])


class Handler(BaseHTTPRequestHandler):
    """Streams four words; the body decides what goes wrong."""

    protocol_version = "HTTP/1.1"
    SLOW_SECONDS = 10.0
    is_slow = False
    """Whether requests stay without an answer."""
    is_over = threading.Event()

    def do_GET(self) -> None:
        self._answer(200, b'{"data": [{"id": "served"}]}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.is_slow:
            self.is_over.wait(self.SLOW_SECONDS)
        if b"fail" in body:
            self._answer(500, b"no")
            return
        num_words = body.count(b" ")
        usage = b'{"prompt_tokens": %d, "completion_tokens": 2}' % num_words
        events = [b'{"choices": [{"text": "a"}]}', b'{"choices": [{"text": "b"}]}']
        events.append(b'{"choices": [], "usage": %s}' % usage)
        if b"cut" not in body:
            events.append(b"[DONE]")
        self._answer(200, b"".join(b"data: %s\n\n" % event for event in events))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    """Prints no traceback of a client that left.

    Printing one calls `ast.parse`. Python 3.11 counts the depth of syntax trees for all threads
    together, so a test that parses at that moment fails.
    """

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@pytest.fixture
def target() -> Iterator[Target]:
    server = QuietServer(("127.0.0.1", 0), Handler)
    Handler.is_over.clear()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Target(f"http://127.0.0.1:{server.server_port}/v1", "m", is_chat=False)
    Handler.is_over.set()
    server.shutdown()
    server.daemon_threads = True
    server.block_on_close = False
    server.server_close()
    thread.join()


def test_a_load_test_of_a_server_is_measured(target: Target) -> None:
    assert first_model(target) == "served"
    load = Workload(
        num_prompts=5,
        request_rate=math.inf,
        max_concurrency=2,
        input_len=10,
        output_len=2,
        ignore_eos=True,
        seed=0,
    )
    progress = NotedProgress()
    result = BenchRun(target, load, progress).run()
    assert result.seconds > 0
    assert not result.is_interrupted
    assert [one.error for one in result.requests] == [None] * 5
    assert {(len(one.chunks), one.num_output_tokens) for one in result.requests} == {(2, 2)}
    assert progress.num_texts == 10
    assert len(progress.num_open) == 5
    assert progress.num_open[-1] == 0
    assert max(progress.num_open) <= 1


class NotedProgress:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.num_texts = 0
        self.num_open: list[int] = []

    def text(self) -> None:
        self.num_texts += 1

    def ended(self, _: Timed, num_open: int) -> None:
        self.num_open.append(num_open)


def test_an_interrupt_keeps_what_was_measured(target: Target) -> None:
    load = Workload(
        num_prompts=40,
        request_rate=math.inf,
        max_concurrency=3,
        input_len=10,
        output_len=2,
        ignore_eos=True,
        seed=0,
    )

    class InterruptingProgress(NotedProgress):
        def ended(self, timed: Timed, num_open: int) -> None:
            super().ended(timed, num_open)
            if len(self.num_open) == 4:
                Handler.is_slow = True
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    began = time.monotonic()
    try:
        result = BenchRun(target, load, InterruptingProgress()).run()
    finally:
        Handler.is_slow = False
    assert result.is_interrupted
    assert 4 <= len(result.requests) < 10
    assert [one.error for one in result.requests] == [None] * len(result.requests)
    assert time.monotonic() - began < Handler.SLOW_SECONDS


@pytest.mark.parametrize(("body", "error"), [(b"fail", "status 500"), (b"cut", "DONE")])
def test_failures_are_reported_not_raised(target: Target, body: bytes, error: str) -> None:
    assert error in (run_request(target, body).error or "")


def test_a_server_that_refuses_ends_the_load(target: Target) -> None:
    load = Workload(
        num_prompts=1,
        request_rate=math.inf,
        max_concurrency=1,
        input_len=1,
        output_len=1,
        ignore_eos=False,
        seed=0,
    )
    with pytest.raises(UnavailableError, match="status 500"):
        BenchRun(Target(target.base_url, "fail", is_chat=False), load).run()


def test_a_page_is_written_beside_the_table(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "bench.html"
    flags = ["--base-url", target.base_url, "--num-prompts", "3", "--html"]
    assert bench.run("pagewire bench", [*flags, str(place)]) == 0
    assert "requests          3 (0 failed)" in capsys.readouterr().out
    assert "<h1>served: 3 requests, inf a second</h1>" in place.read_text()
    with pytest.raises(StartupError, match=r"--html: .* lies in no folder"):
        bench.run("pagewire bench", [*flags, str(tmp_path / "no" / "bench.html")])
