"""The text of `pagewire serve` once it is ready: addresses, what fits, and commands to try."""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire.local.capacity import WorkerCapacity
from pagewire.models import ServedModel
from pagewire_shared.rpc.address import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyFacts:
    """Facts about a deployment that is ready.

    Attributes:
        seconds: From the start until now.
        url: Base URL of the HTTP API.
        grpc_address: Address of the gRPC API.
        models: Models in the order of the command line.
        capacities: What fits, by model.
        needs_key: Whether callers need an API key.
        has_template: A chat template was given, so that every model has one.
        host: Address that it listens on.
    """

    seconds: float
    url: str
    grpc_address: str
    models: Sequence[ServedModel]
    capacities: Iterable[WorkerCapacity] = ()
    needs_key: bool = False
    has_template: bool = False
    host: str = "127.0.0.1"

    @property
    def generates(self) -> bool:
        """Whether the first model writes text."""
        name = self.models[0].architecture
        is_headless = name.endswith("Model") and not name.endswith("LMHeadModel")
        return not is_headless and not name.endswith("ForSequenceClassification")

    @property
    def is_chat(self) -> bool:
        """Whether the first model answers conversations."""
        return self.has_template or self.models[0].has_chat_template


def ready_text(facts: ReadyFacts) -> str:
    """Return the lines for standard output; the second one is a command that can be pasted."""
    names = ", ".join(model.name for model in facts.models)
    lines = [
        f"Pagewire is ready after {facts.seconds:.1f} s: {facts.url} "
        f"(gRPC {facts.grpc_address}), serving {names}. Ask it:",
        f"  {curl_command(facts)}",
        *([f"  {chat_command(facts)}"] if facts.generates else []),
        *(_fit_text(one, len(facts.models) > 1) for one in facts.capacities),
    ]
    if facts.needs_key:
        lines.append("  callers need an API key: put one of yours in KEY")
    return "\n".join(lines)


def open_warning(facts: ReadyFacts) -> str | None:
    """Return a warning where other machines reach the server and no key is asked for."""
    if facts.needs_key or Address(facts.host, 0).is_local:
        return None
    return (
        f"pagewire: warning: every machine that reaches {facts.host} may use this server; set"
        " --api-key-file, or listen on 127.0.0.1 only"
    )


def curl_command(facts: ReadyFacts) -> str:
    """Return a shell command that gets an answer from the first model."""
    path, fields = _first_question(facts)
    key = ' -H "authorization: Bearer $KEY"' if facts.needs_key else ""
    data = shlex.quote(json.dumps({"model": facts.models[0].name, **fields}))
    return f"curl {facts.url}/{path}{key} -H 'content-type: application/json' -d {data}"


def _first_question(facts: ReadyFacts) -> tuple[str, dict[str, Any]]:
    """Return path and fields of a request that the first model can answer."""
    name = facts.models[0].architecture
    if name.endswith("ForSequenceClassification"):
        return "classify", {"input": ["Tell me a story."]}
    if not facts.generates:
        return "v1/embeddings", {"input": ["Tell me a story."]}
    if facts.is_chat:
        turns = [{"role": "user", "content": "Tell me a story."}]
        return "v1/chat/completions", {"messages": turns, "max_tokens": 64}
    return "v1/completions", {"prompt": "Once upon a time", "max_tokens": 64}


def chat_command(facts: ReadyFacts) -> str:
    """Return a command that talks to the first model on the terminal."""
    command = "chat" if facts.is_chat else "generate"
    key = ' --server-api-key "$KEY"' if facts.needs_key else ""
    model = f" --model {shlex.quote(facts.models[0].name)}" if len(facts.models) > 1 else ""
    prompt = "" if command == "chat" else " 'Once upon a time'"
    return f"pagewire {command} --server {facts.grpc_address}{model}{key}{prompt}"


def _fit_text(one: WorkerCapacity, is_one_of_many: bool) -> str:
    at_once = one.num_tokens // one.max_model_len
    name = f"{one.model}: " if is_one_of_many else ""
    return (
        f"  {name}context {one.max_model_len:,} tokens; KV cache for {one.num_tokens:,} tokens, so"
        f" {at_once:,} sequences of full length fit, at most {one.max_num_seqs:,} at once"
        f" (per worker)"
    )
