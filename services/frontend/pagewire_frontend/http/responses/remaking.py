"""Reads responses again whose frontend is gone."""

from functools import partial

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.responses.asked import checked, parts_of_recipe, pending_response
from pagewire_frontend.http.responses.frames import RESPONSE_FRAMING
from pagewire_frontend.http.responses.kept_run import KeptRun
from pagewire_frontend.http.responses.local import LocalResponses


class ResponseRemaker:
    """The Remaker of RESPONSES_PATH."""

    framing = RESPONSE_FRAMING

    def __init__(self, engine: Engine, bodies: Bodies, responses: LocalResponses) -> None:
        """Create it.

        Args:
            responses: Takes what is made again.
        """
        self._engine = engine
        self._bodies = bodies
        self._responses = responses

    async def read(self, recipe: Recipe, making: Making) -> KeptRun:
        """Return the response of a recipe. Raises PagewireError."""
        earlier, text = parts_of_recipe(recipe.body)
        shaped = partial(checked, making.pins, False)
        pending, _ = await pending_response(
            self._engine,
            await self._bodies.read_again_as(text, shaped),
            earlier,
            response_id=recipe.stream_id,
            pins=making.pins,
            making=making,
            is_kept=True,
        )
        return KeptRun(self._responses, pending)
