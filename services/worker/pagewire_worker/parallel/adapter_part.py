"""Cuts the adapter of a tensor by the ranks of a group, as the tensor itself is cut.

Of y += scaling * up (down x), `up` has the outputs of the rank, and `down` its inputs. The products
of divided inputs are parts of the sum that the layer makes over the ranks anyway, since up is
linear: up (x1 + x2) = up x1 + up x2.
"""

from dataclasses import replace

from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.adapters.targets import OUTPUT
from pagewire_worker.parallel.plan_shards import PlanShard


def part_of_rank(shard: PlanShard, name: str, part: AdapterPart) -> AdapterPart:
    """Return a rank's part of the adapter of the module `name`; see PlanShard for what it has."""
    plan = shard.plan
    if name == plan.embedding:
        # Its inputs are tokens, which are the rows of the matrix.
        down = shard.cuts[f"{name}.weight"].rows_of(part.down.T).T
        return replace(part, down=down.contiguous())
    # One matrix may be both, but its adapters are two.
    stored = plan.embedding if name == OUTPUT and plan.logits.name is None else name
    cut = shard.cuts.get(f"{stored}.weight")
    if cut is None:
        return part
    # Not a view, which would keep the memory of all rows.
    return replace(part, down=cut.columns_of(part.down), up=cut.rows_of(part.up).clone())
