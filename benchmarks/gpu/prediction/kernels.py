"""The kernels of a step, as cuda/triton_decoder.py starts them, and how long each should take."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from shapes import Shape

from prediction.cards import Card
from prediction.costs import Costs

SPLIT = 256
"""Positions of a split of attention_split.py."""

MERGED_AHEAD = 14
"""Splits that merge_splits asks for before it waits for the first, by its compiled code."""

ELEMENT, FLOAT = 2, 4
NOISE_OPERATIONS = 40
"""Of Philox and what follows, for each logit that is sampled from."""

CLOCK, INTEGERS_PER_CYCLE = 1.7e9, 64


class Kind(Enum):
    """What decides the rate of a kernel."""

    PRODUCT = "product"
    DECODE = "attention of decodes"
    MERGE = "merge of splits"
    PROMPT = "attention of prompts"
    GLUE = "norm, rotary, gate, choice of a token"
    TORCH = "torch's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that runs `count` times; other numbers are those of one run.

    Attributes:
        name: Of it.
        kind: Of it.
        count: Runs in a step.
        num_bytes: Of weights, keys and values, which it has to read.
        num_operations: Of its products.
        num_passing: Bytes that come from another kernel or go to one.
        rounds: Loads that wait for each other.
        outputs: Of the weight of a product; 0 for others.
        is_fp8: Whether the cache holds 8-bit floats.
    """

    name: str
    kind: Kind
    count: int = 1
    num_bytes: float = 0.0
    num_operations: float = 0.0
    num_passing: float = 0.0
    rounds: float = 0.0
    outputs: int = 0
    is_fp8: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step computes.

    Attributes:
        num_decodes: Sequences that decode a token.
        num_context: Tokens that these see, together.
        prompts: Tokens of each prompt, which it computes whole.
        kv_size: Bytes of a stored number.
        is_sampled: Whether tokens are sampled, not the likeliest.
    """

    num_decodes: int = 0
    num_context: int = 0
    prompts: Sequence[int] = ()
    kv_size: int = ELEMENT
    is_sampled: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens that it computes."""
        return self.num_decodes + sum(self.prompts)

    @property
    def num_outputs(self) -> int:
        """Tokens that it chooses."""
        return self.num_decodes + len(self.prompts)


def matrices(shape: Shape) -> dict[str, tuple[int, int]]:
    """Return outputs and inputs of the products of a layer."""
    heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "qkv": (heads + 2 * kv_heads, shape.hidden),
        "output": (shape.hidden, heads),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }


def layer_kernels(shape: Shape, step: Step) -> Iterator[Kernel]:
    """Yield the kernels of all layers."""
    tokens, layers = step.num_tokens, shape.layers
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    yield _glue("add_norm", 4 * tokens * shape.hidden, 2 * layers)
    for name, (outputs, inputs) in matrices(shape).items():
        yield _product(name, outputs, inputs, tokens, layers)
    yield _glue("rotary_kv_write", 2 * tokens * width, layers)
    yield _glue("activate", 3 * tokens * shape.intermediate, layers)
    if step.num_decodes:
        yield from _decode_attention(shape, step)
    if step.prompts:
        num_seen = sum(length * (length + 1) // 2 for length in step.prompts)
        yield Kernel(
            name="attend_prompts",
            kind=Kind.PROMPT,
            count=layers,
            num_operations=4 * shape.heads * shape.head_dim * num_seen,
            num_passing=ELEMENT * tokens * (width + shape.heads * shape.head_dim),
        )


def outer_kernels(shape: Shape, step: Step) -> Iterator[Kernel]:
    """Yield those before and behind the layers, the choice of tokens with them."""
    hidden = ELEMENT * step.num_tokens * shape.hidden
    yield Kernel(name="embedding", kind=Kind.TORCH, num_passing=2 * hidden)
    yield Kernel(name="add", kind=Kind.TORCH, num_passing=3 * hidden)
    rows, vocab = step.num_outputs, shape.vocab
    yield _glue("add_norm, the last", 2 * rows * shape.hidden, 1)
    yield _product("logits", vocab, shape.hidden, rows, 1)
    logits, noise = rows * vocab * ELEMENT, 0.0
    if step.is_sampled:
        yield Kernel(name="float", kind=Kind.TORCH, num_passing=3 * logits)
        logits, noise = 2 * logits, float(NOISE_OPERATIONS * rows * vocab)
    yield Kernel(name="best_of_split", kind=Kind.GLUE, num_passing=logits, num_operations=noise)
    yield _glue("best_of_row", rows, 1)


def step_kernels(shape: Shape, step: Step) -> list[Kernel]:
    """Return all of them."""
    return [*layer_kernels(shape, step), *outer_kernels(shape, step)]


def num_launches(kernels: Sequence[Kernel]) -> int:
    """Return how many launches of Triton's kernels these are."""
    others = (Kind.PRODUCT, Kind.TORCH)
    return sum(kernel.count for kernel in kernels if kernel.kind not in others)


def kernel_seconds(kernel: Kernel, card: Card, costs: Costs) -> float:
    """Return what one run of a kernel takes, and no gap."""
    copy, products = card.limits.copy, card.limits.products
    decode = costs.fp8_decode_share if kernel.is_fp8 else costs.decode_share
    read, compute = {
        Kind.PRODUCT: (costs.weights_share, products * costs.products_share),
        Kind.DECODE: (decode, products),
        Kind.PROMPT: (1.0, products * costs.prompt_share),
        Kind.GLUE: (1.0, card.processors * INTEGERS_PER_CYCLE * CLOCK),
    }.get(kernel.kind, (1.0, products))
    main = max(kernel.num_bytes / (copy * read), kernel.num_operations / compute)
    passing = kernel.num_passing * costs.spilled / copy
    return main + passing + (costs.ramp_us + kernel.rounds * costs.round_us) * 1e-6


def _glue(name: str, num_elements: float, count: int) -> Kernel:
    return Kernel(name=name, kind=Kind.GLUE, count=count, num_passing=ELEMENT * num_elements)


def _product(name: str, outputs: int, inputs: int, rows: int, count: int) -> Kernel:
    return Kernel(
        name=name,
        kind=Kind.PRODUCT,
        count=count,
        num_bytes=ELEMENT * outputs * inputs,
        num_operations=2 * rows * outputs * inputs,
        num_passing=ELEMENT * rows * (inputs + outputs),
        outputs=outputs,
    )


def _decode_attention(shape: Shape, step: Step) -> Iterator[Kernel]:
    per_layer = shape.kv_elements_per_token // shape.layers
    splits = -(-step.num_context // (SPLIT * step.num_decodes)) * step.num_decodes
    partials = splits * shape.heads * (shape.head_dim + 2) * FLOAT
    yield Kernel(
        name="decode_splits",
        kind=Kind.DECODE,
        count=shape.layers,
        num_bytes=step.num_context * per_layer * step.kv_size,
        num_passing=partials,
        is_fp8=step.kv_size < ELEMENT,
    )
    yield Kernel(
        name="merge_splits",
        kind=Kind.MERGE,
        count=shape.layers,
        num_passing=partials,
        rounds=-(-splits // (step.num_decodes * MERGED_AHEAD)),
    )
