"""Shared code of `generate` and `chat`: sampling flags, and a running or new deployment."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from pagewire.cli.progress import StartProgress
from pagewire.cli.running_server import running_server
from pagewire.cli.settings import quiet
from pagewire.client.blocking_client import Client
from pagewire.client.endpoint import grpc_address
from pagewire.config import ServeConfig, integer
from pagewire.local.cluster import LocalCluster
from pagewire_shared.errors import StartupError
from pagewire_shared.process.settings import LoadedSettings, setting
from pagewire_shared.sampling.params import field_names
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

_STRUCTURED = ("json", "regex", "choice", "grammar")


def token_bias(text: str) -> str:
    """Return `text`, which must be ID=BIAS. Raises StartupError."""
    _bias_pair(text)
    return text


def bias_of(texts: tuple[str, ...]) -> dict[int, float]:
    """Return token id -> bias of ID=BIAS texts. Raises StartupError."""
    return dict(_bias_pair(text) for text in texts)


def structured_outputs_of(flags: Mapping[str, Any]) -> StructuredOutputsParams | None:
    """Return the constraint of the flags structured_json, structured_regex, structured_choice and
    structured_grammar; None without one. Raises InvalidRequestError for several."""
    given = {name: flags[f"structured_{name}"] for name in _STRUCTURED}
    given = {name: value for name, value in given.items() if value not in (None, ())}
    return StructuredOutputsParams(**given) if given else None


def _bias_pair(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise StartupError(f"{text!r} is not ID=BIAS, such as 198=-100") from None


CONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig(ServeConfig):
    """Flags of `generate` and `chat`: sampling, and those of `serve` to start a deployment."""

    server: str | None = setting(
        None, "A running server: host:port (HTTP or gRPC), an http URL or unix:path"
    )
    server_api_key: str | None = setting(None, "API key for the server", is_secret=True)
    use_running: bool = setting(
        True, "Use the server at 127.0.0.1:8000, if one runs there and serves the model"
    )
    max_tokens: int | None = setting(None, "Most tokens to generate", parse=integer(1))
    min_tokens: int | None = setting(None, "No stop before this many tokens", parse=integer(0))
    temperature: float | None = setting(None, "0 takes the most likely token (default: model's)")
    top_p: float | None = setting(None, "Keep the likeliest tokens up to this probability")
    top_k: int | None = setting(None, "Keep this many of the likeliest tokens")
    min_p: float | None = setting(None, "Keep tokens this likely relative to the likeliest")
    stop: tuple[str, ...] = setting((), "Text that ends the answer; repeatable")
    ignore_eos: bool = setting(False, "Do not stop at the end-of-sequence token")
    presence_penalty: float | None = setting(None, "Make tokens of the answer less likely again")
    frequency_penalty: float | None = setting(None, "The same, once per occurrence")
    repetition_penalty: float | None = setting(
        None, "Divide the logits of tokens in prompt or answer (default: model's)"
    )
    logit_bias: tuple[str, ...] = setting(
        (), "ID=BIAS, added to the logit of a token; repeatable", parse=token_bias
    )
    bad_words: tuple[str, ...] = setting((), "Text that may not come about; repeatable")
    truncate_prompt_tokens: int | None = setting(
        None, "Keep only so many tokens from the prompt's end; -1 for what fits"
    )
    structured_json: str | None = setting(None, "JSON schema that the answer must follow")
    structured_regex: str | None = setting(None, "Expression that the answer must match")
    structured_choice: tuple[str, ...] = setting((), "Text the answer may be; repeatable")
    structured_grammar: str | None = setting(None, "GBNF or Lark grammar of the answer")


def sampling_of(config: GenerationConfig, default_max_tokens: int) -> dict[str, Any]:
    """Return the given sampling parameters; the server adds the model's defaults."""
    sampling: dict[str, Any] = {"max_tokens": default_max_tokens}
    for name in field_names():
        value = getattr(config, name, None)
        # By identity, because 0 and 0.0 equal False and are valid values.
        if value is not None and value is not False and value != ():
            sampling[name] = value
    if "logit_bias" in sampling:
        sampling["logit_bias"] = bias_of(sampling["logit_bias"])
    flags = {item.name: getattr(config, item.name) for item in fields(GenerationConfig)}
    outputs = structured_outputs_of(flags)
    if outputs is not None:
        sampling["structured_outputs"] = outputs
    return sampling


@dataclass(frozen=True, slots=True)
class Connection:
    """A client and the model to request; None where the server has only one."""

    client: Client
    model: str | None


@contextmanager
def connected(loaded: LoadedSettings[GenerationConfig], command: str) -> Iterator[Connection]:
    """Yield a connection to --server, to a server that runs on this machine, or to a deployment
    that lives as long as the block. One line on standard error says which.

    Raises:
        StartupError: The deployment cannot start.
        UnavailableError: No server answers.
    """
    config = loaded.config
    if config.server is not None:
        address = grpc_address(config.server)
        with _client_of(address, config) as client:
            yield Connection(client, config.model[0] if config.model else None)
        return
    found = running_server(loaded)
    if found is not None:
        address, model = found
        say(f"pagewire {command}: {model} at {address} (--no-use-running starts an own one)")
        with _client_of(address, config) as client:
            yield Connection(client, model)
        return
    config = quiet(loaded)
    progress = StartProgress()
    cluster = LocalCluster(_serve_config(config), observer=progress.show, has_http=False)
    try:
        cluster.start()
        cluster.wait_ready()
        with Client(cluster.grpc_address) as client:
            client.wait_connected(CONNECT_SECONDS)
            yield Connection(client, cluster.models[0].name)
    finally:
        progress.clear()
        cluster.stop()


def say(text: str) -> None:
    """Print a line for the person at the terminal, on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _client_of(address: str, config: GenerationConfig) -> Iterator[Client]:
    with Client(address, api_key=config.server_api_key) as client:
        client.wait_connected(CONNECT_SECONDS)
        yield client


def _serve_config(config: GenerationConfig) -> ServeConfig:
    return ServeConfig(**{item.name: getattr(config, item.name) for item in fields(ServeConfig)})
