"""Adds flags to the workers of a deployment that `pagewire serve` itself does not have."""

from collections.abc import Callable
from dataclasses import replace

from pagewire.local.cluster import LocalCluster
from pagewire.local.layout import ChildSpec


def with_worker_flags(*words: str, only: str = "worker") -> Callable[[LocalCluster], None]:
    """Return a change of a plan for `start_cluster`: of workers whose name begins with `only`."""

    def change(cluster: LocalCluster) -> None:
        plan = cluster._plan

        def changed() -> tuple[ChildSpec, ...]:
            return tuple(
                replace(spec, arguments=(*spec.arguments, *words))
                if spec.name.startswith(only)
                else spec
                for spec in plan()
            )

        # It is asked again once the ports are known.
        cluster._plan = changed  # type: ignore[method-assign]
        cluster._specs = {spec.name: spec for spec in changed()}

    return change
