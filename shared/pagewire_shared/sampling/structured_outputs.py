"""Parameters of structured outputs, with bounds on their size.

grammar_source.py compiles schemas and grammars and finds those that make no sense.
"""

import hashlib
import json as json_module
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.names.sampling_names import STRUCTURED, takes_names
from pagewire_shared.sampling.schema_options import closed, compact

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 32
MAX_SCHEMA_NODES: Final = 1000
MAX_REGEX_CHARS: Final = 1024
MAX_GRAMMAR_BYTES: Final = 64 * 1024
MAX_CHOICES: Final = 1024
MAX_CHOICE_CHARS: Final = 1024

FIELD: Final = "structured_outputs"
Kind = Literal["json_schema", "json_object", "regex", "grammar", "choice"]


@takes_names(STRUCTURED)
@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """A constraint on the output, exactly one of these; the names are vLLM's.

    Attributes:
        json: A JSON schema, as text or as parsed by json.loads; kept as text.
        json_object: Any JSON object.
        regex: A regular expression in Rust's syntax, matched against the whole output.
        grammar: A context-free grammar in GBNF or Lark form.
        choice: One of these texts.
        disable_any_whitespace: No white space between tokens of JSON. It is written into `json`.
        disable_additional_properties: Objects have the properties that the schema names, and those
            that it explicitly allows. It is written into `json`.

    Raises:
        InvalidRequestError: Not exactly one is given, or it is out of bounds; names the field.
    """

    json: str | Mapping[str, Any] | bool | None = None
    json_object: bool = False
    regex: str | None = None
    grammar: str | None = None
    choice: tuple[str, ...] | None = None
    disable_any_whitespace: bool = field(default=False, compare=False)
    disable_additional_properties: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.choice is not None:
            object.__setattr__(self, "choice", _checked_choice(self.choice))
        if self.json is not None:
            object.__setattr__(self, "json", _checked_schema(self.json))
        for name in ("json_object", "disable_any_whitespace", "disable_additional_properties"):
            if not isinstance(getattr(self, name), bool):
                raise _invalid(f"{name} must be true or false")
        _check_text("regex", self.regex, MAX_REGEX_CHARS)
        _check_text("grammar", self.grammar, MAX_GRAMMAR_BYTES)
        names = ("json", "regex", "grammar", "choice")
        given = [name for name in names if getattr(self, name) is not None]
        given += ["json_object"] if self.json_object else []
        if len(given) != 1:
            raise _invalid(
                "needs exactly one of json, json_object, regex, grammar and choice, got "
                + (" and ".join(given) or "none")
            )
        if self.disable_any_whitespace or self.disable_additional_properties:
            self._write_options()

    def _write_options(self) -> None:
        """Write options of JSON into the schema; `json_object` becomes one."""
        if self.kind not in ("json_schema", "json_object"):
            raise _invalid(
                "disable_any_whitespace and disable_additional_properties go with json and"
                " json_object"
            )
        parsed = json_module.loads(str(self.json)) if self.json is not None else {"type": "object"}
        # A schema may be true or false; only an object has room for options.
        schema = parsed if isinstance(parsed, dict) else {} if parsed else {"anyOf": []}
        if self.disable_additional_properties:
            schema = closed(schema)
        if self.disable_any_whitespace:
            schema = compact(schema)
        # It has grown, and each receiver holds it to the same bounds.
        text = json_module.dumps(schema, ensure_ascii=False)
        object.__setattr__(self, "json", _checked_schema(text))
        object.__setattr__(self, "json_object", False)

    @property
    def kind(self) -> Kind:
        """Kind of the constraint."""
        if self.json is not None:
            return "json_schema"
        if self.regex is not None:
            return "regex"
        if self.grammar is not None:
            return "grammar"
        return "choice" if self.choice is not None else "json_object"

    @property
    def text(self) -> str:
        """The constraint as text: a choice is a JSON list, `json_object` is empty."""
        if self.choice is not None:
            return json_module.dumps(self.choice)
        return str(self.json or self.regex or self.grammar or "")

    @property
    def digest(self) -> bytes:
        """The first 16 bytes of SHA-256 over kind, a zero byte and text."""
        return hashlib.sha256(f"{self.kind}\0{self.text}".encode()).digest()[:16]


def _invalid(problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{FIELD}: {problem}", field=FIELD)


def _check_text(name: str, value: object, most: int) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise _invalid(f"{name} must be a text that is not empty")
    if len(value) > most:
        raise _invalid(f"{name} may have at most {most} characters, got {len(value)}")
    _check_utf8(name, value)


def _check_utf8(name: str, text: str) -> None:
    """Raise InvalidRequestError when `text` has half of a surrogate pair: `digest` needs UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid(f"{name} is not valid Unicode: {error.reason}") from error


def _checked_choice(choice: object) -> tuple[str, ...]:
    if isinstance(choice, str) or not isinstance(choice, list | tuple) or not choice:
        raise _invalid("choice must be a list of texts that is not empty")
    if len(choice) > MAX_CHOICES:
        raise _invalid(f"choice takes at most {MAX_CHOICES} texts, got {len(choice)}")
    for text in choice:
        _check_text("choice", "" if text is None else text, MAX_CHOICE_CHARS)
    return tuple(choice)


def _checked_schema(schema: object) -> str:
    """Return a schema as text; a schema given as text is returned unchanged."""
    if isinstance(schema, str):
        text = schema
        _check_schema_size(text)
        _check_utf8("json", text)
        try:
            schema = json_module.loads(text)
        except (ValueError, RecursionError) as error:
            raise _invalid(f"json is no JSON: {error}") from error
    else:
        try:
            text = json_module.dumps(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise _invalid(f"json is no schema: {error}") from error
        _check_schema_size(text)
    if not isinstance(schema, dict | bool):
        raise _invalid("json must be a schema: an object, true or false")
    for num_nodes, depth in enumerate(_depths(schema), start=1):
        if depth > MAX_SCHEMA_DEPTH:
            raise _invalid(f"json may be nested at most {MAX_SCHEMA_DEPTH} deep")
        if num_nodes > MAX_SCHEMA_NODES:
            raise _invalid(f"json may have at most {MAX_SCHEMA_NODES} objects and lists")
    return text


def _check_schema_size(text: str) -> None:
    if len(text) > MAX_SCHEMA_BYTES:
        raise _invalid(f"json may have at most {MAX_SCHEMA_BYTES} characters, got {len(text)}")


def _depths(schema: object) -> Iterator[int]:
    """Yield the depth of every object and list, without recursion."""
    stack = [(schema, 1)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, dict | list):
            yield depth
            children = value.values() if isinstance(value, dict) else value
            stack.extend((child, depth + 1) for child in children)


GuidedDecodingParams = StructuredOutputsParams
"""The name that vLLM had until 0.11."""
