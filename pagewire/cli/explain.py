"""`pagewire explain`: says where the time of a request went that has ended a short while ago."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from pagewire.cli.admin import DEFAULT_SERVER
from pagewire.client.explain_client import ExplainedRequest, explain_request
from pagewire_shared.process.flags import HintingParser

_BAR_CHARS = 40


def run(name: str, argv: Sequence[str]) -> int:
    """Print the explanation and return 0; else raise PagewireError."""
    parser = HintingParser(
        prog=f"pagewire {name}",
        description="Say where the time of a request went that has ended at a frontend.",
    )
    parser.add_argument(
        "request",
        metavar="REQUEST",
        nargs="?",
        default="",
        help="its x-request-id, or 8 digits of its id as in the log (default: the slowest)",
    )
    parser.add_argument(
        "--server",
        default=DEFAULT_SERVER,
        help=f"a frontend, by either of its ports or its URL ({DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--server-api-key",
        metavar="KEY",
        default=os.environ.get("PAGEWIRE_SERVER_API_KEY"),
        help="for a frontend that wants one (PAGEWIRE_SERVER_API_KEY)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    asked = explain_request(options.server, options.request, api_key=options.server_api_key)
    found = asyncio.run(asked)
    print(json.dumps(asdict(found), indent=2) if options.json else describe(found))
    return 0


def describe(found: ExplainedRequest) -> str:
    """Return an explanation as text: the summary, a line per stage, and the notes."""
    return "\n".join([found.summary, *_rows(found), *found.notes, _name(found)])


def _rows(found: ExplainedRequest) -> Iterator[str]:
    total = found.seconds or 1.0
    has_choices = any(stage.choice for stage in found.stages)
    for stage in found.stages:
        is_named = has_choices and stage.choice is not None
        name = f"{stage.name} {stage.choice}" if is_named else stage.name
        begin = round(_BAR_CHARS * stage.began / total)
        length = max(1, round(_BAR_CHARS * stage.seconds / total))
        bar = (" " * begin + "#" * length)[: _BAR_CHARS + 1]
        yield f"  {name:<14} {stage.seconds:9.3f} s  |{bar}"


def _name(found: ExplainedRequest) -> str:
    label = f" ({found.label})" if found.label else ""
    return f"Request {found.request_id}{label} of {found.model}."
