"""Bugs that a device would punish and the plain interpreter need not, as patches of the worker's
source. The suite, poisoned, must find each."""

from simulation.planted.mutant import Mutant

WORKER = "pagewire_worker."
KERNELS = WORKER + "triton_kernels."
_SUITE = "unit/worker/triton_kernels/"
_FLAGS = (
    _SUITE
    + "test_broken_rows.py::test_tokens_of_healthy_rows_stay_and_the_broken_one_is_flagged[nan-0.0]"
)
_CAPTURED = (
    "unit/worker/cuda/test_captured_decodes.py::test_batches_of_every_size_give_the_tokens_of_torch"
)


def planted(name: str, sentence: str, patches: dict[tuple[str, str], str], *tests: str) -> Mutant:
    """Return a bug; `patches` are from (module, text) to what it says instead, `tests` what must
    fail, some of them."""
    changes = tuple((module, before, after) for (module, before), after in patches.items())
    return Mutant(name, sentence, changes, frozenset(tests))


LIFETIME = [
    planted(
        "graph_forgets_its_work",
        "A graph keeps its replay alone: what it reads is freed.",
        {
            (WORKER + "cuda.decode_graphs", "return _Graph(capture(work), states, batch.faults)"): (
                "return _Graph("
                "CapturedWork(capture(work).replay, lambda: None), states, batch.faults)"
            )
        },
        "unit/worker/cuda/test_capture.py::test_what_captured_decodes_read_is_theirs",
    ),
    planted(
        "input_replaced_not_filled",
        "Lengths are put in a new tensor: graphs read the one that was there when they were made.",
        {
            (WORKER + "cuda.decode_graphs", "into(packed, self._lengths[: len(packed)])"): (
                "self._lengths = self._lengths.clone()\n"
                "        into(packed, self._lengths[: len(packed)])"
            ),
            (WORKER + "cuda.decode_graphs", "        states: list[Tensor] = []\n"): (
                "        states: list[Tensor] = []\n\n"
                "        def attend(query, cache, sinks=None):\n"
                "            return self._attention.prepare_decodes(\n"
                "                self._inputs.sequences(size),\n"
                "                self._inputs.first_splits(size),\n"
                "                self._bounds.max_model_len,\n"
                "            )(query, cache, sinks)\n\n"
            ),
        },
        _CAPTURED,
    ),
]

BOUNDS = [
    planted(
        "weights_without_mask",
        "A norm reads behind the end of its weights; what it read is not stored.",
        {
            (KERNELS + "add_norm", "tl.load(weight + columns, mask=is_inside, other=0.0)"): (
                "tl.load(weight + columns)"
            )
        },
        _SUITE + "test_far_strides.py::test_rows_far_apart[add_norm]",
    ),
    planted(
        "store_without_mask",
        "The last block of a row is stored whole, over the next row.",
        {
            (
                KERNELS + "activate",
                "value.to(activated.dtype.element_ty), mask=is_inside)",
            ): "value.to(activated.dtype.element_ty))"
        },
        _SUITE + "test_activate.py",
    ),
    planted(
        "scales_behind_the_last_group",
        "The last slab of a matrix of codes reads scales of groups that are not there.",
        {
            (
                KERNELS + "code_matmul",
                "columns < tl.where(first < num_inputs, num_outputs, 0)",
            ): "columns < num_outputs"
        },
        _SUITE + "test_code_matmul.py::test_every_code_is_in_its_place[4-32-64-none]",
    ),
    planted(
        "table_read_past_its_end",
        "The last tile of a sequence reads table entries that are not there.",
        {
            (
                KERNELS + "attention_split",
                "tl.load(table + positions // BLOCK_SIZE, mask=is_there, other=0)",
            ): "tl.load(table + positions // BLOCK_SIZE)"
        },
        _SUITE + "test_broken_rows.py::test_sequences_beside_a_broken_one_keep_their_bits",
    ),
    planted(
        "scratch_one_split_short",
        "The scratch memory of decodes has room for one split less than it says.",
        {
            (
                KERNELS + "decode_attention",
                "num_rows = num_splits * num_heads",
            ): "num_rows = (num_splits - 1) * num_heads"
        },
        _SUITE
        + "test_broken_rows.py::test_sequences_beside_a_broken_one_keep_their_bits[0-query-decode]",
    ),
    planted(
        "slot_off_by_one",
        "Keys are written one slot further.",
        {
            (
                KERNELS + "rotary_kv_write",
                "slot = tl.load(slot_mapping + token)",
            ): "slot = tl.load(slot_mapping + token) + 1"
        },
        _SUITE + "test_far_strides.py::test_keys_and_values_are_written_far_away",
    ),
    planted(
        "negative_modulo",
        "Keys of padding rows are written at slot -1, which is in front of the cache.",
        {
            (KERNELS + "rotary_kv_write", "tl.where(slot >= 0, NUM_KV_HEADS, 0)"): (
                "tl.where(slot >= -1, NUM_KV_HEADS, 0)"
            )
        },
        _SUITE + "test_far_strides.py::test_keys_and_values_are_written_far_away",
    ),
]

