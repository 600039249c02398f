"""The table of vLLM's names is complete, and every row does what it says."""

import argparse
import json
import logging
import shlex
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pagewire.cli.bench import BenchConfig
from pagewire.cli.environment import known_names, warn_of_unknown
from pagewire.cli.generation import GenerationConfig
from pagewire.cli.settings import add_model, load, make_parser
from pagewire.config import ServeConfig, config_from_keywords
from pagewire.vllm_names.arguments import add_names
from pagewire.vllm_names.other_programs import COMMAND_HINTS, FLAG_HINTS
from pagewire.vllm_names.page import coming_from_page, vllm_page
from pagewire.vllm_names.table import ROWS, SHORT_FLAGS, is_switch, translate
from pagewire_shared.errors import StartupError
from pagewire_shared.names.foreign_name import ForeignName, NameState
from pagewire_shared.names.sampling_names import SAMPLING, STRUCTURED
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.process.settings import flag_of
from support.source_tree import ROOT

HERE = Path(__file__).parent
NAMES = json.loads((HERE / "vllm_names.json").read_text())
COMMAND_LINES = json.loads((HERE / "command_lines.json").read_text())

VALUES: dict[str, Any] = {
    "model": "m",
    "served_model_name": ["a", "b"],
    "dtype": "half",
    "max_model_len": "auto",
    "hf_overrides": {"a": 1},
    "kv_transfer_config": {"kv_connector": "MooncakeStoreConnector"},
    "profiler_config": {"profiler": "torch", "torch_profiler_dir": "traces"},
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 5},
    "kv_events_config": {"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:5557"},
    "quantization": "int8",
    "load_format": "safetensors",
    "model_impl": "vllm",
    "distributed_executor_backend": "mp",
    "override_generation_config": {"top_k": 3},
    "max_logprobs": 5,
    "kv_cache_dtype": "fp8",
    "kv_offloading_size": 2,
    "kv_cache_memory_bytes": "2GiB",
    "scheduling_policy": "priority",
    "attention_backend": "TORCH_SDPA",
    "device": "gpu",
    "allowed_origins": ["https://a.example"],
    "gpu_memory_utilization": 0.5,
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "skip_tokenizer_init": True,
    "enable_lora": True,
    "enable_expert_parallel": True,
    "enable_sleep_mode": True,
    "lora_modules": ["sql=/adapters/sql"],
    "max_loras": 4,
    "ssl_cert_reqs": 2,
}
"""A value of each name that works; 8 for the others."""

WORKING = [row for row in ROWS.values() if row.state is NameState.WORKS and row.name != "config"]
OTHERS = [row for row in ROWS.values() if row.state is not NameState.WORKS]


def name_of(row: ForeignName) -> str:
    return row.name


@cache
def parser() -> HintingParser:
    made = make_parser("serve", ServeConfig, "")
    add_model(made)
    add_names(made)
    return made


def loaded(words: list[str]) -> ServeConfig:
    return load(parser(), ServeConfig, words)[0].config


@pytest.fixture(autouse=True)
def _no_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


@pytest.mark.parametrize("group", ["engine_arguments", "llm_keywords"])
def test_every_keyword_of_vllm_has_a_row(group: str) -> None:
    assert set(NAMES[group]) - set(ROWS) == set()


@pytest.mark.parametrize("group", ["engine_flags", "server_flags"])
def test_every_flag_of_vllm_has_a_row(group: str) -> None:
    known = {flag_of(name) for name in ROWS} | set(SHORT_FLAGS)
    assert set(NAMES[group]) - known == set()
    assert set(parser()._option_string_actions) >= set(NAMES[group])


@pytest.mark.parametrize(
    ("group", "rows"), [("sampling_params", SAMPLING), ("structured_outputs", STRUCTURED)]
)
def test_every_field_of_a_request_has_a_row(group: str, rows: tuple[ForeignName, ...]) -> None:
    assert set(NAMES[group]) - {row.name for row in rows} == set()


@pytest.mark.parametrize("row", WORKING, ids=name_of)
def test_a_name_that_works_is_a_setting(row: ForeignName) -> None:
    value = VALUES.get(row.name, 8)
    config = config_from_keywords({row.name: value}, {}).config
    assert getattr(config, row.here) != getattr(ServeConfig(), row.here) or row.name in (
        "load_format"
    )
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    if isinstance(value, bool):
        words = [flag_of(row.name) if value else f"--no-{flag_of(row.name)[2:]}"]
    elif isinstance(value, list) and row.name != "allowed_origins":
        words = [word for one in value for word in (flag_of(row.name), one)]
    else:
        words = [flag_of(row.name), json.dumps(value) if isinstance(value, list) else text]
    assert loaded(words) == config


