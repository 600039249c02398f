"""Renders chat templates in separate processes, with limits on time and memory: templates come with
models and are not trusted, and a long conversation takes long in any of them."""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from pagewire_frontend.chat.harmony_turns import harmony_tools, harmony_turns
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.fair_queue import FairTurns
from pagewire_frontend.prompts.generation_request import ChatPrompt
from pagewire_frontend.prompts.template_link import RendererEndedError, TemplateLink, start_renderer
from pagewire_frontend.prompts.text_budget import TextBudget
from pagewire_shared.errors import InternalError, InvalidRequestError, UnavailableError
from pagewire_shared.exhaustion import fault_of

_logger = logging.getLogger(__name__)

NUM_PROCESSES: Final = 2
NUM_ATTEMPTS: Final = 2
"""A process may die once for reasons outside of the template."""
MAX_WALL_SECONDS: Final = 30.0
"""Longest wait for an answer; the process itself limits its processor time."""
NUM_REMEMBERED: Final = 64
_MARK: Final = "What a user says."


class TemplateRenderer:
    """Starts processes when they are first needed, and again after each that ended. `close` it.

    Args:
        budget: Bytes of conversations that wait or are rendered.
    """

    def __init__(self, budget: TextBudget) -> None:
        self._budget = budget
        self._idle: list[TemplateLink] = []
        self._links: set[TemplateLink] = set()
        self._turns = FairTurns(NUM_PROCESSES)
        self._is_closed = False
        self._ends: OrderedDict[tuple[str, bytes], str] = OrderedDict()

    async def start(self, models: Iterable[LoadedModel]) -> None:
        """Start a process that has the templates of `models`, so that no request waits for it.

        Raises:
            InternalError: No process can be started.
        """
        with_template = [model for model in models if model.chat_template is not None]
        if not with_template:
            return
        link = await self._pick()
        for model in with_template:
            await self._load(link, model)
        self._idle.append(link)

    async def render(self, model: LoadedModel, prompt: ChatPrompt, tenant: str | None) -> str:
        """Return the text of a conversation.

        Raises:
            InvalidRequestError: There is no template, or it refuses the messages or takes too
                much; names messages.
            OverloadedError: Too many bytes wait already.
        """
        if model.chat_template is None:
            raise InvalidRequestError(
                f"{model.name} has no chat template; ask for a completion", field="messages"
            )
        question = _question(model, prompt)
        self._budget.take(tenant, len(question))
        try:
            await self._turns.take(tenant)
        except BaseException:
            self._budget.give(tenant, len(question))
            raise
        # The client may leave; the process goes on, and is free only at the end.
        answer = await asyncio.shield(asyncio.create_task(self._work(model, question, tenant)))
        if "error" in answer:
            raise InvalidRequestError(answer["error"], field=answer["field"])
        text: str = answer["text"]
        return text

    async def prompt_end(
        self, model: LoadedModel, arguments: Mapping[str, Any] | None, tenant: str | None
    ) -> str:
        """Return the text that the chat template writes behind a user's turn: the opening of an
        answer. Empty where it refuses a lone turn, or there is no template."""
        key = model.name, orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
        found = self._ends.get(key)
        if found is None:
            turn = {"role": "user", "content": _MARK}
            try:
                text = await self.render(
                    model, ChatPrompt([turn], template_arguments=arguments), tenant
                )
            except InvalidRequestError:
                text = ""
            found = self._ends[key] = text.rpartition(_MARK)[2]
            while len(self._ends) > NUM_REMEMBERED:
                self._ends.popitem(last=False)
        else:
            self._ends.move_to_end(key)
        return found

    def close(self) -> None:
        """End all processes."""
        self._is_closed = True
        for link in list(self._links):
            self._drop(link)

    async def _work(
        self, model: LoadedModel, question: bytes, tenant: str | None
    ) -> dict[str, Any]:
        try:
            return await self._ask(model, question)
        finally:
            self._budget.give(tenant, len(question))
            self._turns.give()

    async def _ask(self, model: LoadedModel, question: bytes) -> dict[str, Any]:
        is_loaded = False
        for _ in range(NUM_ATTEMPTS):
            link = await self._pick()
            try:
                async with asyncio.timeout(MAX_WALL_SECONDS):
                    if model.name not in link.models:
                        await self._load(link, model)
                    is_loaded = True
                    answer = await link.ask(question)
            except (RendererEndedError, TimeoutError):
                _logger.warning("the renderer of templates %d ended in its work", link.pid)
                self._drop(link)
                continue
            self._idle.append(link)
            return answer
        if not is_loaded:
            # Not for what the client sent.
            raise UnavailableError("the renderers of templates end before they have begun")
        message = "the model's chat template takes too much time or memory for these messages"
        return {"error": message, "field": "messages"}

    async def _load(self, link: TemplateLink, model: LoadedModel) -> None:
        answer = await link.ask(_template(model))
        if "error" in answer:
            # Not the client's fault: the template compiled when the model was loaded.
            raise InternalError(f"the chat template of {model.name}: {answer['error']}")
        link.models.add(model.name)

    async def _pick(self) -> TemplateLink:
        while self._idle:
            link = self._idle.pop()
            if link.is_running:
                return link
            self._drop(link)
        if self._is_closed:
            raise UnavailableError("this frontend ends; ask again", retry_after_ms=0)
        try:
            link = await start_renderer()
        except OSError as error:
            message = f"no renderer of templates can be started: {error}"
            raise fault_of(error, message) from error
        self._links.add(link)
        return link

    def _drop(self, link: TemplateLink) -> None:
        self._links.discard(link)
        link.kill()


def _question(model: LoadedModel, prompt: ChatPrompt) -> bytes:
    turns, tools = prompt.messages, prompt.tools
    if model.formats.harmony is not None:
        turns, tools = harmony_turns(turns), harmony_tools(tools)
    asked = {
        "op": "render",
        "model": model.name,
        "messages": turns,
        "add_generation_prompt": prompt.add_generation_prompt,
        "arguments": prompt.template_arguments,
        "continue_final_message": prompt.continue_final_message,
        "tools": tools,
    }
    try:
        return orjson.dumps(asked)
    except TypeError:
        # An integer of more than 64 bits, or half a character, in the arguments of a tool call.
        return json.dumps(asked).encode()


def _template(model: LoadedModel) -> bytes:
    template = model.chat_template
    assert template is not None
    return orjson.dumps(
        {
            "op": "load",
            "model": model.name,
            "source": template.source,
            "special_tokens": template.special_tokens,
        }
    )
