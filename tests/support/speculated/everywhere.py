"""Lets every deployment that a test starts speculate, so that tests of the API run with drafts.

`make test-speculated METHOD=suffix` sets TEST_SPECULATION, which tests/conftest.py reads.
Deployments that name a method keep it. A draft model is the served model itself, but for the
built-in model, which has one of its own.
"""

import functools
import json
from dataclasses import replace
from typing import Any

from pagewire.config import ServeConfig
from pagewire.local.cluster import LocalCluster

BUILT_IN = "pagewire-builtin"


def with_speculation(config: ServeConfig, method: str) -> ServeConfig:
    """Return the settings of a deployment with drafts of `method`."""
    if config.speculative_config:
        return config
    settings: dict[str, Any] = {"method": method, "num_speculative_tokens": 4, "adaptive": False}
    if method == "draft_model" and config.model and config.model[0] != BUILT_IN:
        settings["model"] = config.model[0].split("=", 1)[-1]
    return replace(config, speculative_config=json.dumps(settings))


def speculate_everywhere(method: str) -> None:
    """Let deployments that are started in this process speculate from now on."""
    start = LocalCluster.__init__

    @functools.wraps(start)
    def with_drafts(self: LocalCluster, config: ServeConfig, **options: Any) -> None:
        start(self, with_speculation(config, method), **options)

    LocalCluster.__init__ = with_drafts  # type: ignore[method-assign]