@pytest.mark.parametrize("row", OTHERS, ids=name_of)
def test_a_name_without_effect_or_refused_says_its_line(
    row: ForeignName, capsys: pytest.CaptureFixture[str]
) -> None:
    flag, value = flag_of(row.name), "17.5"
    words = [flag] if is_switch(row) else [flag, value]
    if row.state is NameState.NO_EFFECT:
        assert loaded(words) == ServeConfig()
        printed = capsys.readouterr().err
        assert printed == f"pagewire serve: {flag} has no effect: {row.text}\n"
        assert translate({row.name: True}).notes == (f"{row.name} has no effect: {row.text}",)
        return
    with pytest.raises(SystemExit) as ended:
        loaded(words)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"pagewire serve: error: {flag}")
    assert row.text in printed
    assert printed.count("\n") == 1
    with pytest.raises(StartupError, match=row.name) as caught:
        config_from_keywords({row.name: value}, {})
    assert (caught.value.field, row.text in caught.value.message) == (row.name, True)


@pytest.mark.parametrize("row", OTHERS, ids=name_of)
def test_neutral_values_of_refused_names_are_silent(row: ForeignName) -> None:
    if row.state is NameState.REFUSED:
        assert row.neutral
        for value in (None, *row.neutral):
            translated = translate({row.name: value})
            assert (translated.values, translated.notes) == ({}, ())


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"dtype": "int3"}, "float16"),
        ({"load_format": "bitsandbytes"}, "safetensors or a GGUF file"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "fp8_e4m3"),
        ({"device": "tpu"}, "CPUs and CUDA"),
        ({"attention_backend": "FLASHINFER"}, "triton"),
        ({"max_logprobs": -1}, "between 0 and"),
        ({"max_model_len": "1.5K"}, "25.6k"),
        ({"max_model_len": 1}, "at least 2"),
        ({"hf_overrides": lambda config: config}, "give a dict"),
        ({"hf_overrides": "[1]"}, "JSON object"),
        (
            {"speculative_config": {"method": "medusa"}},
            "'medusa' is not there yet; there are ngram",
        ),
        ({"speculative_model": "draft"}, "use --speculative-config"),
        ({"allowed_origins": '{"a": 1}'}, "list of origins"),
        ({"data_parallel_size": 2, "num_workers": 3}, "says the same"),
        ({"model": ("a", "b"), "tokenizer": "t"}, "several models"),
        ({"served_model_name": ["a", "a"]}, "there twice"),
    ],
)
def test_values_that_cannot_be_had_are_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(StartupError, match=error):
        config_from_keywords(given, {})


@pytest.mark.parametrize(
    ("limits", "is_taken"),
    [
        ('{"image": 0, "video": 0}', True),
        ({"image": 0, "audio": 0}, True),
        ('{"video": {"count": 0, "num_frames": 32}}', True),
        ("image=0,video=0", True),
        ('{"image": 4, "video": 0}', False),
        ({"image": {"count": 1}}, False),
        ("image=4", False),
        ("image", False),
        ('{"image"', False),
    ],
)
def test_limits_of_images_are_taken_where_they_are_zero(limits: Any, is_taken: bool) -> None:
    if is_taken:
        assert config_from_keywords({"limit_mm_per_prompt": limits}, {}).config == ServeConfig()
        return
    with pytest.raises(StartupError, match="0 is the limit of images"):
        config_from_keywords({"limit_mm_per_prompt": limits}, {})


@pytest.mark.parametrize("line", COMMAND_LINES, ids=lambda line: line["words"])
def test_command_lines_of_vllm(line: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line["words"])[1:]
    if "refused" in line:
        with pytest.raises(SystemExit):
            loaded(words)
        assert ROWS[line["refused"]].text in capsys.readouterr().err
        return
    config = loaded(words)
    assert config.model == ("MODEL",)
    for name, value in line["sets"].items():
        assert getattr(config, name) == (tuple(value) if isinstance(value, list) else value)
    notes = capsys.readouterr().err
    assert line.get("note", "") in notes
    assert bool(notes) == ("note" in line)


