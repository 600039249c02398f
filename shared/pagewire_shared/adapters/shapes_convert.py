"""Conversion of the shapes of a model between messages and plain values."""

from typing import Final

from pagewire_protos.common.v1 import adapter_shapes_pb2 as pb
from pagewire_shared.adapters.model_shapes import (
    MAX_MATRICES,
    NO_LAYER,
    ModelShapes,
    TargetShape,
)
from pagewire_shared.errors import WireError

MAX_SHAPES_BYTES: Final = 64 * 1024
"""Most bytes of the message of a model. That of 61 layers with 256 experts has less than 2 KiB."""


def shapes_to_message(shapes: ModelShapes) -> pb.AdapterShapes:
    """Return the wire form."""
    return pb.AdapterShapes(
        targets=[
            pb.AdapterTarget(
                name=one.name,
                num_inputs=one.num_inputs,
                num_outputs=one.num_outputs,
                layers=one.layers,
                num_experts=one.num_experts,
                stack=one.stack,
            )
            for one in shapes.targets
            if not one.is_outer
        ],
        # Apart: readers that know matrices of layers only refuse others by name.
        outer=[
            pb.AdapterTarget(name=one.name, num_inputs=one.num_inputs, num_outputs=one.num_outputs)
            for one in shapes.targets
            if one.is_outer
        ],
        refusals=[pb.AdapterRefusal(part=part, reason=why) for part, why in shapes.refusals],
        has_alternating_gates=shapes.has_alternating_gates,
        slot_bytes=shapes.slot_bytes,
        value_bytes=shapes.value_bytes,
    )


def shapes_from_message(message: pb.AdapterShapes) -> ModelShapes:
    """Return the shapes in a message. Raises WireError if they are too many, or make no sense."""
    if message.ByteSize() > MAX_SHAPES_BYTES:
        raise _fault(f"{message.ByteSize()} bytes are more than {MAX_SHAPES_BYTES}")
    targets = tuple(
        TargetShape(
            name=one.name,
            num_inputs=one.num_inputs,
            num_outputs=one.num_outputs,
            layers=tuple(one.layers),
            num_experts=one.num_experts,
            stack=one.stack,
        )
        for one in message.targets
    )
    outer = tuple(
        TargetShape(
            name=one.name,
            num_inputs=one.num_inputs,
            num_outputs=one.num_outputs,
            layers=(NO_LAYER,),
        )
        for one in message.outer
    )
    for one in (*targets, *outer):
        if one.name.count("*") != (0 if one.is_outer else 1 + bool(one.num_experts)):
            raise _fault(f"{one.name[:200]!r} has another number of stars than of numbers")
    if sum(one.num_matrices for one in (*targets, *outer)) > MAX_MATRICES:
        raise _fault(f"more than {MAX_MATRICES} matrices")
    return ModelShapes(
        (*targets, *outer),
        tuple((one.part, one.reason) for one in message.refusals),
        message.has_alternating_gates,
        message.slot_bytes,
        message.value_bytes,
    )


def _fault(text: str) -> WireError:
    return WireError(f"adapter_shapes: {text}", field="adapter_shapes")
