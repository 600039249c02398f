"""Topics of stories that are more than a name or a noun; it draws nothing at random."""

from typing import Final

_PREPOSITIONS: Final = {
    **dict.fromkeys(("island", "farm", "mountain", "beach"), "on"),
    **dict.fromkeys(("lake", "river", "harbor"), "at"),
}
# Topics that name no figure; each with the place where the story is then set.
SCENES: Final = (
    ("{a_time} at the {place}", None),
    ("{a_time} {in_place}", None),
    ("a trip to the {place}", None),
    ("a walk to the {place}", None),
    ("the {place}", None),
    ("a small {place} far away", None),
    ("{a_time} at the sea", "sea"),
    ("the sea", "sea"),
    ("a trip to the sea", "sea"),
)
SCENE_TIMES: Final = ("a day", "a day", "one day", "a night", "a summer", "a rainy day")
PAIRS: Final = (
    "two friends",
    "two good friends",
    "best friends",
    "friends",
    "two children",
    "two brothers",
    "two sisters",
    "a family",
    "friendship",
)
CLAUSES: Final = (
    ("who was afraid", ""),
    ("who wants to go home", ""),
    ("who is lost", ""),
    ("who finds {a_thing}", "thing"),
    ("who lost {a_thing}", "thing"),
    ("and a friend", ""),
    ("and friends", ""),
    ("near the {place}", "place"),
    ("at the {place}", "place"),
)


def placed(place: str) -> str:
    """Return `place` behind the preposition of being there: `on the island`."""
    return f"{_PREPOSITIONS.get(place, 'in')} the {place}"
