"""`pagewire bench`: runs a load test on a running server and prints a table of the results."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pagewire.bench.openai_stream import Target, Timed, first_model
from pagewire.bench.page import page
from pagewire.bench.report import Report, make_report, table
from pagewire.bench.workload import BenchRun, Workload
from pagewire.cli.commands import EXIT_FAILED, EXIT_INTERRUPTED
from pagewire.cli.settings import load as load_settings
from pagewire.cli.settings import make_parser
from pagewire.client.endpoint import http_url
from pagewire.config import integer
from pagewire_shared.errors import StartupError
from pagewire_shared.process.settings import setting

DESCRIPTION = "Measure TTFT, ITL and throughput of any OpenAI-compatible server."


def _rate(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise StartupError(f"{text} is not above 0")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """Flags of `pagewire bench`."""

    base_url: str = setting("http://127.0.0.1:8000", "The server, with or without /v1")
    model: str | None = setting(None, "Model to ask for (default: the first that is listed)")
    endpoint: str = setting(
        "completions", "What to call: /v1/completions or chat", choices=("completions", "chat")
    )
    api_key: str | None = setting(None, "Bearer token")
    num_prompts: int = setting(100, "Requests in all", parse=integer(1))
    request_rate: float = setting(math.inf, "Requests per second, Poisson arrivals", parse=_rate)
    max_concurrency: int = setting(32, "Most open requests", parse=integer(1, 1024))
    input_len: int = setting(128, "Tokens per prompt, about", parse=integer(1))
    output_len: int = setting(64, "Tokens per answer", parse=integer(1))
    ignore_eos: bool = setting(True, "Make every answer as long as --output-len")
    seed: int = setting(0, "Seed of prompts and arrivals", parse=integer(0))
    json: bool = setting(False, "Print JSON instead of a table")
    html: str | None = setting(None, "Write a page with percentiles and goodput to this file, too")


def run(name: str, argv: Sequence[str]) -> int:
    """Print the report; return 1 when a request failed."""
    parser = make_parser(name, BenchConfig, DESCRIPTION)
    loaded, _ = load_settings(parser, BenchConfig, argv)
    config = loaded.config
    if config.html is not None and not Path(config.html).absolute().parent.is_dir():
        raise StartupError(f"--html: {config.html} lies in no folder", field="html")
    url = http_url(config.base_url)
    target = Target(url, config.model or "", config.endpoint == "chat", config.api_key)
    if not target.model:
        target = replace(target, model=first_model(target))
    load = Workload(
        num_prompts=config.num_prompts,
        request_rate=config.request_rate,
        max_concurrency=config.max_concurrency,
        input_len=config.input_len,
        output_len=config.output_len,
        ignore_eos=config.ignore_eos,
        seed=config.seed,
    )
    from tqdm import tqdm

    num_tokens = load.num_prompts * load.output_len
    with tqdm(total=num_tokens, unit=" tokens", disable=not sys.stderr.isatty()) as bar:
        result = BenchRun(target, load, _Progress(bar, load)).run()
    report = make_report(result.requests, result.seconds)
    if result.is_interrupted:
        done = f"{len(result.requests)} of {load.num_prompts} requests"
        print(f"pagewire bench: interrupted after {done}", file=sys.stderr)
    if config.json:
        shown = {**asdict(config), "model": target.model, "request_rate": str(load.request_rate)}
        shown.pop("api_key")
        print(json.dumps({"config": shown, **asdict(report)}, indent=2))
    else:
        print(table(report))
    if config.html is not None:
        _write_page(config, target.model, report, result.requests)
    if result.is_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if report.num_failed else 0


def _write_page(config: BenchConfig, model: str, report: Report, requests: Sequence[Timed]) -> None:
    assert config.html is not None
    title = f"{model}: {report.num_requests} requests, {config.request_rate:g} a second"
    try:
        Path(config.html).write_text(page(title, report, requests), encoding="utf-8")
    except OSError as error:
        raise StartupError(f"--html: {error}", field="html") from error
    print(f"pagewire bench: wrote {config.html}", file=sys.stderr)


class _Progress:
    """Shows tokens, and how many requests are done and open. A chunk counts as one token until its
    request ends."""

    def __init__(self, bar: Any, load: Workload) -> None:
        self._bar = bar
        self._load = load
        self._num_done = 0

    def text(self) -> None:
        self._bar.update(1)

    def ended(self, timed: Timed, num_open: int) -> None:
        self._num_done += 1
        self._bar.set_postfix_str(
            f"{self._num_done} of {self._load.num_prompts} requests, {num_open} open", refresh=False
        )
        self._bar.update(self._load.output_len - len(timed.chunks))
