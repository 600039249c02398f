"""Bodies of tools and of the calls in earlier turns, in OpenAI's form."""

from typing import Any, Literal

from pagewire_frontend.http.body_fields import StrictBody


class FunctionBody(StrictBody):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(StrictBody):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionBody


class FunctionNameBody(StrictBody):
    """The name of a function."""

    name: str


class NamedToolBody(StrictBody):
    """The tool that must be called."""

    type: Literal["function"]
    function: FunctionNameBody


class SaidFunctionBody(StrictBody):
    """The called function; `arguments` are JSON text."""

    name: str
    arguments: str


class SaidCallBody(StrictBody):
    """A call that the assistant made."""

    id: str
    type: Literal["function"] = "function"
    function: SaidFunctionBody
