"""Renders chat templates in a Jinja sandbox: they come with the model and are not trusted."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pagewire_frontend.models.content import text_of, text_part
from pagewire_frontend.models.template_reads import template_reads
from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.model_files.template import stored_template

# Marks the end of the turn to continue; the rendered text before it is kept.
_END_OF_TURN = "PAGEWIRE_CONTINUES_HERE "


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; here it renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that jinja2 asks for

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the body in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _ComputesNothing(CodeGenerator):
    """Leaves constant expressions to the rendering, which is limited, as compiling is not."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _Tracking(_ComputesNothing, meta.TrackingCodeGenerator):
    """Notes the values that a template is given, as meta.find_undeclared_variables does; that one
    computes constant expressions."""


def _given_values(tree: nodes.Template) -> frozenset[str]:
    assert tree.environment is not None, "a parsed template has its environment"
    tracking = _Tracking(tree.environment)
    tracking.optimizer = None
    tracking.visit(tree)
    return frozenset(tracking.undeclared_identifiers)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    # Jinja's own filter escapes <, >, & and ' for HTML, which changes what the model reads.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.code_generator_class = _ComputesNothing
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """One model's template."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile `source`. `special_tokens` maps names such as bos_token to their content."""
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(tree)
            self.reads = template_reads(tree, _given_values(tree))
        except jinja2.TemplateError as error:
            raise StartupError(f"the chat template does not compile: {error}") from error
        self.source = source
        self.special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        arguments: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the prompt, which with `continue_final_message` ends with the last turn's text.

        Raises:
            InvalidRequestError: The template refuses the messages, or shows no last turn.
            RecursionError, MemoryError: Rendering takes too much.
        """
        turns = [self._turn(message) for message in messages]
        if continue_final_message:
            turns[-1]["content"] = _with_end(turns[-1]["content"])
        variables = {
            "documents": None,
            **self.special_tokens,
            **(arguments or {}),
            "tools": [dict(tool) for tool in tools] if tools else None,
            "messages": turns,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            text = self._template.render(variables)
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {error}", field="messages"
            ) from error
        return _open_turn(text) if continue_final_message else text

    def _turn(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a turn with the kind of content that the template takes."""
        content, reads = message["content"], self.reads
        parts = [text_part(content)] if isinstance(content, str) else list(content)
        # Templates that take both may take a list from some roles only; one part is a text as well.
        is_text = reads.takes_text and (len(parts) < 2 or not reads.takes_parts)
        return {**message, "content": text_of(content) if is_text else parts}


def _with_end(content: str | list[dict[str, str]]) -> str | list[dict[str, str]]:
    if isinstance(content, str):
        return content + _END_OF_TURN
    last = content[-1]["text"] if content else ""
    return [*content[:-1], text_part(last + _END_OF_TURN)]


def _open_turn(text: str) -> str:
    """Return `text` up to the mark. As in transformers (apply_chat_template), the text before the
    mark is stripped where the template stripped the turn."""
    begin = text.rfind(_END_OF_TURN.strip())
    if begin < 0:
        raise InvalidRequestError(
            "continue_final_message: the model's chat template does not show the last message",
            field="continue_final_message",
        )
    is_kept = text.startswith(_END_OF_TURN, begin)
    return text[:begin] if is_kept else text[:begin].rstrip()


def load_chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> ChatTemplate | None:
    """Return the template of a model folder, or None without any. Raises StartupError."""
    source = stored_template(folder, tokenizer_config)
    return None if source is None else ChatTemplate(source, special_tokens(tokenizer_config))


def special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Return name to content of the special tokens in a tokenizer_config.json."""
    found: dict[str, str] = {}
    for name, value in tokenizer_config.items():
        if not name.endswith("_token"):
            continue
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            found[name] = content
    return found
