"""What workers say in their hellos, small enough to be short of everything."""

from dataclasses import replace

from pagewire_scheduler.core.data.worker_info import ModelInfo, WorkerInfo

MODEL = ModelInfo(
    name="tiny",
    model_fingerprint=b"m" * 32,
    tokenizer_fingerprint=b"t" * 32,
    max_model_len=64,
    vocab_size=40,
    block_size=4,
)


def worker_info(number: int, **changes: object) -> WorkerInfo:
    info = WorkerInfo(
        worker_id=bytes([number % 256]) * 16,
        incarnation=number,
        model=MODEL,
        layout_fingerprint=b"l" * 16,
        dtype="float32",
        num_blocks=24,
        max_num_seqs=6,
        max_num_batched_tokens=24,
        steps_in_flight=2,
    )
    return replace(info, **changes)  # type: ignore[arg-type]
