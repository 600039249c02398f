"""Applies the rules between raw logits and the choice of a token, in the order of vLLM's sampler.

The order is: grammar masks, allowed tokens, bad sequences, min_tokens, bias, penalties. The first
four exclude tokens. An exclusion that would leave a row without tokens is not applied to that row,
so an earlier rule wins over a later one.
"""

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask, apply_masks
from pagewire_worker.sampling.penalties import apply_penalties
from pagewire_worker.sampling.sampling_table import SamplingRows
from pagewire_worker.sampling.token_history import TokenHistory
from pagewire_worker.sampling.token_rules import RowRules, banned_by_sequences


def apply_rules(logits: Tensor, rows: SamplingRows, masks: GrammarBitmask | None) -> Tensor:
    """Return the logits [rows, vocab], float32, that tokens are chosen from.

    `logits` is not changed; it is returned itself if no row has a rule.
    """
    penalized = rows.penalties.affected()
    if masks is None and not (rows.rules.by_row or rows.banned or len(penalized)):
        return logits
    changed = logits.clone()
    if masks is not None:
        apply_masks(changed, masks)
    _keep_allowed(changed, rows.rules)
    if bad := tuple(rows.rules.bad()):
        _exclude(changed, *banned_by_sequences(bad, _required(rows.history), changed.shape[1]))
    _ban_ends(changed, rows.banned)
    _add_bias(changed, rows.rules)
    if len(penalized):
        apply_penalties(changed, rows.penalties, _required(rows.history))
    return changed


def _required(history: TokenHistory | None) -> TokenHistory:
    assert history is not None, "rows with rules about earlier tokens come with these"
    return history


def _exclude(logits: Tensor, rows: Int64Array, is_excluded: Tensor) -> None:
    """Set excluded logits, [n, vocab] bool, to -inf in `rows` [n] that keep a token."""
    index = to_device(rows, logits.device)
    picked = logits.index_select(0, index)
    rest = picked.masked_fill(is_excluded, float("-inf"))
    is_empty = rest.amax(dim=1, keepdim=True) == float("-inf")
    logits.index_copy_(0, index, torch.where(is_empty, picked, rest))


def _keep_allowed(logits: Tensor, rules: RowRules) -> None:
    allowed = tuple(rules.allowed())
    if not allowed:
        return
    is_excluded = ~_marked([ids for _, ids in allowed], logits)
    _exclude(logits, np.array([row for row, _ in allowed], dtype=np.int64), is_excluded)


def _ban_ends(logits: Tensor, banned: tuple[tuple[int, Int64Array], ...]) -> None:
    """Exclude the stop tokens of rows that have not reached min_tokens."""
    if not banned:
        return
    # A checkpoint may name an end-of-sequence id beyond its vocabulary: it needs no ban.
    ids = [to_device(one[one < logits.shape[1]], logits.device) for _, one in banned]
    rows = np.array([row for row, _ in banned], dtype=np.int64)
    _exclude(logits, rows, _marked(ids, logits))


def _marked(token_ids: list[Tensor], logits: Tensor) -> Tensor:
    """Return [n, vocab] bool, true at the ids of each of n lists."""
    marked = torch.zeros((len(token_ids), logits.shape[1]), dtype=torch.bool, device=logits.device)
    marked[_owners(list(range(len(token_ids))), token_ids), torch.cat(token_ids)] = True
    return marked


def _add_bias(logits: Tensor, rules: RowRules) -> None:
    biases = tuple(rules.bias())
    if not biases:
        return
    ids = [one for _, (one, _) in biases]
    rows = _owners([row for row, _ in biases], ids)
    # A row names each token once, so the sum does not depend on the order.
    values = torch.cat([one for _, (_, one) in biases])
    logits.index_put_((rows, torch.cat(ids)), values, accumulate=True)


def _owners(values: list[int], parts: list[Tensor]) -> Tensor:
    """Return `values` [n], each repeated to the length of its part, on the device of the parts."""
    repeated = np.array(values, dtype=np.int64).repeat([len(part) for part in parts])
    return to_device(repeated, parts[0].device)
