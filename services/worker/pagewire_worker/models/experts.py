"""Mixtures of experts in torch, on any device: the reference for the other backends."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.families.plan import ExpertsSpec, RouterSpec
from pagewire_worker.models.load_parts import RouterTensors

LEAST_TOTAL = 1e-20
"""Added to the sum of the chosen scores, as in transformers: a sum of 0 gives weights of 0."""


def route(spec: RouterSpec, values: Tensor, choice_bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Choose the experts of each token.

    Args:
        values: Of the router, float32 [tokens, experts].
        choice_bias: float32 [experts], or None.

    Returns:
        Their weights, float32 [tokens, chosen], and their numbers, int64 of the same shape, the
        best first; of equal ones the lower number comes first.
    """
    scores = values.sigmoid() if spec.score == "sigmoid" else values.softmax(-1)
    choices = scores if choice_bias is None else scores + choice_bias
    if spec.num_chosen_groups < spec.num_groups:
        choices = choices.masked_fill(~_in_best_groups(spec, choices), -torch.inf)
    chosen = _places_of_best(choices, spec.num_chosen)
    weights = scores.gather(1, chosen)
    if spec.is_normalised:
        weights = weights / (weights.sum(-1, keepdim=True) + LEAST_TOTAL)
    return weights * spec.factor, chosen


def _in_best_groups(spec: RouterSpec, choices: Tensor) -> Tensor:
    """Return which experts are in the chosen groups, [tokens, experts]."""
    groups = choices.view(len(choices), spec.num_groups, -1)
    sums = groups.topk(spec.group_best, dim=-1).values.sum(-1)
    is_kept = torch.zeros_like(sums, dtype=torch.bool)
    is_kept.scatter_(1, _places_of_best(sums, spec.num_chosen_groups), value=True)
    return is_kept.repeat_interleave(groups.shape[-1], dim=1)


def _places_of_best(values: Tensor, count: int) -> Tensor:
    """Return the columns of the greatest values; topk does not promise an order of equal ones."""
    return values.sort(dim=-1, descending=True, stable=True).indices[:, :count]


class Experts:
    """The weighted sum of the MLPs that a router chooses for each token.

    Args:
        experts, shared: Map [tokens, hidden] to [tokens, hidden]; the experts that are here.
        choose: Called with the tokens of an expert before it is; None for nothing.
        finish: Makes the output of the weighted sum, of the type float32.

    Attributes:
        counts: int64 [experts], to which the tokens of each are added; None for no counting.
    """

    __slots__ = ("_choose", "_experts", "_finish", "_router", "_shared", "_spec", "counts")

    def __init__(
        self,
        *,
        spec: ExpertsSpec,
        router: RouterTensors,
        experts: Sequence[Callable[[Tensor], Tensor]],
        shared: Callable[[Tensor], Tensor] | None,
        finish: Callable[[Tensor], Tensor],
        choose: Callable[[Tensor], None] | None = None,
    ) -> None:
        self._finish = finish
        self._choose = choose
        self._spec = spec
        self._router = router
        self._experts = experts
        self._shared = shared
        self.counts: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]; the sum is float32."""
        spec = self._spec.router
        values = functional.linear(x.float(), self._router.weight, self._router.bias)
        weights, chosen = route(spec, values[:, : spec.num_experts], self._router.choice_bias)
        if self.counts is not None:
            self.counts += chosen.flatten().bincount(minlength=spec.num_experts)
        rows = x.new_zeros((*chosen.shape, x.shape[1]), dtype=torch.float32)
        for number in chosen.unique().tolist():
            own = number - self._spec.first
            if not 0 <= own < len(self._experts):
                continue  # another rank computes it
            tokens, places = (chosen == number).nonzero(as_tuple=True)
            if self._choose is not None:
                self._choose(tokens)
            rows[tokens, places] = self._experts[own](x[tokens]).float()
        total = (rows * weights[:, :, None]).sum(1)
        if self._shared is not None:
            gate = values[:, spec.num_experts :].sigmoid() if self._spec.has_shared_gate else 1.0
            total = total + self._shared(x).float() * gate
        return self._finish(total).to(x.dtype)
