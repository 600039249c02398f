"""The metrics port with TLS and tokens, on a real server."""

import http.client
import os
import random
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from pagewire.cli.certs.authority import Authority, facts_of
from pagewire_shared.errors import StartupError
from pagewire_shared.process.metrics_access import MetricsAccess
from pagewire_shared.process.metrics_server import MetricsServer
from pagewire_shared.security.instances import INSTANCES
from pagewire_shared.security.roles import LinkRole
from support.processes.processes import free_port
from support.security.certificates import links_of, make_certificates

TOKEN, OTHER = "t" * 32, "u" * 32


def access(tls: Path | None = None, tokens: Path | None = None) -> MetricsAccess:
    return MetricsAccess(
        SimpleNamespace(
            tls_dir=tls and str(tls),
            metrics_tls=tls is not None,
            metrics_token_file=str(tokens or ""),
        )
    )


def serve(allowed: MetricsAccess) -> int:
    port = free_port()
    MetricsServer(lambda environ, start: [b"metrics"], allowed).start("127.0.0.1", port)
    return port


def get(port: int, path: str, token: str = "", tls: ssl.SSLContext | None = None) -> int | str:
    """Return a status, or the name of the error."""
    made = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    if tls is not None:
        made = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=tls)
    try:
        made.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return made.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        made.close()


def client(authority: Path, own: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    context.check_hostname = False
    if own is not None:
        context.load_cert_chain(own / "tls.crt", own / "tls.key")
    return context


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(0, random.randrange(2**40)))


def test_a_token_is_asked_for_and_followed(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# prometheus\n{TOKEN}\n")
    port = serve(access(tokens=file))
    assert [get(port, "/metrics", token) for token in ("", OTHER, TOKEN)] == [401, 401, 200]
    assert get(port, "/health/startup") != 401
    rewrite(file, OTHER)
    assert [get(port, "/metrics", token) for token in (TOKEN, OTHER)] == [401, 200]
    rewrite(file, "short")
    assert get(port, "/metrics", OTHER) == 200


def test_an_operator_reads_with_a_certificate(tmp_path: Path) -> None:
    cell, strangers = make_certificates(tmp_path / "cell"), make_certificates(tmp_path / "other")
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    own = cell / LinkRole.SCHEDULER
    port = serve(access(own, file))
    operator, worker = (client(cell, cell / role) for role in (LinkRole.OPERATOR, LinkRole.WORKER))
    nobody = client(cell, None)
    assert [get(port, "/metrics", "", one) for one in (operator, worker, nobody)] == [200, 401, 401]
    assert get(port, "/metrics", TOKEN, nobody) == 200
    assert get(port, "/health/startup", "", nobody) != 401
    assert isinstance(get(port, "/metrics", TOKEN), str)  # not in the clear
    assert isinstance(get(port, "/metrics", TOKEN, client(strangers, None)), str)
    stolen = client(cell, strangers / LinkRole.OPERATOR)
    assert isinstance(get(port, "/metrics", "", stolen), str)
    # The certificate is followed, and so is the list of who may call.
    Authority.load(cell).issue(own, LinkRole.SCHEDULER, cell="c", instance="2", days=2.0)
    assert get(port, "/metrics", "", operator) == 200
    with socket.create_connection(("127.0.0.1", port)) as plain, operator.wrap_socket(plain) as tls:
        names = [name for kind, name in tls.getpeercert()["subjectAltName"] if kind == "URI"]
    assert names == ["spiffe://c/scheduler/2"]
    rewrite(own / INSTANCES, "worker\n")
    assert get(port, "/metrics", "", operator) == 401


@pytest.mark.parametrize("text", ["", "short\n", "two words that are long\n"])
def test_tokens_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(StartupError, match="has to hold tokens of at least 16"):
        access(tokens=tmp_path / "tokens")


def test_tls_needs_a_certificate() -> None:
    settings = SimpleNamespace(tls_dir=None, metrics_tls=True, metrics_token_file="")
    with pytest.raises(StartupError, match="--metrics-tls needs --tls-dir"):
        MetricsAccess(settings)


def test_the_end_of_the_certificate_is_shown(tmp_path: Path) -> None:
    authority, folder = Authority.create(tmp_path, "c", 10.0), tmp_path / "w"
    for days in (1.0, 5.0):
        authority.issue(folder, LinkRole.WORKER, cell="c", instance="1", days=days)
        if days == 1.0:
            with links_of(folder):
                pass
        shown = REGISTRY.get_sample_value(
            "pagewire_certificate_end_timestamp_seconds", {"setting": "--tls-dir"}
        )
        assert shown == facts_of(folder).expires.timestamp()
