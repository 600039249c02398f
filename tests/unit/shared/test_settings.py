"""Settings: flags over environment over file over defaults, and errors that say where."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import parse_tenant_weight
from pagewire_shared.process.settings import load_config, resolve, setting
from pagewire_shared.process.sizes import format_size, parse_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    port: int = setting(8000, "Port")
    memory: int | None = setting(None, "Memory", parse=parse_size)
    cache: bool = setting(True, "Cache")
    model: tuple[str, ...] = setting((), "Models")
    level: str = setting("info", "Level", choices=("info", "debug"))


def load(argv: list[str], environ: dict[str, str] | None = None) -> Example:
    return load_config(Example, argv, environ or {}, prog="x", description="x").config


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("port: 1\nmemory: 1GiB\ncache: false\n")
    environ = {"PAGEWIRE_PORT": "2", "PAGEWIRE_CONFIG": str(file)}
    assert load([], environ).port == 2
    assert load(["--port", "3"], environ).port == 3
    assert load([], environ).memory == 2**30
    assert load([], environ).cache is False
    assert load([], {}).port == 8000
    loaded = resolve(Example, {"port": "3"}, {"PAGEWIRE_MEMORY": "1k"}, file)
    assert loaded.sources["port"] == "flag"
    assert loaded.sources["memory"] == "environment"
    assert loaded.sources["cache"] == "file"
    assert loaded.sources["model"] == "default"


def test_flags_take_both_spellings_and_repeat() -> None:
    config = load(["--no_cache", "--model", "a=b", "--model=c=d_e"])
    assert config.cache is False
    assert config.model == ("a=b", "c=d_e")


@pytest.mark.parametrize(
    ("argv", "environ", "place"),
    [
        (["--port", "many"], {}, "--port"),
        ([], {"PAGEWIRE_PORT": "tcp://10.0.0.1:80"}, "PAGEWIRE_PORT"),
        (["--memory", "2 bananas"], {}, "--memory"),
        ([], {"PAGEWIRE_LEVEL": "loud"}, "PAGEWIRE_LEVEL"),
    ],
)
def test_a_bad_value_names_its_source(argv: list[str], environ: dict[str, str], place: str) -> None:
    with pytest.raises(StartupError, match=place):
        load(argv, environ)


def test_unknown_key_in_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("prot: 1\n")
    with pytest.raises(StartupError, match="did you mean port"):
        load(["--config", str(file)])


def test_unknown_flag_is_misuse() -> None:
    with pytest.raises(SystemExit) as caught:
        load(["--prot", "1"])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("1.5kb", 1500), (7, 7), ("512 MiB", 2**29), ("3g", 3 * 10**9)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_format_size() -> None:
    assert format_size(1536) == "1.5 KiB"
    assert format_size(12) == "12 B"


def test_tenant_weights() -> None:
    assert parse_tenant_weight("a=2") == ("a", 2.0)
    assert parse_tenant_weight("x=y=0.5") == ("x=y", 0.5)
    assert parse_tenant_weight("=3") == ("", 3.0)


@pytest.mark.parametrize("text", ["a", "a=", "a=b", "a=0", "a=-1", "a=inf", "a=nan"])
def test_bad_tenant_weights_are_shown(text: str) -> None:
    with pytest.raises(StartupError, match=repr(text)):
        parse_tenant_weight(text)
