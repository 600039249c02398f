"""Which checkpoints run natively and which through transformers; the check at the start."""

import json
import logging
import os
import shutil
import subprocess
import sys

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.loading.source_selection import choose_source
from pagewire_worker.transformers_backend.check import check_against_plain
from pagewire_worker.transformers_backend.refusal import Refusal
from pagewire_worker.transformers_backend.source import TransformersSource
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import MAX_POSITIONS, VOCAB, make_served_checkpoint


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def path_taken(folder, caplog, **settings):
    with caplog.at_level(logging.INFO, logger="pagewire_worker"):
        settings = {"max_model_len": 32, "cpu_threads": 1, **settings}
        replica = load_replica(WorkerConfig(model=str(folder), **settings))
    (line,) = [r.getMessage() for r in caplog.records if r.name.endswith("source_selection")]
    is_fallback = replica.model_runner.backend.kernel_set.startswith("transformers=")
    assert is_fallback == ("through transformers" in line)
    return line


def test_the_log_says_which_way_and_why(checkpoint, caplog):
    assert path_taken(checkpoint("llama"), caplog) == "LlamaForCausalLM runs natively"


def test_a_native_architecture_may_be_run_by_transformers(checkpoint, caplog):
    line = path_taken(checkpoint("qwen3"), caplog, model_impl="transformers")
    assert "--model-impl" in line


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_act": "relu"}, "hidden_act"),
    ],
)
def test_what_the_native_decoder_does_not_do_transformers_does(
    fields, named, checkpoint, tmp_path, caplog
):
    folder = shutil.copytree(checkpoint("qwen2-tied"), tmp_path / "copy")
    change_config(folder, **fields)
    assert named in path_taken(folder, caplog)


def test_the_two_ways_are_told_apart_by_their_numerics(checkpoint):
    prints = {
        load_replica(
            WorkerConfig(
                model=str(checkpoint("llama")), max_model_len=32, cpu_threads=1, model_impl=impl
            )
        ).info.numerics_fingerprint
        for impl in ("native", "transformers")
    }
    assert len(prints) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_passes_the_check(dtype, tmp_path):
    for name in ("gpt-neox", "gemma2", "mixtral"):
        folder = make_served_checkpoint(tmp_path, name)
        replica = load_replica(
            WorkerConfig(model=str(folder), max_model_len=32, cpu_threads=1, dtype=dtype)
        )
        assert replica.info.cache_groups[0].dtype == dtype


def test_a_native_model_does_not_import_transformers(checkpoint):
    code = (
        "import sys; from pagewire_worker.config import WorkerConfig; "
        "from pagewire_worker.loading.loader import load_replica; "
        f"load_replica(WorkerConfig(model={str(checkpoint('llama'))!r}, max_model_len=32)); "
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


class Shifted:
    """A backend that gets something wrong on the way to the right one."""

    def __init__(self, right, change):
        self._right, self._change = right, change

    def forward(self, batch):
        return self._right.forward(self._change(batch))

    def logits(self, hidden):
        return self._right.logits(hidden)


class Doubled(Shifted):
    """Logits that miss a factor."""

    def logits(self, hidden):
        return 2 * self._right.logits(hidden)


def late(batch):
    """Return the batch with all positions one too late."""
    object.__setattr__(batch, "positions", batch.positions + 1)
    return batch


def foreign(batch):
    """Return the batch with the block tables of its sequences exchanged."""
    tables = batch.attention.block_tables
    tables[:] = tables[::-1].copy()
    return batch


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        (Shifted, late, "hidden states"),
        (Shifted, foreign, "hidden states"),
        (Doubled, lambda batch: batch, "logits"),
    ],
)
def test_the_check_at_the_start_finds(kind, change, named, gpt2, settings_of):
    source = TransformersSource.read(gpt2, json.loads((gpt2 / "config.json").read_text()))
    loaded = source.load(settings_of(block_size=4))
    arguments = (MAX_POSITIONS, VOCAB, torch.device("cpu"), torch.float32)

    def right(cache):
        return loaded.backend(cache, lambda: None)

    check_against_plain(loaded.model, right, *arguments)
    with pytest.raises(Refusal, match=named):
        check_against_plain(loaded.model, lambda cache: kind(right(cache), change), *arguments)


@pytest.fixture
def settings_of():
    """Return a function from fields to LoadSettings on the CPU."""
    defaults = {
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "max_model_len": 64,
        "block_size": 16,
        "attention_backend": "auto",
        "linear_backend": "auto",
        "cpu_backend": "auto",
        "on_progress": lambda fraction: None,
    }
    return lambda **fields: LoadSettings(**{**defaults, **fields})


def test_a_checkpoint_that_shows_progress(gpt2):
    seen = []
    config = WorkerConfig(model=str(gpt2), max_model_len=32, cpu_threads=1)
    load_replica(config, on_progress=lambda fraction, detail: seen.append(fraction))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


def test_layers_are_counted(gpt2):
    steps = []
    settings = {"max_model_len": 32, "max_num_batched_tokens": 64, "cpu_threads": 1}
    load_replica(WorkerConfig(model=str(gpt2), **settings), on_layer=lambda: steps.append(1))
    assert len(steps) == 2 * 3  # two steps of warm-up, three layers


def test_kernels_that_are_asked_for_are_not_left_out_in_silence(gpt2):
    config = WorkerConfig(model=str(gpt2), max_model_len=32, cpu_threads=1, cpu_backend="fused")
    with pytest.raises(StartupError, match=r"^--cpu-backend: .* transformers") as caught:
        load_replica(config)
    assert caught.value.field == "cpu_backend"


def test_embedding_sizes(checkpoint, tmp_path):
    opt = make_served_checkpoint(tmp_path, "opt")
    sizes = [
        load_replica(
            WorkerConfig(model=str(folder), max_model_len=32, cpu_threads=1)
        ).info.embedding_size
        for folder in (checkpoint("llama"), opt)
    ]
    assert sizes == [64, 32]


def test_a_tied_checkpoint(tmp_path):
    folder = make_checkpoint(tmp_path, tied=True, with_tokenizer=False)
    load_replica(
        WorkerConfig(model=str(folder), max_model_len=32, cpu_threads=1, model_impl="transformers")
    )


@pytest.mark.parametrize("way", ["native", "transformers"])
def test_overrides_reach_the_model(checkpoint, way):
    source = choose_source(checkpoint("llama"), way, "auto", {"rms_norm_eps": 0.5})
    found = source.plan.norm.epsilon if way == "native" else source.config.rms_norm_eps
    assert found == 0.5
    with pytest.raises(StartupError, match="hidden_act"):
        choose_source(checkpoint("llama"), "native", "auto", {"hidden_act": "relu"})
