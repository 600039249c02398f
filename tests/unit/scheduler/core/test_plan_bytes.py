"""What a plan tells of new sequences has a budget of bytes, and a prompt is told once."""

from dataclasses import replace

import pytest
from unit.scheduler.cell import Cell, finished, submission
from unit.scheduler.hellos import MODEL

from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix
from pagewire_scheduler.core.data.events import RejectedEvent
from pagewire_scheduler.core.data.plan_bytes import record_bytes
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_scheduler.core.planning import plan_builder as builder
from pagewire_scheduler.core.planning.preemption import preempt
from pagewire_scheduler.core.transfers.orders import num_free_for_load
from pagewire_shared.identity.ids import BlockName, RequestId
from pagewire_shared.kv.load import LoadOrder
from pagewire_shared.kv.load_convert import load_to_message
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.convert import plan_to_message
from pagewire_shared.steps.plan import NewSequence, StepPlan

U32 = 2**32 - 1


def cell(new_bytes: int = 6 << 20, min_prefix_tokens: int = 4, **changes: object) -> Cell:
    limits = StreamLimits(new_bytes=new_bytes, min_prefix_tokens=min_prefix_tokens)
    settings = CoreSettings(generation=3, stream_limits=limits)
    return Cell(settings=settings, **{"takes_prefixes": True, "num_blocks": 200, **changes})  # type: ignore[arg-type]


def started(plan: StepPlan) -> list[int]:
    return [new.request_id[0] for new in plan.new_sequences]


def extreme_sampling() -> SamplingParams:
    return SamplingParams(
        temperature=1.7,
        top_p=0.3,
        min_p=0.2,
        top_k=2**31 - 1,
        seed=2**64 - 1,
        max_tokens=2**31 - 1,
        min_tokens=2**31 - 1,
        presence_penalty=-1.7,
        frequency_penalty=-1.7,
        repetition_penalty=9.7,
        ignore_eos=True,
        logprobs=20,
        prompt_logprobs=20,
        stop_token_ids=tuple(range(U32 - 128, U32)),
        logit_bias=dict.fromkeys(range(U32 - 300, U32), 1.5),
        allowed_token_ids=tuple(range(U32 - 4096, U32)),
        bad_token_sequences=((U32,) * 256,) * 200,
    )


@pytest.mark.parametrize("sampling", [SamplingParams(seed=1), extreme_sampling()])
def test_a_record_takes_no_more_bytes_than_it_is_counted_with(sampling: SamplingParams) -> None:
    asked = submission(
        1, [1], sampling=sampling, tenant="\U0001f600" * 50, eos_token_ids=(U32,) * 9
    )
    new = NewSequence(
        slot=U32,
        request_id=RequestId(b"r" * 16),
        choice=U32,
        prompt_token_ids=(U32,) * 70_000,
        emitted_token_ids=(U32,) * 70_000,
        sampling=sampling,
        block_ids=(U32,) * 70_000,
        eos_token_ids=asked.eos_token_ids,
        num_candidates=150,
        grammar_id=b"g" * 16,
        pooling=PoolingParams(pooling="mean", normalize=True),
        tenant=asked.tenant,
        prefix_slot=U32,
        num_prefix_tokens=U32,
    )
    plan = StepPlan(1, 1, 1, new_sequences=[new])
    empty = plan_to_message(StepPlan(1, 1, 1)).ByteSize()
    assert plan_to_message(plan).ByteSize() - empty <= record_bytes(asked, 140_000, 70_000)


def test_what_does_not_fit_a_plan_is_first_in_the_next() -> None:
    each = record_bytes(submission(1, [1] * 8), 8, 2)
    full = cell(new_bytes=2 * each + 8, max_num_batched_tokens=64)
    for number in range(1, 6):
        full.submit(number, [number] * 8)
    # Smaller than what waits in front of it, and not preferred for that.
    full.submit(6, [6])
    first, second = full.planned(), full.planned()
    assert [started(first), started(second)] == [[1, 2], [3, 4]]
    full.answer(first)
    third = full.planned()
    assert started(third) == [5, 6]
    full.answer(second)
    full.answer(third)
    assert len(finished(full.run())) == 6