def test_a_file_may_have_names_of_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text("model: m\ndata-parallel-size: 3\nswap-space: 4\nmax-model-len: 1k\n")
    config = loaded(["--config", str(file)])
    assert (config.num_workers, config.max_model_len) == (3, 1000)
    assert "swap_space has no effect" in capsys.readouterr().err
    file.write_text("enable-lora-bias: true\n")
    with pytest.raises(StartupError, match="as PEFT publishes them"):
        config_from_keywords({"config": str(file)}, {})


def test_a_keyword_that_is_nobodys_names_the_closest() -> None:
    with pytest.raises(TypeError, match="did you mean tensor_parallel_size"):
        config_from_keywords({"tensor_paralel_size": 2}, {})


def test_keywords_without_effect_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config_from_keywords({"swap_space": 4, "enable_lora": False, "trust_remote_code": None}, {})
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "swap_space has no effect"
    ]


@pytest.mark.parametrize("flag", sorted(FLAG_HINTS))
def test_a_flag_of_llama_cpp_ends_with_its_hint(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([flag], [flag, "1"]):
        with pytest.raises(SystemExit):
            loaded(words)
        assert f"{flag}: {FLAG_HINTS[flag]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--served-model-name", "a", "MODEL"], (("a",), ("MODEL",))),
        (["MODEL", "--served-model-name", "a", "b"], (("a", "b"), ("MODEL",))),
        (["--served-model-name=a", "--model", "m"], (("a",), ("m",))),
    ],
)
def test_names_do_not_swallow_the_model(words: list[str], expected: tuple[Any, Any]) -> None:
    config = loaded(words)
    assert (config.served_model_name, config.model) == expected


def test_names_do_not_swallow_the_prompt() -> None:
    generate = make_parser("generate", GenerationConfig, "")
    generate.add_argument("PROMPT")
    _, others = load(generate, GenerationConfig, ["--model", "m", "--served-model-name", "a", "hi"])
    assert others["PROMPT"] == "hi"


def test_other_commands_take_no_names_of_vllm() -> None:
    made = make_parser("bench", BenchConfig, "")
    assert not any(action.help == argparse.SUPPRESS for action in made._actions)


@pytest.mark.parametrize(
    ("name", "make"), [("vllm", vllm_page), ("start/coming-from", coming_from_page)]
)
def test_the_pages_are_those_of_the_table(name: str, make: Callable[[], str]) -> None:
    written = (ROOT / "docs" / f"{name}.md").read_text()
    assert written == make(), "run: python -m pagewire.vllm_names.page docs"


def test_hints_for_commands_name_commands_that_exist() -> None:
    from pagewire.cli.commands import COMMANDS

    for hint in COMMAND_HINTS.values():
        _, found, rest = hint.partition("pagewire ")
        assert not found or rest.split()[0].rstrip(",") in COMMANDS


@pytest.mark.parametrize(
    ("variable", "line"),
    [
        ("PAGEWIRE_PROT", "pagewire: nothing reads PAGEWIRE_PROT (did you mean PAGEWIRE_PORT?)\n"),
        ("PAGEWIRE_QQQ", "pagewire: nothing reads PAGEWIRE_QQQ\n"),
        ("PAGEWIRE_PORT", ""),
        ("PAGEWIRE_STUCK_SECONDS", ""),
        ("PAGEWIRE_FRONTEND_SERVICE_PORT_HTTP", ""),
        ("PAGEWIRE_FRONTEND_PORT_8000_TCP_ADDR", ""),
        ("HOME", ""),
    ],
)
def test_variables_that_nothing_reads_get_a_line(
    variable: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_unknown({variable: "1"})
    assert capsys.readouterr().err == line


def test_settings_of_every_command_are_known_variables() -> None:
    names = {item.name.upper() for cls in (GenerationConfig, BenchConfig) for item in fields(cls)}
    assert names - known_names() == set()


@pytest.mark.parametrize(
    ("flag", "closest"),
    [("--prot", "--port"), ("--tensor-paralel-size", "--tensor-parallel-size")],
)
def test_the_closest_flag_is_one_of_the_help_if_possible(
    flag: str, closest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        loaded([flag, "1"])
    assert f"unknown flag {flag}; did you mean {closest}?" in capsys.readouterr().err
