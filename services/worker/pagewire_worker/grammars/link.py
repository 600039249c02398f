"""Answers requests to compile a grammar."""

import logging

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.rpc.errors import to_detail
from pagewire_shared.sampling.convert import outputs_from_message
from pagewire_shared.sampling.structured_outputs import FIELD, StructuredOutputsParams
from pagewire_worker.grammars.compiler import GrammarCompiler


def grammar_from_message(message: wire.CompileGrammar) -> StructuredOutputsParams:
    """Return the grammar to compile. Raises InvalidRequestError."""
    return outputs_from_message(message.structured_outputs)


def compiled_to_message(grammar_id: bytes, error: PagewireError | None) -> wire.AttachWorkerRequest:
    """Return the answer to a request to compile; `error` is why it failed."""
    detail = to_detail(error) if error is not None else None
    compiled = wire.GrammarCompiled(grammar_id=grammar_id, error=detail)
    return wire.AttachWorkerRequest(grammar_compiled=compiled)


_logger = logging.getLogger(__name__)


async def answer_compile(
    message: wire.CompileGrammar, compiler: GrammarCompiler | None
) -> wire.AttachWorkerRequest:
    """Compile the grammar in `message` and return the answer; without a compiler a refusal."""
    try:
        params = grammar_from_message(message)
        if compiler is None:
            raise InvalidRequestError("this worker follows no grammars", field=FIELD)
        await compiler.compile(message.grammar_id, params)
    except PagewireError as error:
        _logger.warning("grammar %s: %s", message.grammar_id.hex(), error)
        return compiled_to_message(message.grammar_id, error)
    return compiled_to_message(message.grammar_id, None)
