"""Structured outputs at the door: what cannot be compiled never reaches a scheduler."""

import grpc.aio
from contract.frontend_clients import Reader, completion
from contract.frontend_peers import attached_frontend

from pagewire_protos.common.v1 import structured_outputs_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.rpc.errors import from_rpc_error


def held_to(**fields):
    outputs = structured_outputs_pb2.StructuredOutputs(**fields)
    return completion(structured_outputs=outputs)


async def test_only_what_can_be_compiled_is_submitted(checkpoint):
    bad = {
        "circular": held_to(json_schema='{"$ref": "#"}'),
        "slow": held_to(json_schema='{"type": "integer", "multipleOf": 99999999}'),
        "regex": held_to(regex="(a"),
        "grammar": held_to(grammar="start: nothing"),
    }
    async with attached_frontend(checkpoint) as (frontend, attach):
        for request in bad.values():
            error = await Reader(frontend, request).error()
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            typed = from_rpc_error(error)
            assert isinstance(typed, InvalidRequestError)
            assert (typed.field, typed.code) == ("structured_outputs", "invalid_grammar")
        reader = Reader(frontend, held_to(json_schema='{"type": "boolean"}'))
        submit = await attach.next("submit")
        assert submit.sampling.structured_outputs.json_schema == '{"type": "boolean"}'
        attach.say(submit, "true")
        await reader.end()
    assert reader.text[0] == "true"