NUMBERS = [
    planted(
        "row_of_nan_not_clamped",
        "A row of NaN gets an id that is no token.",
        {
            (KERNELS + "sample_tokens", "tl.minimum(best_id, vocab_size - 1).to(tl.int64)"): (
                "best_id.to(tl.int64)"
            )
        },
        _FLAGS,
    ),
    planted(
        "nan_made_a_number",
        "8 bits: what is no number becomes the largest.",
        {
            (
                KERNELS + "quantize_rows",
                "-LARGEST, LARGEST, propagate_nan=nan)",
            ): "-LARGEST, LARGEST)"
        },
        _SUITE
        + "test_broken_rows.py::test_healthy_rows_keep_their_bits[nan-quantize_rows-torch.float32]",
    ),
    planted(
        "unwritten_flags",
        "Flags are written of broken rows only: others have what lay in the memory.",
        {
            (KERNELS + "sample_tokens", "tl.store(faults + row, is_broken.to(tl.int64))"): (
                "tl.store(faults + row, is_broken.to(tl.int64), mask=is_broken > 0)"
            )
        },
        _FLAGS,
    ),
]

STRIDES = [
    planted(
        "rows_in_32_bits",
        "A norm counts elements in 32 bits.",
        {
            (KERNELS + "add_norm", "output_row = tl.program_id(0).to(tl.int64)"): (
                "output_row = tl.program_id(0)"
            )
        },
        _SUITE + "test_far_strides.py::test_rows_far_apart[add_norm]",
    ),
    planted(
        "heads_in_32_bits",
        "Elements of a cache that has its heads outermost are counted in 32 bits.",
        {(KERNELS + "rotary_kv_write", "[:, None].to(tl.int64)\n"): "[:, None]\n"},
        _SUITE + "test_far_strides.py::test_keys_and_values_are_written_far_away",
    ),
    planted(
        "logits_in_32_bits",
        "Logits are counted in 32 bits.",
        {
            (
                KERNELS + "filter_thresholds",
                "row = tl.program_id(0).to(tl.int64)",
            ): "row = tl.program_id(0)"
        },
        _SUITE + "test_far_strides.py::test_logits_far_apart",
    ),
]

_HISTORIES = "unit/worker/kv/test_copy_histories.py::test_everybody_reads_what_was_written_last"
ORDER = [
    planted(
        "copy_waits_for_no_step",
        "A copy out of the cache does not wait for the step that writes what it copies.",
        {
            (WORKER + "kv.stream_copies", "        self._streams.wait(Stream.OUT, computed)\n"): (
                "        assert computed\n"
            )
        },
        _HISTORIES,
    ),
    planted(
        "step_waits_for_no_copy",
        "A step writes blocks while they are copied out.",
        {
            (
                WORKER + "kv.stream_copies",
                "self._streams.wait(Stream.COMPUTE, leaving.event)",
            ): "assert leaving.event",
        },
        _HISTORIES,
    ),
]

PLANTED: list[Mutant] = [*LIFETIME, *BOUNDS, *NUMBERS, *STRIDES, *ORDER]