def test_the_longest_sequence_fits_an_empty_plan_with_all_its_blocks() -> None:
    limits = StreamLimits()
    for block_size in (1, 4, 16, 256):
        length = limits.longest_sequence(block_size)
        asked = submission(1, [1])
        num_bytes = record_bytes(asked, length, -(-length // block_size))
        num_fixed = record_bytes(asked, 0, 0)
        most_conditions = limits.max_condition_bytes - num_fixed - 4
        assert num_bytes + most_conditions <= limits.new_bytes
    assert limits.longest_sequence(4) >= 2**20
    rest = 81 * limits.max_slots + 28 * (limits.max_step_blocks + limits.max_slots)
    rest += 24 * limits.max_void_names + 16 * 1024 + 1024
    assert limits.new_bytes + rest <= MESSAGE_BYTES


def test_conditions_that_never_fit_are_refused_and_named() -> None:
    full = cell()
    (event,) = full.submit(1, [1, 2], eos_token_ids=tuple(range(300_000)))
    assert isinstance(event, RejectedEvent)
    assert event.error.field == "eos_token_ids"  # type: ignore[attr-defined]


def test_a_prompt_in_common_is_told_once_in_a_plan_and_later() -> None:
    shared = cell(max_num_batched_tokens=64)
    document = list(range(20))
    shared.submit(1, [*document, 21])
    shared.submit(2, [*document, 22, 23])
    plan = shared.planned()
    one, two = plan.new_sequences
    assert (one.num_prefix_tokens, one.prompt_token_ids) == (0, (*document, 21))
    assert (two.prefix_slot, two.num_prefix_tokens) == (one.slot, 20)
    assert two.prompt_token_ids == (22, 23)
    shared.submit(3, [*document[:10], 24])
    later = shared.planned()
    (three,) = later.new_sequences
    assert three.num_prefix_tokens == 8, "full blocks"
    assert three.prefix_slot in (one.slot, two.slot)
    assert three.prompt_token_ids == (8, 9, 24)
    shared.answer(plan)
    shared.answer(later)
    assert len(finished(shared.run())) == 3


def test_nobody_is_told_by_the_slot_of_one_that_has_left() -> None:
    shared = cell(max_num_batched_tokens=64)
    document = list(range(20))
    shared.submit(1, [*document, 21], sampling=SamplingParams(max_tokens=1))
    assert len(finished(shared.answer(shared.planned()))) == 1
    shared.submit(2, [*document, 22])
    (new,) = shared.planned().new_sequences
    assert new.num_prefix_tokens == 0


def test_other_salts_old_workers_and_short_prefixes_are_told_in_full() -> None:
    document = list(range(20))
    cases = [
        (cell(max_num_batched_tokens=64), {"salt": b"another"}),
        (cell(max_num_batched_tokens=64, takes_prefixes=False), {}),
        (cell(max_num_batched_tokens=64, min_prefix_tokens=24), {}),
    ]
    for shared, fields in cases:
        shared.submit(1, [*document, 21])
        shared.submit(2, [*document, 22], **fields)
        assert [new.num_prefix_tokens for new in shared.planned().new_sequences] == [0, 0]


def test_choices_that_are_forked_by_the_same_plan_are_no_source() -> None:
    shared = cell(max_num_batched_tokens=24)
    document = list(range(20))
    shared.submit(1, [*document, 21], emitted=((), ()), sampling=SamplingParams(max_tokens=4))
    shared.submit(2, [*document, 22])
    plan = shared.planned()
    one, two = plan.new_sequences
    assert plan.fork_slots
    assert two.prefix_slot == one.slot


def test_a_preempted_sequence_is_told_its_prompt_by_another_and_its_tokens_in_full() -> None:
    shared = cell(max_num_batched_tokens=64)
    document = list(range(20))
    for number in (1, 2):
        shared.submit(number, [*document, 20 + number], sampling=SamplingParams(max_tokens=9))
    shared.answer(shared.planned(), token=30)
    worker = shared.core.workers[shared.info.worker_id]
    victim = worker.running[-1]
    preempt(worker, victim)
    (again,) = shared.planned().new_sequences
    assert (again.num_prefix_tokens, again.prompt_token_ids) == (20, (22,))
    assert again.emitted_token_ids == (30,)


def test_names_forgotten_are_told_over_several_plans() -> None:
    limits = StreamLimits(max_void_names=3)
    forgetful = Cell(settings=CoreSettings(generation=3, stream_limits=limits))
    forgetful.submit(1, list(range(30)), sampling=SamplingParams(max_tokens=1))
    forgetful.run()
    assert forgetful.core.kv_caches.reset(None) == 7
    counts = []
    while (plan := forgetful.plan()) is not None:
        counts.append(len(plan.named_blocks))
        forgetful.answer(plan)
    assert counts == [3, 3, 1]


def test_log_probabilities_of_prompts_fit_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_PROMPT_VALUE_BYTES", 10 * (12 + 8 * 20))
    scored = cell(max_num_batched_tokens=64)
    sampling = SamplingParams(max_tokens=1, prompt_logprobs=20)
    scored.submit(1, list(range(25)), sampling=sampling)
    scored.submit(2, [5, 6, 7])
    scored.submit(3, list(range(9, 20)), sampling=sampling)
    plan = scored.planned()
    by_slot = dict(zip(plan.slots, plan.num_new_tokens, strict=True))
    counts = {new.request_id[0]: by_slot[new.slot] for new in plan.new_sequences}
    assert counts == {1: 10, 2: 3}, "the third waits, and holds up nobody"


def test_a_step_has_no_more_slots_and_blocks_than_a_plan_can_tell() -> None:
    model = replace(MODEL, block_size=4, max_model_len=4000)
    limits = StreamLimits(max_slots=3, max_step_blocks=5)
    settings = CoreSettings(generation=3, stream_limits=limits)
    large = Cell(
        settings=settings, model=model, num_blocks=900, max_num_batched_tokens=999, max_num_seqs=50
    )
    for number in range(1, 6):
        large.submit(number, [number] * 30)
    plan = large.planned()
    assert sum(plan.num_new_tokens) == 20
    worker = large.core.workers[large.info.worker_id]
    assert len(worker.slots) == 3
    assert worker.num_tokens_alone == 0


def test_a_load_has_no_more_blocks_than_a_message_can_tell() -> None:
    limits = StreamLimits(max_load_blocks=5)
    small = Cell(settings=CoreSettings(generation=3, stream_limits=limits))
    worker = small.core.workers[small.info.worker_id]
    assert num_free_for_load(worker, CachedPrefix([[]])) == 5
    most = StreamLimits().max_load_blocks
    order = LoadOrder(
        load_id=1,
        store="",
        names=(BlockName(b"n" * 16),) * most,
        blocks=(U32,) * most,
        timeout_ms=U32,
    )
    assert load_to_message(order).ByteSize() <= MESSAGE_BYTES


def test_choices_whose_new_blocks_do_not_fit_the_plan_are_queued() -> None:
    """With a window a prompt gets its blocks step by step, and each fork is told of the last."""
    model = replace(MODEL, block_size=1, max_model_len=400)
    windowed = cell(
        new_bytes=1900,
        model=model,
        groups=CacheGroups((4,)),
        max_num_batched_tokens=100,
        max_num_seqs=8,
        num_blocks=900,
    )
    prompt = [number % 30 for number in range(190)]
    windowed.submit(1, prompt, emitted=((),) * 8, sampling=SamplingParams(max_tokens=2))
    windowed.answer(windowed.planned())
    plan = windowed.planned()
    num_fresh = plan.num_new_blocks[0]
    assert num_fresh == 90
    assert len(plan.fork_slots) == 1900 // (4 * num_fresh) == 5
    windowed.answer(plan)
    assert len(finished(windowed.run())) == 8
