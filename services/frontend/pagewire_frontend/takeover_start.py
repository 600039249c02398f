"""Makes what goes on with the streams of lost frontends, over both APIs."""

from pagewire_frontend.access.api_keys import ApiKeys
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.group.streams import TakeOver
from pagewire_frontend.grpc_api.call_answer import CallRemaker
from pagewire_frontend.grpc_api.call_convert import CALL_PATHS
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import RecipeMirror
from pagewire_frontend.http.kept_streams.takeovers import Remaker, Takeovers, TakeoverTools
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.generation import CHAT_PATH, COMPLETION_PATH
from pagewire_frontend.http.remaking import BodyRemaker
from pagewire_frontend.http.responses.asked import RESPONSES_PATH
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.responses.remaking import ResponseRemaker


def make_take_over(
    engine: Engine,
    streams: LocalStreams,
    responses: LocalResponses,
    recipes: RecipeMirror,
    bodies: Bodies,
    keys: ApiKeys,
) -> TakeOver:
    """Return what makes streams again; it keeps them in `streams`, and responses in `responses`,
    too."""
    by_body, by_call = BodyRemaker(engine, bodies), CallRemaker(engine)
    remakers: dict[str, Remaker] = {
        RESPONSES_PATH: ResponseRemaker(engine, bodies, responses),
        **dict.fromkeys((CHAT_PATH, COMPLETION_PATH), by_body),
        **dict.fromkeys(CALL_PATHS, by_call),
    }
    return Takeovers(TakeoverTools(keys, recipes, remakers), streams).begin
