"""LoRARequest of the offline API, and the adapters of one LLM: each is loaded once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagewire.client.adapter_client import load_adapter
from pagewire_shared.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """An adapter for requests, as in vLLM.

    Attributes:
        lora_name: Its name.
        lora_int_id: Number that another adapter of the same name would not have, at least 1.
        lora_path: Its folder, as PEFT writes it.
        load_inplace: Read the folder again, because it has changed.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str
    load_inplace: bool = False

    def __post_init__(self) -> None:
        if not self.lora_name or not self.lora_path or self.lora_int_id < 1:
            raise InvalidRequestError(
                "lora_request: a name, a path and a number of at least 1 are needed",
                field="lora_request",
            )


LoRARequests = LoRARequest | Sequence[LoRARequest | None] | None
"""One for all prompts, or one or None for each."""


def adapter_per_prompt(given: LoRARequests, num_prompts: int) -> list[LoRARequest | None]:
    """Return the adapter of each prompt. Raises InvalidRequestError."""
    listed: list[Any]
    if given is None or isinstance(given, LoRARequest):
        return [given] * num_prompts
    listed = list(given) if isinstance(given, Sequence) else [given]
    if any(not isinstance(one, LoRARequest | None) for one in listed):
        raise InvalidRequestError(
            "lora_request: it is no LoRARequest of pagewire", field="lora_request"
        )
    if len(listed) != num_prompts:
        raise InvalidRequestError(
            f"lora_request: {len(listed)} for {num_prompts} prompts", field="lora_request"
        )
    return listed


class LoadedAdapters:
    """Loads adapters, each once; names them for requests."""

    def __init__(self, address: str) -> None:
        """Args: `address` is that of the gRPC API."""
        self._address = address
        self._names: dict[tuple[str, int, str], str] = {}
        self._turn = asyncio.Lock()

    async def names_of(self, adapters: Sequence[LoRARequest | None]) -> list[str | None]:
        """Return the name to ask for of each adapter, which is loaded then; None for none.

        Raises:
            InvalidRequestError: An adapter cannot be used.
        """
        async with self._turn:
            for adapter in dict.fromkeys(one for one in adapters if one is not None):
                key = _key(adapter)
                if key not in self._names or adapter.load_inplace:
                    name = self._names.get(key) or self._new_name(adapter)
                    await load_adapter(self._address, name, key[2])
                    self._names[key] = name
        return [None if one is None else self._names[_key(one)] for one in adapters]

    def _new_name(self, adapter: LoRARequest) -> str:
        taken = set(self._names.values())
        name = adapter.lora_name
        return name if name not in taken else f"{name}#{len(self._names) + 1}"


def _key(adapter: LoRARequest) -> tuple[str, int, str]:
    path = str(Path(adapter.lora_path).expanduser().absolute())
    return adapter.lora_name, adapter.lora_int_id, path
