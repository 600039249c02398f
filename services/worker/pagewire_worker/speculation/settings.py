"""Settings of speculation, as JSON with vLLM's names. Imports no torch.

The names are those of vLLM's `SpeculativeConfig` (vllm/config/speculative.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.process.sizes import parse_size

DRAFT_MODEL: Final = "draft_model"
GRAMMAR: Final = "grammar"
EAGLE, EAGLE3, MTP = "eagle", "eagle3", "mtp"
HEADS: Final = (EAGLE, EAGLE3, MTP)
"""Methods of a head over the hidden states of the model."""
ALIASES: Final = {"deepseek_mtp": MTP, "glm4_moe_mtp": MTP}
"""Names that vLLM has for a method."""
METHODS: Final = ("ngram", "suffix", DRAFT_MODEL, *HEADS, GRAMMAR, "none")
MAX_DRAFTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSettings:
    """How tokens are guessed.

    Attributes:
        method: Name of the proposer; "none" for no speculation. "grammar" guesses only what
            predictions and grammars say, as the others do first.
        num_speculative_tokens: Drafts per sequence and step, at most.
        prompt_lookup_min, prompt_lookup_max: Tokens that have to match an earlier place at least,
            and that are compared at most, by "ngram".
        suffix_decoding_max_tree_depth: Tokens that "suffix" compares at most.
        suffix_decoding_max_cached_requests: Outputs that it keeps of a tenant.
        suffix_decoding_max_spec_factor: Its drafts per token that matches.
        suffix_decoding_min_token_prob: Chance that its drafts are right, at least.
        adaptive: Whether drafts are verified only as far as they are worth their time.
        model: Of draft_model and of heads: folder or hub id; "" for that of the built-in model.
        quantization: Type that the weights of a draft model are turned into; None for that of
            --quantization.
        kv_cache_memory: Bytes of its keys and values, at most; None for a share of what is free.
    """

    method: str = "none"
    num_speculative_tokens: int = 5
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 4
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    adaptive: bool = True
    model: str = ""
    quantization: str | None = None
    kv_cache_memory: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether tokens are guessed at all."""
        return self.method != "none"


_NAMES: Final = tuple(one.name for one in fields(SpeculationSettings))
_OF_ALL: Final = {"method", "num_speculative_tokens", "adaptive"}
_OF_HEADS: Final = {"model", "kv_cache_memory"}
_OF_DRAFT_MODEL: Final = {*_OF_HEADS, "quantization"}
_OF_LOOKUPS: Final = set(_NAMES) - _OF_ALL - _OF_DRAFT_MODEL
_OF: Final[Mapping[str, set[str]]] = {
    DRAFT_MODEL: _OF_DRAFT_MODEL,
    EAGLE: _OF_HEADS,
    EAGLE3: _OF_HEADS,
    MTP: {"kv_cache_memory"},
    GRAMMAR: set(),
}
"""Settings of single methods, beside those of all."""
_LONGEST_LOOKUP: Final = 64


def parse_speculation(text: str) -> str:
    """Return a JSON object of settings in canonical form; "" for no speculation.

    Raises:
        StartupError: It is no such object, naming the setting at fault.
    """
    return json.dumps(_object(text), sort_keys=True) if read_speculation(text).is_on else ""


def read_speculation(text: str) -> SpeculationSettings:
    """Return the settings in `text`, a JSON object or "". Raises StartupError."""
    if not text.strip():
        return SpeculationSettings()
    given = _object(text)
    for name in given:
        if name not in _NAMES:
            raise StartupError(
                f"{name} is no setting of speculation; there are {', '.join(_NAMES)}"
            )
    if not given:
        return SpeculationSettings()
    # As in vLLM, a model alone names the method.
    method = given.setdefault("method", DRAFT_MODEL if "model" in given else None)
    given["method"] = method = ALIASES.get(str(method), method)
    if method not in METHODS:
        shown = "no method is named" if method is None else f"method {method!r} is not there yet"
        raise StartupError(f"{shown}; there are {', '.join(METHODS)}")
    given |= _models(method, given)
    lookup = {"prompt_lookup_min", "prompt_lookup_max"}
    # As in vLLM, one of the two alone stands for both.
    if len(alone := lookup & given.keys()) == 1:
        given |= dict.fromkeys(lookup, given[next(iter(alone))])
    if method == "suffix" and "num_speculative_tokens" not in given:
        # As in vLLM, as many as the deepest match has tokens.
        given["num_speculative_tokens"] = given.get("suffix_decoding_max_tree_depth", 24)
    settings = SpeculationSettings(**given)
    _check_range("num_speculative_tokens", settings.num_speculative_tokens, 1, MAX_DRAFTS)
    _check_range("prompt_lookup_max", settings.prompt_lookup_max, 1, _LONGEST_LOOKUP)
    _check_range("prompt_lookup_min", settings.prompt_lookup_min, 1, settings.prompt_lookup_max)
    _check_range("suffix_decoding_max_tree_depth", settings.suffix_decoding_max_tree_depth, 2, 64)
    cached = settings.suffix_decoding_max_cached_requests
    _check_range("suffix_decoding_max_cached_requests", cached, 0, 1_000_000)
    factor, chance = (
        settings.suffix_decoding_max_spec_factor,
        settings.suffix_decoding_min_token_prob,
    )
    _check_number("suffix_decoding_max_spec_factor", factor, 0.0, 64.0)
    _check_number("suffix_decoding_min_token_prob", chance, 0.0, 1.0)
    if not isinstance(settings.adaptive, bool):
        raise StartupError(f"adaptive must be true or false, got {settings.adaptive!r}")
    return settings


def _models(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a draft model or a head as they are read. Raises StartupError."""
    for name in sorted(given.keys() - _OF_ALL) if method != "none" else ():
        if name not in _OF.get(method, _OF_LOOKUPS):
            raise StartupError(f"{name} is not for method {method}")
    if method in (EAGLE, EAGLE3) and not given.get("model"):
        raise StartupError(f"model is needed for method {method}: a folder or a hub id")
    for name in ("model", "quantization"):
        if not isinstance(given.get(name, ""), str):
            raise StartupError(f"{name} must be a text, got {given[name]!r}")
    size = given.get("kv_cache_memory")
    return {} if size is None else {"kv_cache_memory": parse_size(size)}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{text[:100]!r} is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise StartupError(f"{text[:100]!r} is not a JSON object")
    return dict(found)


def _check_range(name: str, value: object, low: int, high: int) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not low <= value <= high:  # type: ignore[operator]
        raise StartupError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]
        raise StartupError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
