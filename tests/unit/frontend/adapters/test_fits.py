"""Adapters that do not fit the model are refused when they are loaded, or as soon as a worker is
there that tells what fits."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.adapters.store import ContentFolder
from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.model_shapes import NO_LAYER, ModelShapes, shapes_of
from pagewire_shared.adapters.shapes_convert import (
    MAX_SHAPES_BYTES,
    shapes_from_message,
    shapes_to_message,
)
from pagewire_shared.errors import WireError
from support.adapters.adapter_files import ENTRIES, Q, weights_of, write_adapter

SELF = "model.layers.0.self_attn"


def shapes(*sizes: int, layer: int = 0) -> ModelShapes:
    """One matrix of these inputs and outputs."""
    name = f"model.layers.{layer}.self_attn.q_proj"
    return ModelShapes(shapes_of([(name, *sizes, "")]))


GOOD = shapes(6, 10)


def registry(tmp_path: Path, *known: ModelShapes) -> AdapterRegistry:
    store = ContentFolder(tmp_path / "store", 1 << 20)
    adapters = AdapterRegistry(store, models=["tiny"], taken_names=[])
    adapters.fits.known_shapes = lambda model: known
    return adapters


@pytest.mark.parametrize(
    ("known", "text", "field"),
    [
        (
            shapes(7, 10),
            r"lora_A.weight has shape \[4, 6\], and the matrix of the model takes \[4, 7\]",
            f"{Q}.lora_A.weight",
        ),
        (shapes(6, 9), r"lora_B.weight has shape \[10, 4\].* takes \[9, 4\]", f"{Q}.lora_B.weight"),
        (shapes(6, 10, layer=1), "the model has no matrix of this name", f"{SELF}.q_proj"),
        (
            ModelShapes((), (("self_attn", "adapters of latent attention are not supported"),)),
            f"module {SELF}.q_proj: adapters of latent attention",
            f"{SELF}.q_proj",
        ),
    ],
)
def test_a_misfit_gets_no_name(tmp_path: Path, known: ModelShapes, text: str, field: str) -> None:
    adapters = registry(tmp_path, GOOD, known)
    with pytest.raises(AdapterError, match=text) as caught:
        asyncio.run(adapters.load("a", write_adapter(tmp_path / "a")))
    assert caught.value.field == field
    assert adapters.find("a") is None
    assert adapters.store is not None
    assert adapters.store.num_bytes == 0


def test_a_misfit_is_found_when_a_worker_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        adapters = registry(tmp_path)
        use = (await adapters.load("a", write_adapter(tmp_path / "a"))).use
        steps = iter([(), (shapes(7, 10),), (GOOD,)])
        outcomes = []

        async def wait_until(is_reached: Callable[[], bool]) -> None:
            while not is_reached():
                try:
                    adapters.fits.require("tiny", use.adapter_id)
                    outcomes.append("fits")
                except AdapterError as error:
                    outcomes.append(error.message)
                known = next(steps, None)
                if known is None:
                    raise asyncio.CancelledError
                adapters.fits.known_shapes = partial(dict.get, {"tiny": known})

        with pytest.raises(asyncio.CancelledError):
            await adapters.check_late(wait_until)
        assert outcomes[0] == outcomes[1] == outcomes[3] == "fits"
        assert "has shape [4, 6], and the matrix of the model takes [4, 7]" in outcomes[2]
        assert "does not fit tiny" in caplog.text

    asyncio.run(run())


def test_matrices_of_no_layer(tmp_path: Path) -> None:
    """Those who know matrices of layers only read the others as they did before: not at all."""
    layer = ("model.layers.0.self_attn.q_proj", 6, 10, "")
    both = ModelShapes(shapes_of([layer, ("model.embed_tokens", 9, 6, ""), ("lm_head", 6, 9, "")]))
    message = shapes_to_message(both)
    assert shapes_from_message(message) == both
    assert [one.name for one in message.targets] == ["model.layers.*.self_attn.q_proj"]
    found = both.find("lm_head")
    assert found is not None
    assert (found.num_matrices, list(found.names(NO_LAYER))) == (1, ["lm_head"])
    message.outer[0].name = "model.*.embed"
    with pytest.raises(WireError, match="another number of stars"):
        shapes_from_message(message)
    # Its copy of a matrix is in a layer.
    weights = weights_of([*ENTRIES, (f"{Q}.base_layer.weight", "F32", (10, 6))])
    with pytest.raises(AdapterError, match="an adapter cannot replace a matrix"):
        asyncio.run(
            registry(tmp_path, both).load("a", write_adapter(tmp_path / "a", weights=weights))
        )


def test_messages_of_shapes_are_bounded() -> None:
    experts = (f"model.layers.0.mlp.experts.{number}.up_proj" for number in range(300))
    many = ModelShapes(shapes_of((name, 4, 8, "gate_up_proj") for name in experts))
    message = shapes_to_message(many)
    assert shapes_from_message(message) == many
    assert (len(many.targets), many.targets[0].num_experts) == (1, 300)
    message.targets[0].num_experts = 1 << 31
    with pytest.raises(WireError, match="adapter_shapes: more than 1048576 matrices"):
        shapes_from_message(message)
    message.targets[0].num_experts = 0
    with pytest.raises(WireError, match="another number of stars"):
        shapes_from_message(message)
    message.targets[0].name = "*" * MAX_SHAPES_BYTES
    with pytest.raises(WireError, match="bytes are more than"):
        shapes_from_message(message)
