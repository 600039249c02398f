"""Help in groups, and the completion of words in a shell."""

import subprocess
import sys
from dataclasses import fields

import pytest

from pagewire.cli import main
from pagewire.cli.bench import BenchConfig
from pagewire.cli.commands import COMMANDS
from pagewire.cli.completion import all_words
from pagewire.cli.generation import GenerationConfig
from pagewire.cli.help.groups import COMMON, GROUPS, OTHER, group_of
from pagewire.config import ServeConfig


def help_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    return capsys.readouterr().out


def test_every_setting_is_in_one_group() -> None:
    configs = (ServeConfig, GenerationConfig, BenchConfig)
    names = {item.name for config in configs for item in fields(config)}
    grouped = [name for members in GROUPS.values() for name in members]
    assert sorted(name for name in names if group_of(name) == OTHER) == []
    assert len(grouped) == len(set(grouped))
    assert set(grouped) | COMMON <= names


def test_short_help_is_short_and_the_other_has_everything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = help_of("chat", "--help", capsys=capsys)
    assert short.splitlines()[0] == "usage: pagewire chat [MODEL] [--flag VALUE ...]"
    assert len(short.splitlines()) < 70
    assert "--temperature" in short
    assert "--cors-origin" not in short
    assert "\x1b" not in short
    whole = help_of("chat", "--help=all", capsys=capsys)
    for item in fields(GenerationConfig):
        assert item.metadata["hidden"] or f"--{item.name.replace('_', '-')}" in whole
    assert "\nKV store:\n" in whole


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["de"], ["demo"]),
        (["admin", "au"], ["audit"]),
        (["serve", "--max-model"], ["--max-model-len"]),
        (["serve", "--dtype", "bf"], ["bfloat16"]),
        (["admin", "audit", "--ser"], ["--server", "--server-api-key"]),
    ],
)
def test_bash_completes(
    words: list[str], wanted: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path_factory.getbasetemp() / "completion.sh"
    if not script.exists():
        made = subprocess.run(
            [sys.executable, "-m", "pagewire", "completion", "bash"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        script.write_text(made.stdout)
    line = " ".join(["pagewire", *words])
    ask = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _pagewire; "
    found = subprocess.run(
        ["bash", "-c", ask + 'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == wanted


def test_completion_knows_every_command() -> None:
    assert {words.partition(" ")[0] for words in all_words()} == set(COMMANDS)
