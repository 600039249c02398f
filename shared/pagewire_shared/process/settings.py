"""Configuration of a process: flags > environment PAGEWIRE_<FLAG> > --config file.yaml > defaults.

A configuration is a frozen dataclass whose fields are made with `setting`. Flags, environment
names, YAML keys, help and `pagewire config show` follow from its fields. The environment is read
only through the mapping that callers pass.
"""

import argparse
import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pagewire_shared.errors import StartupError
from pagewire_shared.process.flags import HintingParser

ENVIRONMENT_PREFIX = "PAGEWIRE_"

Config = TypeVar("Config")


def setting(
    default: Any,
    text: str,
    *,
    parse: Callable[[str], Any] | None = None,
    choices: Sequence[str] | None = None,
    is_hidden: bool = False,
    is_secret: bool = False,
) -> Any:
    """Return a dataclass field for one setting.

    Args:
        default: Value of a setting that is not given; a tuple makes the flag repeatable.
        text: One line for `--help`.
        parse: From text to the value; derived from the annotation when None.
        is_hidden: Left out of `--help` and `config show`.
        is_secret: Never shown, neither by `config show` nor by `repr`.
    """
    metadata = {
        "help": text,
        "parse": parse,
        "choices": choices,
        "hidden": is_hidden,
        "secret": is_secret,
    }
    return dataclasses.field(default=default, metadata=metadata, repr=not is_secret)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """Settings of every role; the configuration of each role inherits these fields."""

    log_level: str = setting("info", "debug, info, warning or error")
    log_format: str = setting("text", "Form of log lines", choices=("text", "json"))
    metrics_port: int | None = setting(
        None, "Port for Prometheus metrics at /metrics; none if unset"
    )
    metrics_host: str = setting(
        "", "Address of --metrics-port; that of the role itself if unset, else 127.0.0.1"
    )
    metrics_tls: bool = setting(
        False,
        "Serve --metrics-port with the certificate of --tls-dir; /metrics is for an operator's"
        " certificate, or a token",
    )
    metrics_token_file: str = setting(
        "", "File of tokens, a line each, one of which /metrics of --metrics-port asks for"
    )
    tls_dir: str | None = setting(
        None,
        "Folder with ca.crt, tls.crt and tls.key of this role: its links to other roles over TCP"
        " are TLS, with certificates on both sides",
    )
    insecure: bool = setting(
        False, "Listen without --tls-dir on an address that other machines reach"
    )
    audit_log: str = setting(
        "",
        "File of JSON lines about operators' calls, keys, certificates and refusals; - for"
        " standard output",
    )
    exit_with_parent: bool = setting(
        False, "Exit when standard input closes; status lines as JSON", is_hidden=True
    )
    standby: bool = setting(
        False,
        "Import, then wait for the parent's word on standard input",
        is_hidden=True,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[Config]):
    """A configuration and where each value came from."""

    config: Config
    sources: Mapping[str, str]
    """Field name to "flag", "environment", "file" or "default"."""


def flag_of(name: str) -> str:
    """Return the flag of a field: max_num_seqs -> --max-num-seqs."""
    return "--" + name.replace("_", "-")


