"""The chart's pods as processes: they find each other by the names of Services, their probes tell
how far they are, they answer, and they are replaced under load without a failed request."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.charts.charts import VALUES_FILES, Release, pods_of, render
from support.charts.kubelet import ask
from support.charts.pod_plans import plan_pod
from support.charts.rehearsal import Rehearsal, rehearse
from support.processes.namespaces import why_not
from support.processes.processes import wait_until
from support.traffic.steady_load import SteadyLoad, Tally

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]

NAMESPACE = "serving"
KEY = "rehearsed-key"
# The smallest of everything, and two of what serves requests.
VALUES: dict[str, Any] = {
    "apiKeys": {"lines": [f"team={KEY}"]},
    "frontend": {"replicas": 2},
}
CLIENTS = 2
NUM_TOKENS = 24
PATIENCE_SECONDS = 60.0
WAYS = ("openai", "grpc", "fresh connection")
CPU_VALUES = [path for path in VALUES_FILES if path.name == "values-cpu.yaml"]


@pytest.fixture(scope="module")
def cell(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    release = Release(VALUES, CPU_VALUES, namespace=NAMESPACE)
    objects = render(helm, release)
    with rehearse(objects, NAMESPACE, tmp_path_factory.mktemp("release")) as running:
        # Nobody is ready before the first probe, and all of them come to be.
        assert not any(pod.kubelet.is_ready for pod in running.pods)
        running.wait_ready(*running.pods)
        yield running


def http_url(cell: Rehearsal) -> str:
    return f"http://{cell.hosts['pw-pagewire-frontend']}:8000"


def test_it_answers_under_the_name_of_its_service(cell: Rehearsal) -> None:
    for pod in cell.pods:
        told = [what for _, what in pod.kubelet.history]
        assert told[:2] == ["started", "ready"], pod.plan.name
    body = {
        "model": "pagewire-builtin",
        "temperature": 0,
        "messages": [{"role": "user", "content": "Copy this list: river, cloud, apple"}],
    }
    url = f"{http_url(cell)}/v1/chat/completions"
    assert httpx.post(url, json=body, timeout=60).status_code == 401
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(url, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "river, cloud, apple"


def test_the_test_of_the_release_passes(cell: Rehearsal) -> None:
    """`helm test` starts this pod and looks at its exit status."""
    (pods,) = [one for one in pods_of(cell.objects) if one.owner["kind"] == "Pod"]
    plan = plan_pod(pods, 0, cell.objects)
    done = cell.run_to_end(plan)
    assert done.returncode == 0, done.stdout + done.stderr


class Loader:
    """Steady load in a thread of its own while inside."""

    def __init__(self, load: SteadyLoad) -> None:
        self._load = load
        self._loop = asyncio.new_event_loop()
        self._until = asyncio.Event()
        self.tally = Tally()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        running = self._load.run(self._until, CLIENTS, self.tally)
        self._loop.run_until_complete(running)

    def __enter__(self) -> Tally:
        self._thread.start()
        return self.tally

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._until.set)
        self._thread.join(180)
        self._loop.close()


def test_every_role_is_replaced_under_load(cell: Rehearsal) -> None:
    address = cell.hosts["pw-pagewire-frontend"]
    load = SteadyLoad(
        f"http://{address}:8000", f"{address}:8001", "pagewire-builtin", NUM_TOKENS, KEY
    )
    owners = [
        pods.name for pods in pods_of(cell.objects, "frontend", "worker", "kvstore", "scheduler")
    ]
    assert len(owners) == 4
    with Loader(load) as tally:
        wait_for_answers(tally)
        for owner in owners:
            for ending in cell.roll(owner):
                assert ending.status == 0, ending
            assert tally.faults == [], owner
            wait_for_answers(tally)
    assert tally.faults == []
    assert not any(pod.kubelet.is_dead for pod in cell.pods)


def wait_for_answers(tally: Tally) -> None:
    """Wait until every way of asking has had a few answers more."""
    wanted = {way: tally.answers[way] + CLIENTS for way in WAYS}
    wait_until(
        lambda: bool(tally.faults) or all(tally.answers[way] >= wanted[way] for way in WAYS),
        PATIENCE_SECONDS,
        "every client gets answers",
    )


def test_a_pod_that_drains_is_not_ready(cell: Rehearsal) -> None:
    """The last test of this file: what it ends stays ended."""
    (worker,) = [pod for pod in cell.pods if pod.plan.role == "worker" and not pod.is_ending]
    body = {"model": "pagewire-builtin", "prompt": "Tell", "ignore_eos": True, "stream": True}
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.stream(
        "POST",
        f"{http_url(cell)}/v1/completions",
        json={**body, "max_tokens": 900},
        headers=headers,
        timeout=60,
    ) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        worker.process.process.terminate()
        probe = worker.plan.container["readinessProbe"]
        (port,) = [p for p in worker.plan.container["ports"] if p["name"] == "metrics"]
        ports = {"metrics": port["containerPort"]}
        wait_until(lambda: not ask(probe, worker.host, ports), PATIENCE_SECONDS, "it is not ready")
        assert worker.process.process.poll() is None, "it has not drained"
    assert worker.process.wait_end(worker.plan.grace_seconds) == 0
