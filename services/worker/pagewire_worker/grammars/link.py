"""Answers requests to compile a grammar. Knows no stream and no steps."""

import logging

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.sampling.structured_outputs import FIELD
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.grammars.convert import compiled_to_message, grammar_from_message

_logger = logging.getLogger(__name__)


async def answer_compile(
    message: wire.CompileGrammar, compiler: GrammarCompiler | None
) -> wire.AttachWorkerRequest:
    """Compile what `message` asks for and return the one answer; without a compiler a refusal."""
    try:
        params = grammar_from_message(message)
        if compiler is None:
            raise InvalidRequestError("this worker follows no grammars", field=FIELD)
        await compiler.compile(message.grammar_id, params)
    except PagewireError as error:
        _logger.warning("grammar %s: %s", message.grammar_id.hex(), error)
        return compiled_to_message(message.grammar_id, error)
    return compiled_to_message(message.grammar_id, None)
