"""LLM: the offline API. It starts the same processes as `serve` and uses them through a client."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pagewire.client.admin_client import reset_prefix_cache
from pagewire.client.client import AsyncClient
from pagewire.client.embeddings import EmbeddingRequestOutput
from pagewire.client.loop_thread import LoopThread, shared_loop_thread
from pagewire.client.pooling import Classification
from pagewire.client.sleep_client import is_sleeping, sleep, wake_up
from pagewire.client.tool_convert import ToolChoice
from pagewire.client.topology_client import topology
from pagewire.config import ServeConfig, config_from_keywords
from pagewire.local.cluster import LocalCluster
from pagewire.offline.beam_search import BeamSearchOutput, BeamSearchParams
from pagewire.offline.keyword_errors import in_keywords
from pagewire.offline.local_model import end_local, start_local
from pagewire.offline.lora import LoadedAdapters, LoRARequests, adapter_per_prompt
from pagewire.offline.new_weights import exchange_weights
from pagewire.offline.offline_run import EmbeddingRun, OfflineRun, embedding_requests
from pagewire.offline.outputs import RequestOutput
from pagewire.offline.progress_bar import shown_progress
from pagewire.offline.prompts import (
    Conversation,
    GenerationRequest,
    Prompt,
    SeedSource,
    chat_requests,
    prompt_requests,
    token_prompts,
    with_priorities,
)
from pagewire.offline.refusals import REFUSED
from pagewire.offline.tokenizer import load_tokenizer
from pagewire.offline.worker_calls import begin_profiles, call_ranks, end_profiles
from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.sleep.state import parse_mode, parse_tags

MIN_CONCURRENCY = 256
"""Least number of prompts that are submitted at once."""


class LLM:
    """A model on this machine, in separate processes that end with this one.

    Works in scripts without a `__main__` guard and beside a running event loop (notebooks).

    Args:
        model: Folder of a checkpoint or hub id; None for the built-in model.
        **settings: Any flag of `pagewire serve`, `-` written `_`, such as `dtype="float32"` or
            `kv_cache_memory="2GiB"`. With `port` or `host` it also listens there, as `serve` does.

    Raises:
        TypeError: A keyword is not a flag.
        StartupError: The model or a setting cannot be used; the message has one sentence.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        if model is not None:
            settings["model"] = (str(model),)
        elif isinstance(settings.get("model"), str):
            settings["model"] = (settings["model"],)
        # The processes of a library log warnings and errors only.
        settings.setdefault("log_level", "warning")
        with in_keywords():
            self.config: ServeConfig = config_from_keywords(settings).config
        has_http = bool({"host", "port", "grpc_port"} & settings.keys())
        self._loop = loop = shared_loop_thread()
        self._cluster, self._client = start_local(self.config, loop, has_http=has_http)
        cluster = self._cluster
        self._offline = OfflineRun(self._client, cluster.models[0].name)
        self._embedding = EmbeddingRun(self._client, cluster.models[0].name)
        self._adapters = LoadedAdapters(cluster.grpc_address)
        self._seeds = SeedSource(self.config.seed)
        # Also runs at the exit of the interpreter.
        self._finalizer = weakref.finalize(self, end_local, loop, self._client, cluster)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        priority: int | Sequence[int] | None = None,
        prompt_token_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        lora_request: LoRARequests = None,
    ) -> list[RequestOutput]:
        """Continue every prompt; results in the order of the prompts.

        Args:
            prompts: Texts, {"prompt": text} or {"prompt_token_ids": ids}; one or a list.
            sampling_params: One for all or one per prompt; None for the model's defaults and
                at most 16 tokens.
            use_tqdm: Show a progress bar on standard error.
            priority: From -100 to 100, lower is earlier; one for all or one per prompt.
            prompt_token_ids: Instead of `prompts`, as old scripts of vLLM have it.
            lora_request: Adapter for all prompts, or one or None for each; the LLM needs
                `enable_lora=True`.

        Raises:
            InvalidRequestError: A prompt or parameter cannot be accepted; names the field.
        """
        if prompt_token_ids is not None:
            prompts = token_prompts(prompt_token_ids)
        requests = prompt_requests([] if prompts is None else prompts, sampling_params)
        return self._run(with_priorities(requests, priority), use_tqdm, lora_request)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice | None = None,
        parallel_tool_calls: bool | None = None,
        lora_request: LoRARequests = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, a list of {"role": ..., "content": ...}, or a list of them.

        Args:
            messages: The turns; "content" is a text or a list of text parts.
            sampling_params, use_tqdm: As in `generate`.
            add_generation_prompt: Open an assistant turn; the default unless the last turn is
                continued.
            continue_final_message: Leave the last turn open and continue it.
            chat_template_kwargs: Further values for the model's chat template, at most 16.
            tools: Functions that the model may call, in OpenAI's form. Unlike in vLLM, the calls
                are in `outputs[i].tool_calls` and not in the text.
            tool_choice: "none", "auto", "required" or {"type": "function", "function": {"name":
                ...}}; by default "auto" with tools.
            parallel_tool_calls: Whether an answer may have several calls; the default is True.
            lora_request: As in `generate`.
        """
        requests = chat_requests(
            messages,
            sampling_params,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template_kwargs=chat_template_kwargs,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
        )
        return self._run(requests, use_tqdm, lora_request)

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        use_tqdm: bool = False,
    ) -> list[BeamSearchOutput]:
        """Search for the most likely answers; results in the order of the prompts.

        Each sequence found is computed once more as a prompt, for its log-probability.
        """
        requests = prompt_requests(prompts, params.sampling)
        with self._working(len(requests), use_tqdm) as advance:
            return self._loop.run(self._offline.search_all(requests, self._concurrency(), advance))

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        use_tqdm: bool = True,
        *,
        lora_request: LoRARequests = None,
    ) -> list[EmbeddingRequestOutput]:
        """Compute a vector of every prompt; results in the order of the prompts.

        Args:
            prompts, use_tqdm, lora_request: As in `generate`.
            pooling_params: One for all or one per prompt; None for the state of the last token,
                scaled to length 1.

        Raises:
            InvalidRequestError: A prompt or parameter cannot be accepted; names the field.
        """
        plain = embedding_requests(prompts, pooling_params)
        names = self._adapter_names(lora_request, len(plain))
        requests = [replace(r, model=name) for r, name in zip(plain, names, strict=True)]
        with self._working(len(requests), use_tqdm) as advance:
            return self._loop.run(self._embedding.run_all(requests, self._concurrency(), advance))

    def encode(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """Compute a vector of every prompt: the same as `embed`, under vLLM's other name."""
        return self.embed(prompts, pooling_params, use_tqdm)

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        *,
        truncate_prompt_tokens: int | None = None,
    ) -> list[float]:
        """Return how well texts belong together: one with each other, or pair by pair.

        Cross-encoders compute pairs; other models give the cosine of two vectors.
        """
        with self._working(1, False):
            answer = self.loop.run(
                self.client.score(
                    data_1,
                    data_2,
                    model=self.model_name,
                    truncate_prompt_tokens=truncate_prompt_tokens,
                )
            )
        return answer.scores

    def classify(self, prompts: str | Sequence[str]) -> list[Classification]:
        """Return the classes of texts, of a model with a classification head."""
        listed = [prompts] if isinstance(prompts, str) else list(prompts)
        with self._working(1, False):
            answer = self.loop.run(self.client.classify(listed, model=self.model_name))
        return answer.outputs

    def get_tokenizer(self) -> Any:
        """Return transformers' tokenizer of the model. Raises StartupError without transformers."""
        return load_tokenizer(self.config.tokenizer or self._cluster.models[0].path)

    def reset_prefix_cache(self) -> int:
        """Forget cached prefixes and return the number of blocks."""
        return self.loop.run(reset_prefix_cache(self._cluster.grpc_address))

    def sleep(self, level: int = 1, mode: str = "keep") -> None:
        """Give the memory of the model back, as vLLM's; the LLM needs `enable_sleep_mode=True`.

        Requests that run meanwhile are preempted ("keep") or end first ("wait"); those that come
        wait for `wake_up`.

        Raises:
            InvalidRequestError: Without sleep mode, or for an unknown level or mode.
        """
        self.loop.run(sleep(self._cluster.grpc_address, level=level, mode=parse_mode(mode)))

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Make the memory anew: the parts of `tags`, "weights" and "kv_cache", or all for None.

        Raises:
            UnavailableError: It cannot be made; the model is asleep as before.
        """
        self.loop.run(wake_up(self._cluster.grpc_address, tags=parse_tags(tags or ())))

    def is_sleeping(self) -> bool:
        """Return whether a part of the memory was given back."""
        return self.loop.run(is_sleeping(self._cluster.grpc_address))

    def update_weights(
        self,
        path: str | None = None,
        tensors: Iterable[tuple[str, Any]] | None = None,
        *,
        version: str = "",
        mode: str = "wait",
    ) -> None:
        """Serve other weights of the same model: those of a folder, or (name, tensor) of torch or
        numpy, all of the checkpoint. Requests that have begun run to their end first ("wait") or
        end ("abort"); answers have `version` in their usage.

        Raises:
            InvalidRequestError: Weights that do not do; the old ones go on.
            UnavailableError: They could not be loaded; the old ones go on.
        """
        address, model = self._cluster.grpc_address, self.model_name
        asked = exchange_weights(address, path, tensors, model=model, version=version, mode=mode)
        self.loop.run(asked)

    def start_profile(self) -> None:
        """Begin to profile the workers, until `stop_profile`, for ten minutes and 1000 steps at
        most. The LLM needs `profiler_dir=...`."""
        self.loop.run(begin_profiles(self._cluster.grpc_address, self.config.profiler_dir))

    def stop_profile(self) -> list[Path]:
        """End the profile; return the files with the traces, one for each worker."""
        return self.loop.run(end_profiles(self._cluster.grpc_address, self.config.profiler_dir))

    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of `worker_extension_cls` in every rank of every worker, between two steps;
        return the results.

        Args:
            method: Its name; a function is refused, as no code is sent.
            timeout: Seconds; a rank that takes longer is lost. None for 60.
            args, kwargs: Values of JSON, as the results.
        """
        asked = call_ranks(self._cluster.grpc_address, method, timeout, args, kwargs)
        return self.loop.run(asked)

    @property
    def llm_engine(self) -> Self:
        """This object: requests, config and processes hang on it."""
        return self

    @property
    def model_name(self) -> str:
        """Served name of the model."""
        return self._cluster.models[0].name

    @property
    def is_closed(self) -> bool:
        """Whether the processes have been ended."""
        return not self._finalizer.alive

    @property
    def client(self) -> AsyncClient:
        """A client of the processes, on `loop`."""
        return self._client

    @property
    def loop(self) -> LoopThread:
        """The thread with the event loop that `client` belongs to."""
        return self._loop

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self._cluster.pids())} processes"
        return f"LLM(model={self.model_name!r}, {state})"

    def __getattr__(self, name: str) -> Any:
        # Only names that are not there come here.
        if name in REFUSED:
            raise NotImplementedError(f"LLM.{name}: {REFUSED[name]}")
        raise AttributeError(f"'LLM' object has no attribute {name!r}")

    @property
    def cluster(self) -> LocalCluster:
        """The processes of this object."""
        return self._cluster

    def close(self) -> None:
        """End the processes. Has no effect when already closed."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(
        self, plain: list[GenerationRequest], use_tqdm: bool, adapters: LoRARequests
    ) -> list[RequestOutput]:
        names = self._adapter_names(adapters, len(plain))
        requests = [replace(r, model=name) for r, name in zip(plain, names, strict=True)]
        with self._working(len(requests), use_tqdm) as advance:
            seeded = [replace(r, params=self._seeds.seeded(r.params)) for r in requests]
            return self._loop.run(self._offline.run_all(seeded, self._concurrency(), advance))

    def _adapter_names(self, adapters: LoRARequests, num_prompts: int) -> list[str | None]:
        each = adapter_per_prompt(adapters, num_prompts)
        if not any(each):
            return [None] * num_prompts
        if not self.config.enable_lora:
            raise InvalidRequestError(
                "lora_request: make the LLM with enable_lora=True", field="lora_request"
            )
        return self._loop.run(self._adapters.names_of(each))

    @contextmanager
    def _working(self, total: int, use_tqdm: bool) -> Iterator[Callable[[], object]]:
        """Yield a function to call after each prompt. Raises UnavailableError when closed."""
        if not self._finalizer.alive:
            raise UnavailableError("this LLM is closed")
        with shown_progress(total, use_tqdm) as advance:
            yield advance

    def _concurrency(self) -> int:
        """Return the number of prompts to submit at once: twice the sequences that the workers run,
        so that the scheduler always has a queue to choose from."""
        cells = self._loop.run(topology(self._cluster.grpc_address))
        running = sum(worker.max_num_seqs for cell in cells for worker in cell.workers)
        return max(MIN_CONCURRENCY, 2 * running)
