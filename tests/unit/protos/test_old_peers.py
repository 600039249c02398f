"""Frontends of released versions read what those of today ask them, and are understood: fields
that they lack are dropped on the way, and nothing else is."""

import pytest
from google.protobuf.message import Message

from pagewire_frontend.group.recipe_convert import recipe_from_message, recipe_to_message
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_protos.frontend.v1 import peer_pb2 as pb
from support.scripts import load_script

record_history = load_script("protos/record_history.py")
PACKAGE = "pagewire.frontend.v1."
RECIPE = Recipe(
    stream_id="stream_00000000_" + "0" * 32,
    tenant="a",
    key_digest=b"k" * 32,
    path="/v1/completions",
    body=b"{}",
    pins=Pins(bytes(32), 7),
    digest=b"d" * 32,
    numerics=b"n" * 32,
    cached_tokens=[16, -1],
    maker_name="b",
)


def old_classes(name: str) -> dict[str, type[Message]]:
    """Return a message as each released version that has it knows it."""
    found = {}
    for path in record_history.HISTORY.glob(f"*/{record_history.CONTRACT}"):
        messages = record_history.load_messages(path)
        if PACKAGE + name in messages:
            found[path.parent.name] = messages[PACKAGE + name]
    return found


def through(old: type[Message], message: Message) -> bytes:
    """Return what a frontend that knows `old` passes on of a message."""
    read = old.FromString(message.SerializeToString())
    read.DiscardUnknownFields()
    return read.SerializeToString()


def test_a_recipe_that_older_frontends_keep() -> None:
    classes, without = old_classes("KeepRecipeRequest"), 0
    assert classes
    for version, old in classes.items():
        kept = pb.KeepRecipeRequest.FromString(through(old, recipe_to_message(RECIPE)))
        known = old.DESCRIPTOR.fields_by_name
        without += "maker_name" not in known
        expected = recipe_to_message(RECIPE)
        for field in pb.KeepRecipeRequest.DESCRIPTOR.fields:
            if field.name not in known:
                expected.ClearField(field.name)
        assert kept == expected, version
        again = recipe_from_message(kept)
        assert (again.stream_id, again.tenant, again.pins, again.body) == (
            RECIPE.stream_id,
            RECIPE.tenant,
            RECIPE.pins,
            RECIPE.body,
        )
        assert again.maker_name == ("b" if "maker_name" in known else "")
    assert without, "a version without the name of the maker is among them"


@pytest.mark.parametrize("name", ["RenewRecipesRequest", "ClaimKeyRequest", "NoteUsageRequest"])
def test_questions_that_older_frontends_are_asked(name: str) -> None:
    today = getattr(pb, name)
    asked = record_history.fill(today(), 0)
    classes = old_classes(name)
    assert classes
    for version, old in classes.items():
        read = today.FromString(through(old, asked))
        for field in today.DESCRIPTOR.fields:
            expected = asked if field.name in old.DESCRIPTOR.fields_by_name else today()
            assert getattr(read, field.name) == getattr(expected, field.name), version
