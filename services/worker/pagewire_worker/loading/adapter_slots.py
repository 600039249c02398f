"""Makes the adapter slots of a native model."""

from collections.abc import Callable
from functools import partial

from pagewire_worker.adapters.base_copies import BaseCopies
from pagewire_worker.adapters.content import whole_part
from pagewire_worker.adapters.table import AdapterStore, AdapterTable
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.models.adapter_tensors import TensorAdapterStore, TorchSum
from pagewire_worker.models.variants import TRITON
from pagewire_worker.parallel.adapter_part import part_of_rank
from pagewire_worker.parallel.plan_shards import PlanShard


def adapter_targets(plan: ModelPlan, settings: LoadSettings) -> AdapterTargets | None:
    """Return the matrices that adapters may change, if there are to be adapters."""
    if settings.adapters is None:
        return None
    return AdapterTargets(plan)


def tensor_store(
    targets: AdapterTargets, settings: LoadSettings, decoder: str
) -> TensorAdapterStore:
    """Return the slots of a decoder that computes with torch's tensors, named as in variants.py."""
    limits, device, dtype = settings.adapters, settings.device, settings.dtype
    assert limits is not None
    if decoder == TRITON:
        from pagewire_worker.cuda.triton_adapters import TritonAdapterStore

        return TritonAdapterStore(targets=targets, limits=limits, device=device, dtype=dtype)
    return TensorAdapterStore(
        targets=targets, limits=limits, device=device, dtype=dtype, sums=TorchSum()
    )


def adapter_table(
    targets: AdapterTargets | None,
    settings: LoadSettings,
    store: AdapterStore | None,
    whole: ModelPlan,
    shard: PlanShard | None,
    open_decoder: Callable[[LoadSettings], WeightReader],
) -> AdapterTable | None:
    """Return the table over the slots, if there are any.

    Args:
        targets: Of what this process computes.
        whole: Of the model, which other ranks may compute parts of.
        shard: The part of one rank; None for matrices that are not divided.
        open_decoder: Returns the tensors of the whole model once more.
    """
    if targets is None or store is None or settings.adapters is None:
        return None
    return AdapterTable(
        targets=targets,
        whole=targets if whole is targets.plan else AdapterTargets(whole),
        limits=settings.adapters,
        store=store,
        dtype=settings.dtype,
        copies=BaseCopies(whole, lambda: open_decoder(settings).borrow, settings.dtype),
        cut=whole_part if shard is None else partial(part_of_rank, shard),
    )
