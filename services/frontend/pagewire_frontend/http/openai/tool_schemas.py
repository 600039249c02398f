"""Bodies of tools and of the calls in earlier turns, in OpenAI's form."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

_STRICT = ConfigDict(strict=True, extra="allow")


class FunctionBody(BaseModel):
    """A function that the model may call."""

    model_config = _STRICT
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(BaseModel):
    """A tool; functions are the only kind."""

    model_config = _STRICT
    type: Literal["function"]
    function: FunctionBody


class FunctionNameBody(BaseModel):
    """The name of a function."""

    model_config = _STRICT
    name: str


class NamedToolBody(BaseModel):
    """The tool that must be called."""

    model_config = _STRICT
    type: Literal["function"]
    function: FunctionNameBody


class SaidFunctionBody(BaseModel):
    """What was called; `arguments` are JSON text."""

    model_config = _STRICT
    name: str
    arguments: str


class SaidCallBody(BaseModel):
    """A call that the assistant made."""

    model_config = _STRICT
    id: str
    type: Literal["function"] = "function"
    function: SaidFunctionBody
