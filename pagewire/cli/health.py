"""`pagewire health`: asks one process whether it serves, for health checks of containers.

It needs only packages that every role has.
"""

import asyncio
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from pagewire.cli.commands import waiting_seconds
from pagewire_shared.errors import UnavailableError
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.rpc.address import parse_address

DEFAULT_TIMEOUT_SECONDS = 2.0
_SCHEMES = ("http://", "https://")


def run(name: str, argv: Sequence[str]) -> int:
    """Print the answer of a process that serves and return 0; else raise UnavailableError."""
    parser = HintingParser(
        prog=f"pagewire {name}",
        description="Ask one process whether it serves; 1 when it says no, or nothing in time.",
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="of gRPC, host:port or unix:path; or a URL such as http://127.0.0.1:8000/ready",
    )
    parser.add_argument(
        "--service",
        metavar="NAME",
        default="",
        help="what is asked of gRPC: startup, readiness or liveness (default: the whole process)",
    )
    parser.add_argument(
        "--timeout-seconds", type=waiting_seconds, default=DEFAULT_TIMEOUT_SECONDS, help="(2)"
    )
    parser.add_argument(
        "--tls-dir",
        metavar="DIR",
        help="folder with ca.crt, tls.crt and tls.key of any role, for a role with --tls-dir",
    )
    parser.add_argument(
        "--skip-verify",
        action="store_true",
        help="ask an https URL whose certificate is for another name, such as on its own host",
    )
    options = parser.parse_args(argv)
    if options.address.startswith(_SCHEMES):
        if options.service:
            parser.error("--service is for gRPC; a URL has a path: /live or /ready")
        print(_ask_http(options.address, options.timeout_seconds, not options.skip_verify))
    else:
        asked = _ask_grpc(
            options.address, options.service, options.timeout_seconds, options.tls_dir
        )
        print(asyncio.run(asked))
    return 0


def _ask_http(url: str, seconds: float, verifies: bool) -> str:
    context = ssl.create_default_context()
    if not verifies:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Without the proxies of the environment: the process usually runs on the same host.
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(url, timeout=seconds) as response:
            return f"{response.status} {response.reason}"
    except urllib.error.HTTPError as error:
        with error:
            raise UnavailableError(f"{url} answers {error.code} {error.reason}") from error
    except HTTPException as error:
        raise UnavailableError(f"{url} answers, but not in HTTP") from error
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UnavailableError(f"{url} does not answer: {reason}") from error


async def _ask_grpc(text: str, service: str, seconds: float, tls_dir: str | None) -> str:
    import grpc.aio
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from pagewire_shared.rpc import links

    if tls_dir is not None:
        links.use_folder(tls_dir)
    address = parse_address(text, setting="ADDRESS")
    shown = f"{address} ({service})" if service else address
    # A proxy of the environment must not answer in its place.
    options = [("grpc.enable_http_proxy", 0)]
    async with links.open_channel(address, None, options) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(
                health_pb2.HealthCheckRequest(service=service), timeout=seconds
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise UnavailableError(f"{address} knows no health of {service!r}") from error
            reason = f"{error.code().name}, {error.details()}"
            raise UnavailableError(f"{shown} does not answer: {reason}") from error
    status: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise UnavailableError(f"{shown} is {status}")
    return status
