"""Converts recipes of streams to the messages between peers, and back."""

from pagewire_frontend.http.kept_streams.pins import SECRET_BYTES, Pins
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_protos.frontend.v1 import peer_pb2 as pb
from pagewire_shared.errors import InvalidRequestError


def recipe_to_message(recipe: Recipe) -> pb.KeepRecipeRequest:
    """Return the request that has a recipe kept."""
    return pb.KeepRecipeRequest(
        stream_id=recipe.stream_id,
        tenant=recipe.tenant,
        key_digest=recipe.key_digest,
        path=recipe.path,
        body=recipe.body,
        secret=recipe.pins.secret,
        created=recipe.pins.created,
        digest=recipe.digest,
        numerics=recipe.numerics,
        cached_tokens=recipe.cached_tokens,
        maker_name=recipe.maker_name,
    )


def recipe_from_message(message: pb.KeepRecipeRequest) -> Recipe:
    """Return the recipe in a request. Raises InvalidRequestError."""
    if len(message.secret) != SECRET_BYTES:
        raise InvalidRequestError(f"secret needs {SECRET_BYTES} bytes", field="secret")
    return Recipe(
        stream_id=message.stream_id,
        tenant=message.tenant if message.HasField("tenant") else None,
        key_digest=message.key_digest if message.HasField("key_digest") else None,
        path=message.path,
        body=message.body,
        pins=Pins(message.secret, message.created),
        digest=message.digest,
        numerics=message.numerics,
        cached_tokens=list(message.cached_tokens),
        maker_name=message.maker_name,
    )
