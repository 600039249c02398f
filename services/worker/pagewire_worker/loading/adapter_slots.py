"""Makes the adapter slots of a native model."""

from pagewire_shared.errors import StartupError
from pagewire_worker.adapters.table import AdapterStore, AdapterTable
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.models.adapter_tensors import TensorAdapterStore, TorchSum
from pagewire_worker.models.variants import TRITON


def adapter_targets(plan: ModelPlan, settings: LoadSettings) -> AdapterTargets | None:
    """Return the matrices that adapters may change, if there are to be adapters."""
    if settings.adapters is None:
        return None
    targets = AdapterTargets(plan)
    if not targets.linears:
        raise StartupError(
            f"--enable-lora: {plan.architecture} has no matrix that an adapter may change",
            field="enable_lora",
        )
    return targets


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
    targets: AdapterTargets | None, settings: LoadSettings, store: AdapterStore | None
) -> AdapterTable | None:
    """Return the table over the slots, if there are any."""
    if targets is None or store is None or settings.adapters is None:
        return None
    return AdapterTable(targets, settings.adapters, store, settings.dtype)