def add_settings(parser: argparse.ArgumentParser, cls: type[Any]) -> None:
    """Add one flag per setting of `cls`, with argparse.SUPPRESS as default."""
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        text = argparse.SUPPRESS if item.metadata["hidden"] else item.metadata["help"]
        if item.metadata["hidden"] is False and item.default not in (None, "", (), False):
            text += f" (default: {_shown(item.default)})"
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text, "dest": item.name}
        if hints[item.name] is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = item.name.upper() if not item.metadata["choices"] else None
            options["choices"] = item.metadata["choices"]
            if isinstance(item.default, tuple):
                options["action"] = "append"
        parser.add_argument(flag_of(item.name), **options)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def resolve(
    cls: type[Config],
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    file: Path | None = None,
    rewrite: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> LoadedSettings[Config]:
    """Merge the layers into a `cls`.

    Args:
        flags: Field name to text (or bool, or list of texts), as argparse gives them.
        file: YAML file whose keys are long flags without the dashes in front.
        rewrite: From what the file says to settings of `cls`: other spellings of their names.

    Raises:
        StartupError: An unknown key or a value that does not parse, naming where it stands.
    """
    hints = typing.get_type_hints(cls)
    names = [item.name for item in dataclasses.fields(cls)]  # type: ignore[arg-type]
    from_file = _read_file(file, names, rewrite) if file else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for item in dataclasses.fields(cls):  # type: ignore[arg-type]
        variable = ENVIRONMENT_PREFIX + item.name.upper()
        if item.name in flags:
            raw, source, place = flags[item.name], "flag", flag_of(item.name)
        elif variable in environ:
            raw, source, place = environ[variable], "environment", variable
        elif item.name in from_file:
            raw, source, place = from_file[item.name], "file", f"{file}: {item.name}"
        else:
            sources[item.name] = "default"
            continue
        values[item.name] = _parse(raw, item, hints[item.name], place)
        sources[item.name] = source
    return LoadedSettings(cls(**values), sources)


def _read_file(
    path: Path, names: Sequence[str], rewrite: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    # Few starts read a file; of the others this would be a twentieth.
    import yaml

    try:
        data = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise StartupError(f"--config: cannot read {path}: {error}", field="--config") from error
    if not isinstance(data, dict):
        raise StartupError(f"--config: {path} must map flags to values", field="--config")
    result = rewrite({str(key).replace("-", "_"): value for key, value in data.items()})
    for key in result:
        if key not in names:
            close = difflib.get_close_matches(key, names, n=1)
            hint = f"; did you mean {close[0].replace('_', '-')}?" if close else ""
            raise StartupError(f"{path}: unknown key {key.replace('_', '-')!r}{hint}", field=key)
    return result


def _parse(raw: Any, item: "dataclasses.Field[Any]", hint: Any, place: str) -> Any:
    if raw is None:
        return item.default
    if isinstance(item.default, tuple):
        # Blanks around commas mean nothing; a flag given alone may be all blanks (--stop $'\n').
        is_list = isinstance(raw, list | tuple)
        texts = raw if is_list else [text.strip() for text in str(raw).split(",")]
        return tuple(_parse_one(str(text), item, str, place) for text in texts)
    return _parse_one(raw, item, _without_none(hint), place)


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def _parse_one(raw: Any, item: "dataclasses.Field[Any]", hint: Any, place: str) -> Any:
    choices = item.metadata["choices"]
    if choices and str(raw) not in choices:
        raise StartupError(f"{place}: {raw!r} is none of {', '.join(choices)}", field=item.name)
    parse: Callable[[Any], Any] = item.metadata["parse"] or _PARSERS.get(hint) or hint
    try:
        return parse(str(raw) if not isinstance(raw, bool) else raw)
    except StartupError as error:
        raise StartupError(f"{place}: {error.message}", field=item.name) from error
    except ValueError as error:
        kind = getattr(hint, "__name__", str(hint))
        raise StartupError(f"{place}: {raw!r} is not a valid {kind}", field=item.name) from error


def parse_bool(raw: str | bool) -> bool:
    """Return true for 1, true, yes, on and false for 0, false, no, off."""
    if isinstance(raw, bool):
        return raw
    lowered = raw.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(raw)


_PARSERS: dict[Any, Callable[[Any], Any]] = {bool: parse_bool, int: int, float: float, str: str}


def normalise_flags(argv: Sequence[str]) -> list[str]:
    """Return `argv` with `_` in long flag names replaced by `-`, so that both spellings work."""
    result = []
    for word in argv:
        name, equals, value = word.partition("=")
        result.append(name.replace("_", "-") + equals + value if word.startswith("--") else word)
    return result


def load_config(
    cls: type[Config],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    prog: str,
    description: str,
) -> LoadedSettings[Config]:
    """Parse a role's command line. Exits with 2 on misuse, as argparse does."""
    parser = HintingParser(prog=prog, description=description)
    parser.add_argument("--config", metavar="FILE", help="YAML file; keys are long flags")
    add_settings(parser, cls)
    flags = vars(parser.parse_args(normalise_flags(argv)))
    file = flags.pop("config") or environ.get(ENVIRONMENT_PREFIX + "CONFIG")
    return resolve(cls, flags, environ, Path(file) if file else None)
