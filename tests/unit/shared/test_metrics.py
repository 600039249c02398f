"""The metrics endpoint of a process, asked as Prometheus and others ask."""

import httpx
import pytest
from prometheus_client import REGISTRY, Counter
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from pagewire_shared.errors import StartupError
from pagewire_shared.process.metrics import package_version, serve_metrics
from pagewire_shared.rpc.address import Address
from support.processes.processes import free_port

OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


@pytest.fixture(scope="module")
def url() -> str:
    port = free_port()
    serve_metrics(Address("127.0.0.1", port), "tested")
    return f"http://127.0.0.1:{port}/metrics"


@pytest.mark.parametrize("accepted", [OPEN_METRICS, "text/plain", "*/*"])
def test_metric_names_keep_their_colons_for_any_accept_header(url: str, accepted: str) -> None:
    counter = Counter("colon:name", "Colon", registry=REGISTRY)
    try:
        counter.inc(3)
        answer = httpx.get(url, headers={"Accept": accepted}, timeout=10)
    finally:
        REGISTRY.unregister(counter)
    is_open = accepted == OPEN_METRICS
    kind = "application/openmetrics-text; version=1.0.0" if is_open else "text/plain; version=0.0.4"
    assert answer.headers["content-type"].startswith(kind)
    families = open_families if is_open else text_string_to_metric_families
    found = {
        sample.name: sample.value for family in families(answer.text) for sample in family.samples
    }
    assert found["colon:name_total"] == 3
    assert found["process_cpu_seconds_total"] > 0
    assert "colon:name_created" not in found


def test_build_info_has_role_and_version(url: str) -> None:
    line = f'pagewire_build_info{{role="tested",version="{package_version()}"}} 1.0'
    assert line in httpx.get(url, timeout=10).text.splitlines()


def test_a_taken_port_is_an_error_of_the_flag(url: str) -> None:
    port = int(url.split(":")[2].split("/")[0])
    with pytest.raises(StartupError, match=f"--metrics-port: cannot listen on 127.0.0.1:{port}"):
        serve_metrics(Address("127.0.0.1", port), "tested")
