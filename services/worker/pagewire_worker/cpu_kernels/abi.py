"""The structures of kernels/abi.h for ctypes, field by field."""

import ctypes
from collections.abc import Mapping

from pagewire_worker.families.plan import Activation, ClampedSwiglu

FLOAT32 = 0
BFLOAT16 = 1
INT8 = 2
INT4 = 3
CODES8 = 4
CODES4 = 5
FLOATS8 = 6

SCALE_FLOAT32 = 0
SCALE_BFLOAT16 = 1
SCALE_FLOAT16 = 2
SCALE_INT8 = 3

NO_OFFSETS = 0
ZERO_POINTS = 1
MINIMA = 2


class LinearArgs(ctypes.Structure):
    """PwLinear."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("group", ctypes.c_int32),
        ("scale_type", ctypes.c_int32),
        ("offset_kind", ctypes.c_int32),
        ("factor_groups", ctypes.c_int32),
        ("num_outputs", ctypes.c_int32),
        ("num_inputs", ctypes.c_int32),
    )


class CodesArgs(ctypes.Structure):
    """PwCodes."""

    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("scale_factors", ctypes.c_void_p),
        ("offset_factors", ctypes.c_void_p),
    )


class NormArgs(ctypes.Structure):
    """PwNorm."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
        ("size", ctypes.c_int32),
        ("is_centered", ctypes.c_int32),
    )


