"""Options of the served models from flags: chat template, sampling defaults, names and bounds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pagewire_frontend.models.chat_template import ChatTemplate, load_chat_template, special_tokens
from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.model_files.template import template_text
from pagewire_shared.sampling.params import MAX_LOGPROBS, SamplingParams

GENERATION_CONFIGS: Final = ("auto", "vllm", "none")
_MAX_NAME_CHARS: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options that hold for every model of a frontend.

    Attributes:
        chat_template: Path of a file, or the text of a template; "" for the model's own.
        generation_config: "auto" for the model's sampling defaults, "vllm" or "none" for none, or
            the folder of others.
        generation_overrides: Sampling defaults in place of those.
        aliases: Name of a model to its further names.
        max_logprobs: Most log-probabilities of alternatives that a request may ask for.
        has_tokenizer: Whether texts are read and written at all.
    """

    chat_template: str = ""
    generation_config: str = "auto"
    generation_overrides: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    max_logprobs: int = MAX_LOGPROBS
    has_tokenizer: bool = True

    def template(self, folder: Path, tokenizer_config: Mapping[str, Any]) -> ChatTemplate | None:
        """Return the chat template of a model whose tokenizer is in `folder`, or None.

        Raises:
            StartupError: The file of the template cannot be read, or it does not compile.
        """
        if not self.chat_template:
            return load_chat_template(folder, tokenizer_config)
        return ChatTemplate(template_text(self.chat_template), special_tokens(tokenizer_config))

    def generation(self, folder: Path) -> dict[str, Any]:
        """Return the content of the generation_config.json for a model in `folder`.

        Raises:
            StartupError: The folder of --generation-config has no such file, or it is not JSON.
        """
        if self.generation_config == "auto":
            return _read(folder / "generation_config.json")
        if self.generation_config in GENERATION_CONFIGS:
            return {}
        path = Path(self.generation_config).expanduser() / "generation_config.json"
        if not path.is_file():
            raise StartupError(
                f"--generation-config: there is no {path}", field="generation_config"
            )
        return _read(path)

    def overridden(self, defaults: SamplingParams) -> SamplingParams:
        """Return sampling defaults with the overrides. Raises StartupError naming the flag."""
        try:
            return defaults.with_(**self.generation_overrides)
        except InvalidRequestError as error:
            raise StartupError(
                f"--override-generation-config: {error.message}",
                field="override_generation_config",
            ) from error


def parse_aliases(texts: Sequence[str], models: Sequence[str]) -> dict[str, list[str]]:
    """Return model to further names from MODEL=ALIAS texts.

    Raises:
        StartupError: No such model, or a name that is taken.
    """
    found: dict[str, list[str]] = {}
    taken = set(models)
    for text in texts:
        model, equals, alias = text.partition("=")
        if not equals or model not in models:
            raise _refused(f"{text!r} does not begin with MODEL= of a served model")
        if not alias or len(alias) > _MAX_NAME_CHARS or alias in taken:
            raise _refused(f"{alias[:_MAX_NAME_CHARS]!r} is empty, too long or taken")
        taken.add(alias)
        found.setdefault(model, []).append(alias)
    return found


def _refused(problem: str) -> StartupError:
    return StartupError(f"--model-alias: {problem}", field="model_alias")


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise StartupError(f"{path} is not JSON: {error}", field="generation_config") from error
    if not isinstance(data, dict):
        raise StartupError(f"{path} holds no JSON object", field="generation_config")
    return data
