"""Parameters of the offline API as they reach the wire: best_of and beam search."""

from pagewire.client_convert import options_message
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_shared.beam import BeamParams
from pagewire_shared.sampling import SamplingParams
from pagewire_shared.sampling_convert import beam_from_message


def test_best_of_travels_and_its_absence_too() -> None:
    assert options_message(SamplingParams(n=2, best_of=4)).best_of == 4
    plain = options_message(SamplingParams(n=2))
    assert not plain.HasField("best_of")
    assert not plain.HasField("beam_search")


def test_a_beam_search_travels() -> None:
    params = SamplingParams(
        n=4, use_beam_search=True, temperature=0, length_penalty=0.5, early_stopping="never"
    )
    message = options_message(params)
    assert message.n == 4
    assert message.beam_search.early_stopping == sampling_pb2.EARLY_STOPPING_NEVER
    assert beam_from_message(message.beam_search) == BeamParams(0.5, None)


def test_a_mapping_leaves_the_rest_to_the_model() -> None:
    message = options_message({"use_beam_search": True, "n": 2})
    assert beam_from_message(message.beam_search) == BeamParams()
    assert not message.sampling.HasField("temperature")
