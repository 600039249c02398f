"""The two functions that transformers calls in place of its own attention and masks.

They are registered once under one name and do what the current handler says: record while a model
is examined, read and write the paged cache while it serves.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module

NAME = "pagewire"
"""Of the implementation, as in `attn_implementation`. Names with "sdpa" or "flash" in them mean
something to transformers."""

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(batch, head, query position, key position) indices -> where the key is visible."""


class Handler(Protocol):
    """What happens when a model attends."""

    def attend(
        self,
        module: Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Return [1, tokens, heads, d] for query [1, heads, tokens, d] and key and value
        [1, kv_heads, tokens, d]; `mask` and `options` are what the model passes on."""
        ...

    def mask(self, visible: MaskFunction, window: int | None) -> Tensor:
        """Return what the model hands to its layers as their mask.

        Args:
            visible: Which keys a query sees.
            window: The sliding window that the model named, or None.
        """
        ...


_handler: ContextVar[Handler] = ContextVar("attention_handler")


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Let `handler` answer the models that are called within."""
    token = _handler.set(handler)
    try:
        yield
    finally:
        _handler.reset(token)


def register() -> None:
    """Make NAME known to transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)


# The names of the parameters are those that models use as keywords.
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
