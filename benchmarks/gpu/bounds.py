"""The least time that work can take: bytes and operations over the rates of a device.

No overhead of any kind is counted, so that nothing can be faster, and what is left is the engine's.
"""

from collections.abc import Sequence

from rates import Limits
from shapes import Shape


def decode_bytes(
    shape: Shape, context_lens: Sequence[int], weight_size: int = 2, kv_size: int = 2
) -> int:
    """Return the bytes that one decode step reads: all weights, and keys and values.

    Args:
        shape: Of the model.
        context_lens: Tokens of each sequence.
        weight_size, kv_size: Bytes of an element.
    """
    weights = shape.num_step_weights * weight_size
    return weights + sum(context_lens) * shape.kv_elements_per_token * kv_size


def prefill_operations(shape: Shape, num_tokens: int) -> int:
    """Return the operations of a prompt: all layers, causal attention, logits of the last token."""
    products = 2 * (num_tokens * shape.num_layer_weights + shape.vocab * shape.hidden)
    attention = 4 * shape.layers * shape.heads * shape.head_dim * num_tokens * (num_tokens + 1) // 2
    return products + attention


def prefill_seconds(shape: Shape, num_tokens: int, limits: Limits, weight_size: int = 2) -> float:
    """Return what a prompt takes: as long as its operations, or as reading the weights once."""
    reading = shape.num_step_weights * weight_size / limits.copy
    return max(prefill_operations(shape, num_tokens) / limits.products, reading)


def job_seconds(
    shape: Shape, prompt_lens: Sequence[int], output_lens: Sequence[int], limits: Limits
) -> float:
    """Return what requests that run together take: all prompts, then a step for each token.

    The first token of an output comes from the prompt; each further one takes part in a step that
    reads what is before it.
    """
    prefill = sum(prefill_operations(shape, length) for length in prompt_lens) / limits.products
    num_steps = max(output_lens) - 1
    num_read = sum(
        (prompt + 1) * (output - 1) + (output - 1) * (output - 2) // 2
        for prompt, output in zip(prompt_lens, output_lens, strict=True)
    )
    num_bytes = 2 * (num_steps * shape.num_step_weights + num_read * shape.kv_elements_per_token)
    return prefill + num_bytes / limits.copy
