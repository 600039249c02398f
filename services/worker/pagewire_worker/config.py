"""Settings of a worker process. Imports no torch, so that --help answers at once."""

from dataclasses import dataclass

from pagewire_shared.adapters.adapter_config import MAX_RANK
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_files import ModelFilesConfig
from pagewire_shared.process.settings import setting
from pagewire_shared.process.sizes import parse_count, parse_size
from pagewire_worker.connectors.transfer_config import parse_transfer_config
from pagewire_worker.plan.roles import parse_roles
from pagewire_worker.speculation.settings import parse_speculation

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16")
ATTENTION_BACKENDS = ("auto", "reference", "sdpa", "triton")
LINEAR_BACKENDS = ("auto", "torch", "packed", "fixed-tile")
KV_CACHE_DTYPES = ("auto", "fp8_e4m3", "int8")
QUANTIZATIONS = ("none", "int8", "int4", "int8-output", "fp8")
CPU_BACKENDS = ("auto", "fused", "torch")
CPU_ISAS = (
    *("auto", "amx", "avx512bf16", "avx512", "avx2", "amx_emulated"),
    *("neon_bf16", "neon_dot", "neon"),
)
KV_OFFLOADS = ("writethrough", "writeback", "off")
KV_TRANSPORTS = ("auto", "shared", "grpc", "nixl", "mooncake", "off")
LOAD_FORMATS = ("auto", "dummy")
MODEL_IMPLS = ("auto", "native", "transformers")

EXECUTOR_BACKENDS = ("auto", "mp", "uniproc", "env", "ray")

CPU_NUM_SEQS = 64

MAX_RANKS = 16


def check_ranks(size: int, num_stages: int, executor: str) -> None:
    """Raise StartupError for more ranks than there may be, or than `executor` starts.

    Args:
        size: Ranks of each stage.
    """
    for name, number in (("tensor_parallel_size", size), ("pipeline_parallel_size", num_stages)):
        flag = f"--{name.replace('_', '-')}"
        if number > MAX_RANKS:
            raise StartupError(f"{flag} must be at most {MAX_RANKS}, got {number}", field=name)
        if number > 1 and executor == "uniproc":
            raise StartupError(
                f"--distributed-executor-backend: uniproc is one process, and {flag} is {number}",
                field="distributed_executor_backend",
            )
    if size * num_stages > MAX_RANKS:
        raise StartupError(
            f"--pipeline-parallel-size: {num_stages} stages of {size} ranks are"
            f" {size * num_stages}, and at most {MAX_RANKS} may be",
            field="pipeline_parallel_size",
        )


def check_hosts(num_hosts: int, executor: str) -> None:
    """Raise StartupError if `executor` starts no ranks on so many hosts."""
    if num_hosts > MAX_RANKS:
        raise StartupError(
            f"--rank-hosts must be at most {MAX_RANKS}, got {num_hosts}", field="rank_hosts"
        )
    if num_hosts > 1 and executor in ("mp", "uniproc"):
        raise StartupError(
            f"--rank-hosts: {num_hosts}, and --distributed-executor-backend {executor} has one",
            field="rank_hosts",
        )


def check_sum_slices(slices: int, size: int) -> None:
    """Raise StartupError unless so many slices of a sum can be divided between `size` ranks."""
    reason = None
    if not 1 <= slices <= MAX_RANKS or slices & (slices - 1):
        reason = f"must be 1 for off, 2, 4, 8 or {MAX_RANKS}, got {slices}"
    elif slices > 1 and slices % size:
        reason = f"{slices} slices cannot be divided between {size} ranks"
    if reason is not None:
        raise StartupError(f"--sum-slices: {reason}", field="sum_slices")


FITTED_LEN = -1
"""Value of max_model_len that stands for the longest sequence that fits in the KV cache."""


def parse_model_len(text: str | int) -> int:
    """Return a number of tokens, FITTED_LEN for "auto" and "-1". Raises StartupError."""
    value = FITTED_LEN if str(text).strip() == "auto" else parse_count(text)
    if value != FITTED_LEN and value < 2:
        raise StartupError(f"{value} is neither at least 2 nor auto")
    return value


