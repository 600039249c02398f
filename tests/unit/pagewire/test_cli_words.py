"""The command line without processes: help, misuse, settings and where they come from."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pagewire import __version__
from pagewire.cli import main


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAGEWIRE_PORT", "PAGEWIRE_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def exit_status(*words: str) -> int:
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


def test_version_and_help_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--version") == 0
    assert capsys.readouterr().out == f"pagewire {__version__}\n"
    assert exit_status() == 0
    assert "serve" in capsys.readouterr().out
    assert exit_status("serve", "--help") == 0
    assert "--max-num-batched-tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["srve"], "did you mean serve?"),
        (["--versoin"], "unknown flag"),
        (["serve", "--prot", "1"], "did you mean --port?"),
        (["serve", "--max-model-length=5"], "did you mean --max-model-len?"),
        (["serve", "a", "b"], "unexpected argument 'b'"),
        (["generate"], "PROMPT"),
        (["config", "shw"], "did you mean show?"),
        (["admin"], "no action given"),
        (["admin", "audit", "--timeout-secnds", "1"], "did you mean --timeout-seconds?"),
        (["admin", "roles", "aa"], "ROLES"),
        (["admin", "roles", "aa", "prefil"], "'prefil' is no role; there are: prefill, decode"),
        (["admin", "selftst"], "did you mean selftest?"),
        (["admin", "reset-prefix-cach"], "did you mean reset-prefix-cache?"),
        (["bench", "--num-prompt", "4"], "did you mean --num-prompts?"),
    ],
)
def test_misuse_is_one_line_and_status_2(
    words: list[str],
    hint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert exit_status(*words) == 2
    error = capsys.readouterr().err
    assert hint in error
    assert error.count("\n") == 1


def test_reset_prefix_cache_asks_for_one_model_or_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    async def reset(address: str, *, model: str | None = None, api_key: str | None = None) -> int:
        asked.append((address, model, api_key))
        return len(asked)

    monkeypatch.setattr("pagewire.cli.admin.reset_prefix_cache", reset)
    words = ("admin", "reset-prefix-cache", "--server", "h:1")
    assert exit_status(*words, "--model", "m", "--server-api-key", "k") == exit_status(*words) == 0
    assert asked == [("h:1", "m", "k"), ("h:1", None, None)]
    assert capsys.readouterr().out == "forgot 1 cached block\nforgot 2 cached blocks\n"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--port", "99999"], "--port: 99999"),
        (["--port", "x"], "--port: 'x'"),
        (["--kv-cache-memory", "2 bananas"], "--kv-cache-memory: '2 bananas'"),
        (["--num-workers", "0"], "--num-workers: 0"),
        (["--prefill-workers", "0"], "--prefill-workers: 0"),
        (["--prefill-workers", "1"], "--prefill-workers: needs --decode-workers"),
        (["--handoff", "sometimes"], "--handoff"),
        (["--dtype", "float8"], "--dtype"),
        (["--kvstore", "nowhere"], "--kvstore: 'nowhere'"),
        (["--metrics-port", "x"], "--metrics-port: 'x'"),
        (["--tenant-weight", "foo"], "--tenant-weight: 'foo' is not TENANT=WEIGHT"),
        (["--tenant-weight", "a=x"], "--tenant-weight: 'a=x'"),
        (["no/such/folder/here"], "no/such/folder/here does not exist"),
        (["--config", "no-such-file.yaml"], "no-such-file.yaml"),
    ],
)
def test_bad_values_are_one_line_and_status_1_or_2(
    words: list[str], place: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    has_model = words[0] == "no/such/folder/here"
    model = [] if has_model else [str(tmp_path)]
    status = exit_status("serve", *model, *words)
    captured = capsys.readouterr()
    assert status in (1, 2)
    assert place in captured.err
    assert captured.err.count("\n") == 1


def test_sources_of_values_have_the_documented_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("port: 1\nblock-size: 8\nkv-cache-memory: 1GiB\n")
    monkeypatch.setenv("PAGEWIRE_PORT", "2")
    monkeypatch.setenv("PAGEWIRE_BLOCK_SIZE", "4")
    words = ["config", "show", "some/model", "--config", str(file), "--port", "3"]
    assert exit_status(*words) == 0
    shown = capsys.readouterr().out
    values = yaml.safe_load(shown)
    assert (values["port"], values["block-size"], values["kv-cache-memory"]) == (3, 4, 2**30)
    assert values["model"] == ["some/model"]
    sources = {line.split(":")[0]: line.rpartition("# ")[2] for line in shown.splitlines()}
    assert sources["port"] == "flag"
    assert sources["block-size"] == "environment"
    assert sources["kv-cache-memory"] == "file"
    assert sources["host"] == "default"


def test_config_show_is_a_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["config", "show", "--port", "7", "--model", "a=b", "--no-enable-prefix-caching"]
    assert exit_status(*words) == 0
    file = tmp_path / "shown.yaml"
    file.write_text(capsys.readouterr().out)
    assert exit_status("config", "show", "--config", str(file)) == 0
    again = yaml.safe_load(capsys.readouterr().out)
    assert again == yaml.safe_load(file.read_text())
    assert again["enable-prefix-caching"] is False


def test_help_of_a_role_comes_from_its_program() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pagewire", "kvstore", "--help"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0
    assert "usage: pagewire kvstore" in result.stdout
    assert "--exit-with-parent" not in result.stdout


def test_import_loads_nothing_heavy() -> None:
    program = (
        "import sys, pagewire, pagewire.cli; pagewire.SamplingParams;"
        "print(*[m for m in ('torch', 'transformers', 'grpc', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout.strip() == ""
