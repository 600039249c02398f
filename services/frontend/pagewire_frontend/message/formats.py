"""The formats of tool calls and reasoning by name, with plug-ins, and the choice of a model's
formats."""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final

from pagewire_frontend.message.call_format import CallFormat
from pagewire_frontend.message.harmony import HarmonyFormat, find_harmony, harmony_of
from pagewire_frontend.message.hermes import HermesFormat
from pagewire_frontend.message.llama_json import LlamaJsonFormat
from pagewire_frontend.message.mistral import MistralFormat
from pagewire_frontend.message.pythonic import PythonicFormat
from pagewire_frontend.message.reasoning import (
    REASONING_FORMATS,
    ReasoningFormat,
    find_reasoning,
)
from pagewire_shared.errors import StartupError

CALL_FORMATS: Final[tuple[CallFormat, ...]] = (
    HermesFormat(),
    LlamaJsonFormat(),
    MistralFormat(),
    PythonicFormat(),
)
NONE: Final = "none"
HARMONY_CALLS: Final = "openai"
HARMONY_REASONING: Final = "openai_gptoss"
"""vLLM's names for the two halves of harmony, which is one format here."""
# The first marker that a chat template contains decides the format of a model.
_MARKED_FORMATS: Final = (
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3_json"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFormats:
    """Formats in which a model writes tool calls and reasoning; None for an unknown format. A model
    of harmony has neither of the others."""

    calls: CallFormat | None = None
    reasoning: ReasoningFormat | None = None
    harmony: HarmonyFormat | None = None


NO_FORMATS: Final = MessageFormats()


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatChoice:
    """The formats that the flags choose.

    Attributes:
        calls: Format by model; the name "" stands for all others.
        reasoning: The same for reasoning.
        known: Formats of calls by name.
    """

    calls: Mapping[str, str]
    reasoning: Mapping[str, str]
    known: Mapping[str, CallFormat]

    def formats_of(
        self, model: str, template: str | None, ids: Mapping[str, int] = MappingProxyType({})
    ) -> MessageFormats:
        """Return the formats of a model, found from its chat template where no flag names them.

        Args:
            model: Its name.
            template: Its chat template.
            ids: The added tokens of its tokenizer, by spelling.

        Raises:
            StartupError: Flags name harmony and another format, or a model without its tokens.
        """
        calls = self.calls.get(model, self.calls.get(""))
        reasoning = self.reasoning.get(model, self.reasoning.get(""))
        if calls == HARMONY_CALLS or reasoning == HARMONY_REASONING:
            return MessageFormats(harmony=_named_harmony(model, calls, reasoning, ids))
        harmony = find_harmony(template or "", ids) if calls is reasoning is None else None
        if harmony is not None:
            return MessageFormats(harmony=harmony)
        found = _found_calls(template or "") if calls is None else calls
        thoughts = find_reasoning(template or "")
        if reasoning is not None:
            thoughts = REASONING_FORMATS.get(reasoning)
        return MessageFormats(calls=self.known.get(found or NONE), reasoning=thoughts)


def parse_formats(
    parsers: Sequence[str], reasoning: Sequence[str], plugins: Sequence[str], models: Sequence[str]
) -> FormatChoice:
    """Return the choice of `--tool-call-parser`, `--reasoning-parser` and `--tool-parser-plugin`.

    Args:
        parsers: FORMAT, or MODEL=FORMAT.
        reasoning: The same.
        plugins: MODULE:FACTORY, or FILE.py:FACTORY.
        models: Served names.

    Raises:
        StartupError: An unknown name, twice the same, or a plug-in that cannot be loaded.
    """
    known: dict[str, CallFormat] = {item.name: item for item in CALL_FORMATS}
    for plugin in plugins:
        made = load_plugin(plugin)
        known[made.name] = made
    return FormatChoice(
        calls=_by_model("tool-call-parser", parsers, [*known, HARMONY_CALLS, NONE], models),
        reasoning=_by_model(
            "reasoning-parser", reasoning, [*REASONING_FORMATS, HARMONY_REASONING, NONE], models
        ),
        known=known,
    )


def load_plugin(text: str) -> CallFormat:
    """Return the format that MODULE:FACTORY or FILE.py:FACTORY makes, called without arguments.

    Raises:
        StartupError: The plug-in cannot be loaded, or makes no format.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise _invalid("tool-parser-plugin", f"{text!r} is not MODULE:FACTORY")
    try:
        made: CallFormat = getattr(_module(place), name)()
    # Code of others may raise anything; the error is passed on with its cause.
    except Exception as error:
        raise _invalid("tool-parser-plugin", f"{text} cannot be loaded: {error!r}") from error
    wanted = ("name", "markers", "new_reader", "rules")
    missing = [item for item in wanted if not hasattr(made, item)]
    if missing:
        raise _invalid("tool-parser-plugin", f"{text} makes no format: it has no {missing[0]}")
    return made


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).expanduser()
    spec = importlib.util.spec_from_file_location(f"pagewire_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _by_model(
    flag: str, texts: Sequence[str], known: Sequence[str], models: Sequence[str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        model, equals, name = text.rpartition("=")
        if equals and model not in models:
            raise _invalid(flag, f"no model is called {model!r}")
        if name not in known:
            raise _invalid(flag, f"{name!r} is none of {', '.join(known)}")
        if model in found:
            raise _invalid(flag, f"given twice for {model or 'all models'}")
        found[model] = name
    return found


def _named_harmony(
    model: str, calls: str | None, reasoning: str | None, ids: Mapping[str, int]
) -> HarmonyFormat:
    """Return the format that at least one of the flags names."""
    is_for_calls = calls == HARMONY_CALLS
    flag = "tool-call-parser" if is_for_calls else "reasoning-parser"
    name = HARMONY_CALLS if is_for_calls else HARMONY_REASONING
    other = reasoning if is_for_calls else calls
    if other not in (None, HARMONY_CALLS, HARMONY_REASONING):
        raise _invalid(flag, f"{name} is a format of whole answers, not to be used with {other}")
    harmony = harmony_of(ids)
    if harmony is None:
        raise _invalid(flag, f"{name} needs tokens that the tokenizer of {model} does not have")
    return harmony


def _found_calls(template: str) -> str | None:
    return next((name for text, name in _MARKED_FORMATS if text in template), None)


def _invalid(flag: str, problem: str) -> StartupError:
    return StartupError(f"--{flag}: {problem}", field=flag.replace("-", "_"))
