"""Parameters of the offline API as they reach the wire: best_of and beam search."""

from pagewire.client.client_convert import options_message
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.convert import beam_from_message, sampling_from_message
from pagewire_shared.sampling.params import SamplingParams, field_names
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams


def test_best_of_and_its_absence_are_sent() -> None:
    assert options_message(SamplingParams(n=2, best_of=4)).best_of == 4
    plain = options_message(SamplingParams(n=2))
    assert not plain.HasField("best_of")
    assert not plain.HasField("beam_search")


def test_a_beam_search_is_sent() -> None:
    params = SamplingParams(
        n=4, use_beam_search=True, temperature=0, length_penalty=0.5, early_stopping="never"
    )
    message = options_message(params)
    assert message.n == 4
    assert message.beam_search.early_stopping == sampling_pb2.EARLY_STOPPING_NEVER
    assert beam_from_message(message.beam_search) == BeamParams(0.5, None)


def test_fields_that_a_mapping_leaves_out_are_absent() -> None:
    message = options_message({"use_beam_search": True, "n": 2})
    assert beam_from_message(message.beam_search) == BeamParams()
    assert not message.sampling.HasField("temperature")


EVERY = SamplingParams(
    n=2,
    best_of=3,
    temperature=0.5,
    top_p=0.5,
    top_k=5,
    min_p=0.25,
    seed=4,
    max_tokens=9,
    min_tokens=2,
    stop=("x",),
    stop_token_ids=(7,),
    ignore_eos=True,
    logprobs=2,
    prompt_logprobs=3,
    presence_penalty=0.5,
    frequency_penalty=-0.5,
    repetition_penalty=1.5,
    logit_bias={4: -2.0},
    allowed_token_ids=(4, 5),
    bad_words=("no",),
    bad_token_sequences=((1, 2),),
    structured_outputs=StructuredOutputsParams(regex="a+"),
    truncate_prompt_tokens=8,
    skip_special_tokens=False,
    include_stop_str_in_output=True,
)
BEAM_ONLY = {"use_beam_search", "length_penalty", "early_stopping"}


def _received(message) -> SamplingParams:
    """Return what a server makes of the options."""
    own = {
        name: getattr(message, name)
        for name in ("n", "best_of", "skip_special_tokens", "include_stop_str_in_output")
    }
    texts = {name: tuple(getattr(message, name)) for name in ("stop", "bad_words")}
    kept = message.truncate_prompt_tokens
    defaults = SamplingParams(max_tokens=None, truncate_prompt_tokens=kept, **own, **texts)
    return sampling_from_message(message.sampling, defaults=defaults)


def test_every_field_is_sent() -> None:
    plain = SamplingParams()
    same = {name for name in field_names() if getattr(EVERY, name) == getattr(plain, name)}
    assert same == BEAM_ONLY, "the test names every field"
    assert _received(options_message(EVERY)) == EVERY


def test_a_mapping_of_every_field_sends_the_same_message() -> None:
    given = {name: getattr(EVERY, name) for name in field_names() if name not in BEAM_ONLY}
    assert options_message(given) == options_message(EVERY)


def test_equal_parameters_have_equal_hashes() -> None:
    assert hash(EVERY) == hash(EVERY.with_())
    assert len({EVERY, EVERY.with_(), EVERY.with_(seed=5)}) == 2