class AttentionArgs(ctypes.Structure):
    """PwAttention."""

    _fields_ = (
        ("query_norm", ctypes.POINTER(NormArgs)),
        ("key_norm", ctypes.POINTER(NormArgs)),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("query_scales", ctypes.c_void_p),
        ("key", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("sinks", ctypes.c_void_p),
        ("window", ctypes.c_int32),
        ("group", ctypes.c_int32),
        ("score_scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


class AdapterPartArgs(ctypes.Structure):
    """PwAdapterPart."""

    _fields_ = (
        ("down", ctypes.c_void_p),
        ("up", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("scaling", ctypes.c_float),
    )


class AdapterPanel(ctypes.Structure):
    """PwAdapterPanel."""

    _fields_ = (
        ("part", ctypes.c_int32),
        ("place", ctypes.c_int32),
    )


class AdapterArgs(ctypes.Structure):
    """PwAdapters."""

    _fields_ = (
        ("parts", ctypes.POINTER(AdapterPartArgs)),
        ("panels", ctypes.POINTER(AdapterPanel)),
        ("num_parts", ctypes.c_int32),
        ("max_rank", ctypes.c_int32),
        ("num_inputs", ctypes.c_int32),
    )


class RowAdapterArgs(ctypes.Structure):
    """PwRowAdapters."""

    _fields_ = (
        ("adapters", ctypes.POINTER(AdapterArgs)),
        ("slots", ctypes.c_void_p),
        ("low", ctypes.c_void_p),
    )


class RouterArgs(ctypes.Structure):
    """PwRouter."""

    _fields_ = (
        ("choice_bias", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("num_experts", ctypes.c_int32),
        ("first_expert", ctypes.c_int32),
        ("num_own", ctypes.c_int32),
        ("num_chosen", ctypes.c_int32),
        ("num_groups", ctypes.c_int32),
        ("num_chosen_groups", ctypes.c_int32),
        ("group_best", ctypes.c_int32),
        ("is_sigmoid", ctypes.c_int32),
        ("is_normalised", ctypes.c_int32),
        ("has_shared", ctypes.c_int32),
        ("has_gate", ctypes.c_int32),
        ("factor", ctypes.c_float),
    )


MOST_EXPERTS = 1024
"""Of one layer; and most slices of the matrices of all its experts."""

ACTIVATIONS: Mapping[Activation, int] = {"silu": 0, "gelu": 1, "gelu_tanh": 2}
CLAMPED_SWIGLU = 3


class ActivationArgs(ctypes.Structure):
    """PwActivation."""

    _fields_ = (
        ("function", ctypes.c_int32),
        ("limit", ctypes.c_float),
        ("slope", ctypes.c_float),
    )

    @classmethod
    def of(
        cls, activation: Activation = "silu", clamped: ClampedSwiglu | None = None
    ) -> "ActivationArgs":
        """Return the structure of the functions of an MLP."""
        if clamped is not None:
            return cls(CLAMPED_SWIGLU, clamped.limit, clamped.slope)
        return cls(ACTIVATIONS[activation])


RESIDUAL, PRODUCTS, NORMED, QUERY, ATTENDED, ACTIVATED, PREPARED = range(7)
WEIGHTS, CHOSEN, STARTS = range(7, 10)
EXPERT_INPUT, EXPERT_PREPARED, EXPERT_ACTIVATED, EXPERT_OUTPUT = range(10, 14)
LOW, EXPERT_LOW, EXPERT_SLOTS = range(14, 17)
SLICED, EXPERT_EXCHANGED = 17, 18
NUM_BUFFERS = 19
"""Buffers of a step."""

NORM, ROUND, ADD_NORM, PREPARE, STORE, ADD, GATE, ACTIVATE, ROTATE, ATTEND = range(10)
ROUTE, SORT, SPREAD, EXPERT_PREPARE, EXPERT_STORE, EXPERT_GATE, COLLECT = range(10, 17)
LATENT_KEY, LATENT_QUERY, ABSORB, EXPAND = range(17, 21)
LOWER, EXPERT_LOWER = range(21, 23)
REDUCE, SLICE, SUM_SLICES, EXPERT_EXCHANGE = range(23, 27)
"""Kinds of operations."""


class Operation(ctypes.Structure):
    """PwOperation."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("input", ctypes.c_int32),
        ("output", ctypes.c_int32),
        ("factor", ctypes.c_float),
        ("activation", ActivationArgs),
        ("linear", ctypes.POINTER(LinearArgs)),
        ("norm", ctypes.POINTER(NormArgs)),
        ("attention", ctypes.POINTER(AttentionArgs)),
        ("router", ctypes.POINTER(RouterArgs)),
        ("adapters", ctypes.POINTER(AdapterArgs)),
        ("first_column", ctypes.c_int32),
        ("num_columns", ctypes.c_int32),
        ("num_slices", ctypes.c_int32),
        ("num_cuts", ctypes.c_int32),
    )


class Layer(ctypes.Structure):
    """PwLayer."""

    _fields_ = (
        ("operations", ctypes.POINTER(Operation)),
        ("num_operations", ctypes.c_int64),
    )


class Model(ctypes.Structure):
    """PwModel."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("kv_type", ctypes.c_int32),
        ("num_layers", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("latent_dim", ctypes.c_int32),
        ("plain_dim", ctypes.c_int32),
        ("block_size", ctypes.c_int32),
        ("embedding_factor", ctypes.c_float),
        ("norm", NormArgs),
        ("embedding", LinearArgs),
        ("embedding_adapters", ctypes.POINTER(AdapterArgs)),
        ("layers", ctypes.POINTER(Layer)),
        ("group", ctypes.c_void_p),
        ("first_row", ctypes.c_int32),
        ("num_rows", ctypes.c_int32),
        ("looks_up", ctypes.c_int32),
        ("has_end", ctypes.c_int32),
    )


class Batch(ctypes.Structure):
    """PwBatch."""

    _fields_ = (
        ("num_tokens", ctypes.c_int64),
        ("num_seqs", ctypes.c_int64),
        ("num_outputs", ctypes.c_int64),
        ("table_stride", ctypes.c_int64),
        ("token_ids", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("slot_mapping", ctypes.c_void_p),
        ("output_rows", ctypes.c_void_p),
        ("query_starts", ctypes.c_void_p),
        ("seq_lens", ctypes.c_void_p),
        ("block_tables", ctypes.c_void_p),
        ("faults", ctypes.c_void_p),
        ("adapter_slots", ctypes.c_void_p),
    )


class Scratch(ctypes.Structure):
    """PwScratch."""

    _fields_ = (("buffers", ctypes.c_void_p * NUM_BUFFERS),)


_POINTER, _INT, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float
_STEP = (_POINTER, ctypes.POINTER(Model), ctypes.POINTER(Batch), ctypes.POINTER(Scratch))
_LINEAR, _ATTENTION = ctypes.POINTER(LinearArgs), ctypes.POINTER(AttentionArgs)
_ACTIVATION = ctypes.POINTER(ActivationArgs)
_ROW_ADAPTERS = ctypes.POINTER(RowAdapterArgs)
_PRODUCT = (_POINTER, _INT, _LINEAR, _POINTER, _LONG, _POINTER)


class ChoiceArgs(ctypes.Structure):
    """PwChoice."""

    _fields_ = (
        ("row", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("position", ctypes.c_int64),
        ("choice", ctypes.c_int64),
        ("token", ctypes.c_int64),
        ("temperature", ctypes.c_float),
        ("least", ctypes.c_float),
    )


class DraftFilterArgs(ctypes.Structure):
    """PwDraftFilter."""

    _fields_ = (
        ("top_k", ctypes.c_int64),
        ("min_p", ctypes.c_float),
        ("top_p", ctypes.c_float),
    )


class DraftPlaces(ctypes.Structure):
    """PwDraftPlaces."""

    _fields_ = (
        ("token_ids", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("slot_mapping", ctypes.c_void_p),
        ("seq_lens", ctypes.c_void_p),
    )


class DraftingArgs(ctypes.Structure):
    """PwDrafting."""

    _fields_ = (
        ("vocabulary", ctypes.POINTER(LinearArgs)),
        ("vocab_size", ctypes.c_int64),
        ("num_choices", ctypes.c_int64),
        ("choices", ctypes.c_void_p),
        ("filters", ctypes.c_void_p),
        ("most_sorted", ctypes.c_int64),
        ("sorted", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("prepared", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
        ("places", DraftPlaces),
        ("divisor", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "pw_isa_name": (ctypes.c_char_p, (_INT,)),
    "pw_isa_runs": (_INT, (_INT,)),
    "pw_source_hash": (ctypes.c_char_p, ()),
    "pw_group_bytes": (_LONG, (_INT, _INT, _LONG)),
    "pw_group_new": (_POINTER, (_POINTER, _INT, _INT, _INT, _LONG, _LONG)),
    "pw_group_free": (None, (_POINTER,)),
    "pw_group_stage": (_POINTER, (_POINTER,)),
    "pw_group_join_host": (_INT, (_POINTER, _INT, _INT, _INT, _INT)),
    "pw_group_timeout": (None, (_POINTER, _LONG)),
    "pw_group_yield": (None, (_POINTER, _LONG)),
    "pw_group_lose": (None, (_POINTER, _INT)),
    "pw_group_lost": (_INT, (_POINTER,)),
    "pw_all_reduce": (_INT, (_POINTER, _POINTER, _LONG)),
    "pw_all_gather": (_INT, (_POINTER, _POINTER, _LONG, _POINTER)),
    "pw_broadcast": (_INT, (_POINTER, _POINTER, _LONG, _INT)),
    "pw_pass_on": (_INT, (_POINTER, _POINTER, _LONG)),
    "pw_take": (_INT, (_POINTER, _POINTER, _LONG)),
    "pw_send": (_INT, (_POINTER, _POINTER, _LONG)),
    "pw_message_bytes": (_LONG, (_POINTER,)),
    "pw_receive": (_INT, (_POINTER, _POINTER, _LONG)),
    "pw_pool_new": (_POINTER, (_INT, _INT)),
    "pw_pool_free": (None, (_POINTER,)),
    "pw_pack": (None, (_POINTER, _LINEAR, _INT, _POINTER, _LONG, _LONG, _LONG)),
    "pw_pack_codes": (
        None,
        (_POINTER, _LINEAR, ctypes.POINTER(CodesArgs), _LONG, _LONG, _LONG),
    ),
    "pw_weight_bytes": (_LONG, (_LINEAR,)),
    "pw_prepared_row_bytes": (_LONG, (_LINEAR,)),
    "pw_step": (None, (*_STEP, _INT, _INT, _POINTER)),
    "pw_draft": (None, (*_STEP, ctypes.POINTER(DraftingArgs), _LONG, _LONG, _POINTER)),
    "pw_linear": (None, (*_PRODUCT, _POINTER, _LONG)),
    "pw_argmax": (None, (*_PRODUCT, _LONG, _POINTER)),
    "pw_adapted_linear": (None, (*_PRODUCT, _POINTER, _LONG, _ROW_ADAPTERS)),
    "pw_adapted_argmax": (None, (*_PRODUCT, _LONG, _POINTER, _ROW_ADAPTERS)),
    "pw_finish_logits": (None, (_POINTER, _POINTER, _LONG, _FLOAT, _FLOAT)),
    "pw_choose": (None, (_POINTER, _POINTER, _LONG, _POINTER, _LONG, _LONG)),
    "pw_largest": (None, (_POINTER, _POINTER, _LONG, _LONG, _LONG, _LONG, _POINTER)),
    "pw_mark_spans": (None, (_POINTER, _POINTER, _LONG, _POINTER, _LONG, _LONG, _POINTER)),
    "pw_scale_spans": (
        None,
        (_POINTER, _POINTER, _POINTER, _LONG, _LONG, _POINTER, _POINTER, _LONG, _POINTER),
    ),
    "pw_noise": (None, (_POINTER, _POINTER, _LONG, _POINTER, _POINTER)),
    "pw_activate": (
        None,
        (*_PRODUCT[:3], _ACTIVATION, _INT, *_PRODUCT[3:], _POINTER),
    ),
    "pw_rotate_and_store": (None, (*_STEP, _ATTENTION)),
    "pw_attend": (None, (*_STEP, _ATTENTION)),
    "pw_norm": (None, (_POINTER, _INT, _POINTER, ctypes.POINTER(NormArgs), _LONG, _POINTER)),
}
"""Name to (result, arguments) of every function of abi.h."""
