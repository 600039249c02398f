"""Runs a first small batch of a replica, so that first calls slow down no request."""

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.plan import GroupTable, NewSequence, StepPlan
from pagewire_worker.batch.slots import SlotLimits
from pagewire_worker.runner.model_runner import ModelRunner


def warm_up(
    model_runner: ModelRunner,
    limits: SlotLimits,
    max_num_batched_tokens: int,
    *,
    is_encoder: bool = False,
) -> None:
    """Run one chunk and one sampled decode; of an encoder one prompt. Raises StartupError."""
    num_tokens = min(max_num_batched_tokens, limits.max_model_len - 1, 32)
    num_blocks = -(-(num_tokens + 1) // limits.block_size)
    blocks = [at % limits.num_blocks for at in range(num_blocks)]
    request = NewSequence(
        slot=0,
        request_id=b"warm-up",
        choice=0,
        prompt_token_ids=[0] * num_tokens,
        emitted_token_ids=[],
        sampling=SamplingParams(seed=0, top_p=0.9, max_tokens=None),
        block_ids=blocks,
        # Content does not matter, so all groups may write to the same blocks.
        further_tables=(GroupTable(blocks),) * (len(limits.windows) - 1),
        pooling=PoolingParams() if is_encoder else None,
    )
    chunk = StepPlan(
        generation=0,
        incarnation=0,
        step_id=1,
        new_sequences=[request],
        slots=[0],
        starts=[0],
        num_new_tokens=[num_tokens],
        samples=[1],
        num_new_blocks=[0],
    )
    decode = StepPlan(
        generation=0,
        incarnation=0,
        step_id=2,
        slots=[0],
        starts=[num_tokens],
        num_new_tokens=[1],
        samples=[num_tokens + 2 <= limits.max_model_len],
        num_new_blocks=[0],
    )
    for plan in (chunk,) if is_encoder else (chunk, decode):
        failure = model_runner.run(plan).failure
        if failure is not None:
            raise StartupError(f"the model does not run: {failure.message}", field="model")
    model_runner.drop_slots()