_MINIMUMS = {
    "block_size": 1,
    "kv_cache_memory": 1,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "steps_in_flight": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "cpu_threads": 1,
    "rank_hosts": 1,
    "max_loras": 1,
    "max_cpu_loras": 1,
    "lora_memory": 1024**2,
    "max_lora_rank": 1,
    "drain_seconds": 0,
    "stuck_seconds": 1,
    "kv_staging_memory": 1024**2,
    "sleep_after_seconds": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(ModelFilesConfig):
    """Settings of one worker; None means "decided from the model and the device"."""

    scheduler: str = setting(
        "127.0.0.1:8100", "The scheduler: host:port or unix:path; with a standby ADDRESS+ADDRESS"
    )
    model: str = setting("", "Folder of the checkpoint, its id on the hub, or pagewire-builtin")
    served_model_name: str | None = setting(None, "Name clients use; the model's own by default")
    listen: str | None = setting(None, "Address for health checks and KV transfer")
    advertise_address: str | None = setting(
        None, "Address under which others reach --listen, when that is not what it says"
    )
    device: str = setting("auto", "Where the model runs", choices=DEVICES)
    dtype: str = setting("auto", "Type of weights and KV cache", choices=DTYPES)
    block_size: int = setting(16, "Tokens per KV block")
    kv_cache_dtype: str = setting(
        "auto",
        "Type of the KV cache: the weights', 8-bit floats with --attention-backend triton, or int8"
        " with a scale per token and head on CPUs",
        choices=KV_CACHE_DTYPES,
    )
    kv_cache_memory: int | None = setting(
        None, "Bytes for the KV cache, such as 2GiB", parse=parse_size
    )
    gpu_memory_utilization: float = setting(
        0.9, "Share of a CUDA device's memory that may be used, more than 0 and at most 1"
    )
    max_num_seqs: int | None = setting(
        None,
        "Most sequences at once (64 on CPU; 256 on CUDA, 512 on devices of 80 GB and more)",
        parse=parse_count,
    )
    max_num_batched_tokens: int | None = setting(
        None,
        "Most tokens per step (2048 on CUDA, 4096 from 40 GB on, 8192 from 80 GB on; on a CPU those"
        " of 0.1 s, or 0.5 for a prompt alone)",
        parse=parse_count,
    )
    max_model_len: int | None = setting(
        None,
        "Longest sequence, prompt and output together, such as 32k; auto for the most that fits"
        " in the KV cache (default: the model's own)",
        parse=parse_model_len,
    )
    steps_in_flight: int = setting(2, "Steps the scheduler may plan ahead")
    drain_seconds: float = setting(
        0.0, "How long its requests may go on after SIGTERM; it gets no new ones"
    )
    stuck_seconds: float = setting(
        300.0, "A model that gets no further for so long is not alive, health checks are told"
    )
    seed: int = setting(
        0, "Seed of torch's generators and of dummy weights; sampling has seeds per request"
    )
    load_format: str = setting(
        "auto",
        "Where weights come from: auto for the checkpoint, dummy for random ones of its shape",
        choices=LOAD_FORMATS,
    )
    tensor_parallel_size: int = setting(
        1, "Processes that compute the model together, each a part of every layer; on CPUs"
    )
    pipeline_parallel_size: int = setting(
        1,
        "Stages that compute the model one after the other, each some of its layers; on CPUs. Each"
        " has --tensor-parallel-size processes",
    )
    enable_expert_parallel: bool = setting(
        False,
        "Give each process of --tensor-parallel-size whole experts, and not a part of every expert",
    )
    distributed_executor_backend: str = setting(
        "auto",
        "How --tensor-parallel-size and --pipeline-parallel-size start processes: mp on this host;"
        " env on the pods of a LeaderWorkerSet; ray on the nodes of a Ray cluster; uniproc for a"
        " single one",
        choices=EXECUTOR_BACKENDS,
    )
    rank_hosts: int = setting(
        1, "Hosts that the ranks of a worker are divided between; with env the size of the group"
    )
    rank_listen: str = setting(
        "",
        "Address at which hosts of ranks reach this one, in the clear; host:port. By default"
        " 0.0.0.0:8400, with ray a free port of the node",
    )
    rank_key_file: str = setting(
        "",
        "File with a key of 64 hexadecimal digits that the hosts of a group prove to each other",
    )
    sum_slices: int = setting(
        1,
        "Slices of every sum that ranks divide: with 4 of them, one, two and four ranks give the"
        " same bits; 1 for off. On the kernels for CPUs",
    )
    cpu_threads: int | None = setting(None, "Threads of the model; physical cores by default")
    model_impl: str = setting(
        "auto",
        "What computes the model: native where there is a decoder for it, else transformers",
        choices=MODEL_IMPLS,
    )
    cpu_backend: str = setting(
        "auto",
        "What computes on CPUs: fused for kernels that were compiled on installation, or torch",
        choices=CPU_BACKENDS,
    )
    cpu_isa: str = setting(
        "auto",
        "Instruction set of the kernels for CPUs; auto measures which is the fastest",
        choices=CPU_ISAS,
    )
    quantization: str = setting(
        "none",
        "Type that weights are turned into while they are loaded: int8 and int4 to compute on CPUs,"
        " int8 and fp8 on CUDA; int8-output turns the output layer only, on CPUs",
        choices=QUANTIZATIONS,
    )
    attention_backend: str = setting(
        "auto",
        "Implementation of attention; triton needs CUDA, the others are torch's",
        choices=ATTENTION_BACKENDS,
    )
    linear_backend: str = setting(
        "auto",
        "Implementation of linear layers; fixed-tile with --attention-backend triton gives tokens"
        " on CUDA that do not depend on the batch",
        choices=LINEAR_BACKENDS,
    )

    enforce_eager: bool = setting(
        False, "Capture nothing in CUDA graphs: slower, and less memory is taken"
    )
    expert_metrics: bool = setting(
        False, "Count the tokens of each expert of each layer, and show them as metrics"
    )
    enable_lora: bool = setting(False, "Take LoRA adapters of the model, by request")
    max_loras: int = setting(8, "Adapters that sequences may use at once")
    max_cpu_loras: int | None = setting(
        None, "Adapters whose content stays in memory (default: four times --max-loras)"
    )
    lora_memory: int = setting(
        2 * 1024**3, "Most bytes of the content of adapters that stays in memory", parse=parse_size
    )
    max_lora_rank: int = setting(16, "Largest rank of an adapter, at most 256")
    speculative_config: str = setting(
        "",
        "JSON object that turns on speculative decoding on CPUs, with vLLM's names, such as"
        ' {"method": "ngram", "num_speculative_tokens": 5}',
        parse=parse_speculation,
    )
    worker_extension_cls: str = setting(
        "",
        "MODULE.CLASS of your own, whose public methods operators may call in every rank; without"
        " it nothing can be called",
    )
    kv_offload: str = setting(
        "writethrough",
        "When KV blocks go to a KV store: when they are full, when they are evicted, or never",
        choices=KV_OFFLOADS,
    )
    kv_connector: str = setting(
        "pagewire",
        "Client of KV stores: pagewire for ours, mooncake or lmcache for theirs, or MODULE:CLASS",
    )
    kv_transfer_config: str = setting(
        "",
        "JSON object with vLLM's names that chooses a client of KV stores and its settings, such as"
        ' {"kv_connector": "MooncakeStoreConnector", "kv_connector_extra_config": {}}',
        parse=parse_transfer_config,
    )
    kv_key_file: str = setting(
        "",
        "File with a key of 64 hexadecimal digits: blocks that leave a worker are sealed",
    )
    roles: tuple[str, ...] = setting(
        ("prefill", "decode"), "What the worker is used for: prefill, decode or both"
    )
    kv_transport: str = setting(
        "auto",
        "How KV blocks move between workers: auto through memory of the same host where they can"
        " and over gRPC elsewhere, shared or grpc by one of these, nixl or mooncake by those"
        " libraries and over gRPC where they fail, or off",
        choices=KV_TRANSPORTS,
    )
    kv_staging_memory: int = setting(
        64 * 1024**2, "Memory for KV blocks on their way to other workers", parse=parse_size
    )

    enable_sleep_mode: bool = setting(
        False, "Let operators take the memory of the worker and give it again: sleep and wake"
    )
    sleep_after_seconds: float = setting(
        0.0,
        "Seconds without work after which the worker sleeps until the next request; 0 for never",
    )

    def __post_init__(self) -> None:
        if not self.model:
            raise StartupError("--model is needed: a checkpoint folder or a hub id", field="model")
        if "," in self.scheduler:
            raise StartupError("--scheduler: a worker takes one cell", field="scheduler")
        parse_roles(self.roles)
        check_ranks(
            self.tensor_parallel_size,
            self.pipeline_parallel_size,
            self.distributed_executor_backend,
        )
        check_hosts(self.rank_hosts, self.distributed_executor_backend)
        check_sum_slices(self.sum_slices, self.tensor_parallel_size)
        if self.sleep_after_seconds and not self.enable_sleep_mode:
            raise StartupError(
                "--sleep-after-seconds needs --enable-sleep-mode", field="sleep_after_seconds"
            )
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise StartupError(
                "--gpu-memory-utilization must be more than 0 and at most 1, "
                f"got {self.gpu_memory_utilization:g}",
                field="gpu_memory_utilization",
            )
        if self.max_lora_rank > MAX_RANK:
            raise StartupError(
                f"--max-lora-rank must be at most {MAX_RANK}, got {self.max_lora_rank}",
                field="max_lora_rank",
            )
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise StartupError(
                f"--max-cpu-loras: {self.max_cpu_loras} is less than --max-loras {self.max_loras}",
                field="max_cpu_loras",
            )
        for name, minimum in _MINIMUMS.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag} must be at least {minimum}, got {value}", field=name)

    @property
    def num_ranks(self) -> int:
        """Processes that compute the model together."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def ranks_here(self) -> int:
        """Those of them on one host."""
        return self.num_ranks // self.rank_hosts

    @property
    def rank_field(self) -> str:
        """The setting that asks for ranks."""
        is_pipeline = self.tensor_parallel_size == 1
        return "pipeline_parallel_size" if is_pipeline else "tensor_parallel_size"
