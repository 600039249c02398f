"""The two functions that transformers calls in place of its own attention and masks.

They are registered once under one name and call the current handler: a recorder while a model is
examined, and a step over the paged cache while it serves.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module

NAME = "pagewire"
"""Name of the implementation, for `attn_implementation`. Names with "sdpa" or "flash" in them have
a meaning for transformers."""

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(batch, head, query position, key position) indices -> whether the key is visible."""


class Handler(Protocol):
    """Handles the calls of a model that attends."""

    def attend(
        self,
        module: Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Return [1, tokens, heads, d] for query [1, heads, tokens, d].

        Key and value are [1, kv_heads, tokens, d]; `mask` and `options` come from the model.
        """
        ...

    def mask(self, visible: MaskFunction, window: int | None) -> Tensor:
        """Return the mask that the model hands to its layers.

        Args:
            visible: Whether a query sees a key.
            window: The sliding window that the model named, or None.
        """
        ...


_handler: ContextVar[Handler] = ContextVar("attention_handler")


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Let `handler` handle the models that are called within the context."""
    token = _handler.set(handler)
    try:
        yield
    finally:
        _handler.reset(token)


def register() -> None:
    """Register NAME with transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)


# The parameters have the names that models use as keywords.
def _attend(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> tuple[Tensor, None]:
    return _handler.get().attend(module, query, key, value, attention_mask, options), None


def _mask(*_: Any, mask_function: MaskFunction, local_size: int | None = None, **__: Any) -> Tensor:
    return _handler.get().mask(mask_function, local_size)
