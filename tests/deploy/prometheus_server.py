"""A real Prometheus that scrapes processes of this machine."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import yaml

from support.processes.processes import free_port, wait_until

READY_SECONDS = 30.0
END_SECONDS = 20.0
EVERY = "1s"


class PrometheusServer:
    """Scrapes and evaluates once a second; a context manager that leaves no process behind.

    Args:
        program: Path of prometheus.
        folder: Where its data may lie.
        targets: host:port of what it scrapes.
        rules: A file of rules.
    """

    def __init__(self, program: str, folder: Path, targets: Iterable[str], rules: Path) -> None:
        self._folder = folder
        configuration = {
            "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {"job_name": "pagewire", "static_configs": [{"targets": list(targets)}]}
            ],
        }
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(configuration))
        address = f"127.0.0.1:{free_port()}"
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._client = httpx.Client(base_url=f"http://{address}", timeout=30.0)

    def wait_ready(self) -> None:
        """Wait until it answers queries."""

        def is_ready() -> bool:
            assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
            try:
                return self._client.get("/-/ready").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(is_ready, READY_SECONDS, "prometheus is ready")

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression as of now; each has `metric` and `value`."""
        answer = self._client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def value(self, expression: str) -> float:
        """Return the value of an expression of one series."""
        (series,) = self.ask(expression)
        return float(series["value"][1])

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules as they were evaluated last."""
        groups = self._client.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def __enter__(self) -> "PrometheusServer":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._client.close()
            self._log.close()
