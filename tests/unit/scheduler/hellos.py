"""What workers say in their hellos, small enough to be short of everything."""

from dataclasses import replace

from pagewire_scheduler.core.worker_state import ModelInfo, WorkerInfo


def model_info(*, block_size: int = 4, max_model_len: int = 64, vocab_size: int = 40) -> ModelInfo:
    return ModelInfo(
        name="tiny",
        model_fingerprint=b"m" * 32,
        tokenizer_fingerprint=b"t" * 32,
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        block_size=block_size,
    )


def worker_info(number: int, **changes: object) -> WorkerInfo:
    info = WorkerInfo(
        worker_id=bytes([number % 256]) * 16,
        incarnation=number,
        model=model_info(),
        layout_fingerprint=b"l" * 16,
        dtype="float32",
        num_blocks=24,
        max_num_seqs=6,
        max_num_batched_tokens=24,
        steps_in_flight=2,
    )
    return replace(info, **changes)  # type: ignore[arg-type]
