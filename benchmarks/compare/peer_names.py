"""Servers as they are named on the command line. Starts none of them."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from compare.peers.llama_cpp import LlamaCpp
from compare.peers.openvino import OpenVino
from compare.peers.pagewire import Pagewire
from compare.peers.protocol import Peer
from compare.peers.transformers import Transformers
from compare.peers.vllm import Vllm

OURS = "pagewire"


class PeerNameError(ValueError):
    """What was named is no server; the text says why."""


def our_variants(texts: Sequence[str]) -> list[Peer]:
    """Return variants of ours, each NAME=ARGUMENTS or ARGUMENTS; the plain one if there is none."""
    return [_variant(text) for text in texts or (f"{OURS}=",)]


def _variant(text: str) -> Pagewire:
    name, equals, arguments = text.partition("=")
    if equals and not name.startswith("-") and " " not in name:
        return Pagewire(name, tuple(shlex.split(arguments)))
    return Pagewire(f"{OURS} {text}".strip(), tuple(shlex.split(text)))


def peer(text: str) -> Peer:
    """Return the peer of KIND=PATH[,KEY=VALUE]... Raises PeerNameError."""
    kind, _, rest = text.partition("=")
    if kind not in _KINDS:
        raise PeerNameError(f"{kind!r} is not one of {', '.join(_KINDS)}")
    path, *pairs = rest.split(",")
    values = dict(pair.partition("=")[::2] for pair in pairs)
    label = values.pop("label", kind)
    try:
        made = _KINDS[kind](label, Path(path), values)
    except KeyError as error:
        raise PeerNameError(f"{kind} needs {error.args[0]}=") from None
    if not path or values:
        raise PeerNameError(f"{text!r}: {', '.join(values) or 'no path'}")
    return made


def _vllm(label: str, path: Path, values: dict[str, str]) -> Peer:
    folder = values.pop("zentorch", None)
    return Vllm(label, path, Path(folder) if folder else None, _arguments(values))


def _llama_cpp(label: str, path: Path, values: dict[str, str]) -> Peer:
    return LlamaCpp(label, path, Path(values.pop("gguf")), _arguments(values))


def _openvino(label: str, path: Path, values: dict[str, str]) -> Peer:
    model = Path(values.pop("model"))
    return OpenVino(label, path, model, int(values.pop("batched_tokens", "0")))


def _transformers(label: str, path: Path, values: dict[str, str]) -> Peer:
    return Transformers(label, path)


def _arguments(values: dict[str, str]) -> tuple[str, ...]:
    return tuple(shlex.split(values.pop("args", "")))


_KINDS: dict[str, Callable[[str, Path, dict[str, str]], Peer]] = {
    "vllm": _vllm,
    "llama.cpp": _llama_cpp,
    "openvino": _openvino,
    "transformers": _transformers,
}
