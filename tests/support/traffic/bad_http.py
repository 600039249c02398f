"""HTTP as bytes, most of it bad: heads, framings, targets, methods and content types."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from support.traffic.bad_bodies import VALID
from support.traffic.raw_http import request

_COMPLETIONS = "/v1/completions"
_BODY = b'{"prompt":"hello","max_tokens":1}'
_LENGTH = f"Content-Length: {len(_BODY)}"
PATHS = (
    *VALID,
    "/v1/models",
    "/v1/models/tiny",
    "/v1/responses/resp_0",
    "/v1/responses/resp_0/cancel",
    "/v1/responses/resp_0/input_items",
    "/metrics",
    "/health",
    "/ready",
    "/ping",
    "/live",
    "/version",
    "/state",
    "/page/index.js",
    "/openapi.json",
    "/docs",
    "/",
    "/nothing",
)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND")
_NO_METHODS = ("get", "GE T", "", "G\x00T", "PRI", "X" * 5000, "\xff")
_TYPES = (
    "text/plain",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "",
    ";",
    "application/json; charset=latin-1",
    "application/json; charset=",
    "application/json; charset",
    "application/jsonx",
    "a" * 2000,
    "\xff\xfe",
)
_TAILS = (
    "%",
    "%0",
    "%zz",
    "%00",
    "%ff%fe",
    "%c0%af",
    "%ed%a0%80",
    "%2e%2e/%2e%2e/etc/passwd",
    "/../../etc/passwd",
    "//",
    "/./",
    ";a=b",
    "\\",
    "?" * 100,
    "?a=%ff",
    "?%00=%00",
    "?limit=%ff&limit=1",
    "?stream=maybe",
    "?stream=true&starting_after=-1",
    "?limit=99999999999999999999",
    "?order=%00&after=%ed%a0%80",
    "#fragment",
    "?" + "a=b&" * 1500,
    "/" + "a" * 9000,
    "\xff",
    "\x7f",
    "{}|^`",
)
_WHOLE_TARGETS = ("*", "", "http://other/version", "//other/version", "?", "version", "other:80")
_FRAMINGS = (
    (f"{_LENGTH}", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", f"{_LENGTH}"),
    (_LENGTH, "Content-Length: 5"),
    (_LENGTH, _LENGTH),
    ("Content-Length: -1",),
    ("Content-Length: 99999999999999999999999",),
    ("Content-Length: 99999999999",),
    ("Content-Length: 0x21",),
    ("Content-Length: \xb2",),
    ("Content-Length: 33, 33",),
    ("Content-Length:",),
    ("Transfer-Encoding: gzip",),
    ("Transfer-Encoding: chunked, gzip",),
    ("Transfer-Encoding: chunked, chunked",),
    ("Transfer-Encoding: x",),
    ("Transfer-Encoding : chunked",),
    (_LENGTH, "Content-Encoding: gzip"),
    (_LENGTH, "Expect: 200-maybe"),
    (_LENGTH, "Upgrade: websocket", "Connection: Upgrade"),
    (_LENGTH, "Connection: close, keep-alive, x"),
)
_CHUNKS = (
    b"zz\r\n",
    b"-1\r\n",
    b"fffffffffffffffff\r\n",
    b"5\r\nab",
    b"1\r\nabc\r\n",
    b"1;" + b"a" * 90000,
)
_HEADERS = (
    "no colon",
    ": no name",
    "na me: x",
    "name\x00: x",
    "name: a\x00b",
    "name: a\x01b",
    "name: a\rb",
    "name: a\nb",
    " folded: x",
    "name: " + "a" * 70000,
    "a" * 70000 + ": x",
    "\r\n".join(f"x{number}: 1" for number in range(200)),
    "x-request-id: " + "a" * 200,
    "x-request-id: \xff",
    "x-request-id:",
    "Authorization: Basic \xff",
    "Host: other",
    "Origin: \x7f",
    "Cookie: " + "a=b; " * 1000,
)
_NO_HTTP = (
    b"\0" * 100,
    b"\xff" * 100,
    b"\r\n" * 100 + b"x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 300,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /version\r\n\r\n",
    b"GET /version HTTP/0.9\r\n\r\n",
    b"GET /version HTTP/2.0\r\n\r\n",
    b"GET /version HTTP/9.9\r\n\r\n",
    b"GET /version HTTP/1.1 x\r\n\r\n",
    b"GET  /version HTTP/1.1\r\n\r\n",
    b"GET\t/version\tHTTP/1.1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"{}\r\n\r\n",
    b"A" * 100_000,
    b"GET /" + b"a" * 100_000,
)


@dataclass(frozen=True, slots=True)
class BadExchange:
    """What is sent on one connection.

    Attributes:
        what: The kind, for messages.
        data: All that is sent.
        is_cut: The client leaves then, without waiting for an answer.
    """

    what: str
    data: bytes = field(repr=False)
    is_cut: bool = False


def bad_exchanges() -> Iterator[BadExchange]:
    """All of them."""
    last = "Connection: close"
    # First what the server must wait for.
    for headers in _FRAMINGS:
        data = request("POST", _COMPLETIONS, *headers, last) + _BODY
        yield BadExchange(f"framed {headers}", data)
    for chunk in _CHUNKS:
        head = request("POST", _COMPLETIONS, "Transfer-Encoding: chunked", last)
        yield BadExchange(f"chunk {chunk[:20]!r}", head + chunk)
    for header in _HEADERS:
        yield BadExchange(f"header {header[:30]!r}", request("GET", "/version", header, last))
    for number, data in enumerate(_NO_HTTP):
        yield BadExchange(f"no HTTP {number}", data)
    for path in PATHS:
        for method in (*_METHODS, *_NO_METHODS):
            body = _BODY if method == "POST" else b""
            yield BadExchange(f"{method[:20]} {path}", request(method, path, last, body=body))
        for tail in _TAILS:
            yield BadExchange(f"GET {path}{tail[:30]!r}", request("GET", f"{path}{tail}", last))
    for target in _WHOLE_TARGETS:
        yield BadExchange(f"GET {target}", request("GET", target, last))
    for path in VALID:
        for kind in _TYPES:
            data = request("POST", path, f"Content-Type: {kind}", last, body=_BODY)
            yield BadExchange(f"{path} as {kind[:30]!r}", data)
    whole = request("POST", _COMPLETIONS, body=_BODY)
    for end in range(len(whole)):
        yield BadExchange(f"{end} bytes of a request", whole[:end], is_cut=True)
    yield BadExchange("a request, and nobody waits", whole, is_cut=True)
    yield BadExchange("33 at once", request() * 40)
