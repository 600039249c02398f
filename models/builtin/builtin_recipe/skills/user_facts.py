"""The facts that users may tell about themselves; it builds no conversation and words nothing."""

from collections.abc import Mapping
from typing import Final

from builtin_recipe.items import draw_code
from builtin_recipe.skills.fact_forms import (
    Fact,
    bearer,
    draw_city,
    draw_number,
    draw_person,
    liked,
    one_of,
    own,
)
from builtin_recipe.wordings import facts_asked as asked
from builtin_recipe.wordings import facts_told as told
from builtin_recipe.words import (
    ANIMALS,
    COLORS,
    COUNTRIES,
    DAYS,
    FOODS,
    JOBS,
    MONTHS,
    with_article,
)

_AGES: Final = tuple(str(age) for age in range(5, 95))
_JOBS: Final = tuple(with_article(job) for job in JOBS)
# An article before one of them is "a".
_PETS: Final = tuple(one for one in ANIMALS if one[0] not in "aeiou")

FACTS: Final[Mapping[str, Fact]] = {
    "name": own("name", draw_person, told.NAME, asked.NAME),
    "city": Fact(told.CITY, asked.CITY, "You live in {value}.", draw_city),
    "age": Fact(told.AGE, asked.AGE, "You are {value} years old.", one_of(_AGES)),
    "job": Fact(told.JOB, asked.JOB, "You work as {value}.", one_of(_JOBS)),
    "pet": Fact(told.PET, asked.PET, "You have a pet {value}.", one_of(_PETS)),
    "birthday": Fact(told.BIRTHDAY, asked.BIRTHDAY, "Your birthday is in {value}.", one_of(MONTHS)),
    "color": liked("color", COLORS),
    "food": liked("food", FOODS),
    "animal": liked("animal", ANIMALS),
    "country": liked("country", COUNTRIES),
    "code": own("secret code", draw_code),
    "password": own("password", draw_code),
    "lucky number": own("lucky number", draw_number),
    "room": own("room number", draw_number),
    "day off": own("day off", one_of(DAYS)),
    "car": own("car's color", one_of(COLORS)),
    "brother": bearer("brother"),
    "sister": bearer("sister"),
    "friend": bearer("best friend"),
    "dog": bearer("dog"),
    "teacher": bearer("teacher"),
    "boss": bearer("boss"),
}
