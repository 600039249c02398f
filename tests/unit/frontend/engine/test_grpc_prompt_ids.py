"""Token ids over gRPC are counted before they become objects."""

import pytest

from pagewire_frontend.engine import request_fit
from pagewire_frontend.engine.embedding import MAX_INPUTS
from pagewire_frontend.grpc_api import convert as grpc_convert
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.errors import InvalidRequestError

MANY = [1] * (request_fit.MAX_PROMPT_IDS // 2 + 1)


@pytest.fixture
def made(monkeypatch):
    """Lengths of the prompts that were made."""
    lengths = []
    monkeypatch.setattr(grpc_convert, "TokenPrompt", lambda ids: lengths.append(len(ids)))
    return lengths


def test_too_many_ids_of_a_completion(made):
    message = pb.CompleteRequest(token_ids=pb.TokenIds(ids=MANY + MANY))
    with pytest.raises(InvalidRequestError, match="token_ids: at most 2097152") as caught:
        grpc_convert.complete_request(message, None, None)
    assert caught.value.field == "token_ids"
    assert made == []


def test_too_many_ids_of_all_inputs(made):
    inputs = [pb.EmbedInput(token_ids=pb.TokenIds(ids=MANY))] * 2
    with pytest.raises(InvalidRequestError, match="input: at most 2097152") as caught:
        grpc_convert.embedding_requests(pb.EmbedRequest(inputs=inputs), None, None)
    assert caught.value.field == "input"
    assert made == []


def test_too_many_inputs(made):
    inputs = [pb.EmbedInput(token_ids=pb.TokenIds(ids=[1]))] * (MAX_INPUTS + 1)
    with pytest.raises(InvalidRequestError, match=f"at most {MAX_INPUTS} inputs"):
        grpc_convert.embedding_requests(pb.EmbedRequest(inputs=inputs), None, None)
    assert made == []
