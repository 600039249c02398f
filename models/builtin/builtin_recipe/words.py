"""Word lists from which every text of the corpus is put together; it owns no grammar and draws
nothing at random.
"""

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ANIMALS: Final = _words(
    "fox wolf bear lion tiger monkey frog turtle dog cat mouse rabbit horse goat cow sheep pig "
    "bird duck owl hen snake bee ant spider deer squirrel hedgehog elephant penguin whale dolphin "
    "camel donkey parrot crow swan eagle snail butterfly puppy kitten crab otter beaver badger "
    "zebra giraffe"
)
PEOPLE: Final = _words(
    "king queen prince princess knight giant wizard witch dragon ghost robot pirate hunter fairy "
    "unicorn mermaid monster dinosaur boy girl child farmer baker pilot sailor painter singer "
    "teacher doctor nurse judge guard writer cook driver grandmother grandfather brother sister "
    "man woman"
)
PLACES: Final = _words(
    "forest village castle island farm valley harbor garden mountain desert jungle meadow city "
    "town beach lake river cave field tower"
)
KEEPSAKES: Final = _words(
    "key map ring lamp book coin bell sword mirror flute drum kite box letter feather shell "
    "candle crown basket clock"
)
NATURE: Final = _words(
    "stone cloud tree leaf branch flower ocean sand rain snow wind storm thunder sun moon star "
    "sky night morning winter summer spring autumn fire smoke seed root grass hill cliff swamp "
    "pond stream path trail planet comet rainbow"
)
FOODS: Final = _words(
    "apple egg milk bread butter cheese honey sugar salt pepper rice soup cake pie lemon orange "
    "banana grape cherry peach plum melon carrot onion potato tomato bean corn nut"
)
HOUSEHOLD: Final = _words(
    "table chair window door house room wall floor roof lock hinge shelf drawer desk oven stove "
    "fridge bed pillow blanket towel soap comb bottle cup plate bowl spoon fork knife pot pan "
    "picture page pencil pen brush color paper flag bag screen phone camera radio shirt coat hat "
    "glove scarf boot shoe sock belt button pocket needle thread"
)
WORKSHOP: Final = _words(
    "glass wood rope wire chain wheel cart boat ship train plane car truck road bridge cabin tent "
    "barn mill shop market school church hall hammer nail saw axe shovel bucket arrow bow shield "
    "purse violin piano guitar song dance story cloth silk wool cotton leather engine motor pump "
    "pipe valve tank battery cable rocket anchor sail net hook fence gate coal gold silver iron "
    "copper steel"
)
NOUNS: Final = tuple(
    dict.fromkeys(ANIMALS + PEOPLE + PLACES + KEEPSAKES + NATURE + FOODS + HOUSEHOLD + WORKSHOP)
)
GOODS: Final = _words(
    "apple lemon orange banana carrot onion egg cake lamp book coin bell drum kite chair table "
    "cup plate bowl spoon pencil pen hat coat scarf shirt button hammer nail shovel bucket rope "
    "cart"
)
NAMES: Final = _words(
    "Anna Ben Clara David Emma Frank Grace Henry Ivy Jack Kate Leo Maria Noah Olga Paul Quinn "
    "Rosa Sam Tina Uma Victor Wendy Xavier Yara Zoe Alice Bruno Carla Diego Elena Felix Gina Hugo "
    "Iris Jonas Karen Lucas Mila Nina Oscar Petra Ralph Sara Tom Vera Walter Lila Max Nora Lily "
    "Mia Bob Lucy"
)
CITIES: Final = _words(
    "Oslo Paris London Berlin Madrid Rome Vienna Prague Lisbon Dublin Athens Cairo Tokyo Delhi "
    "Lima Quito Boston Chicago Denver Seattle Toronto Sydney Geneva Milan Porto Warsaw Kyoto "
    "Nairobi Dakar Havana"
)
COUNTRIES: Final = _words(
    "France Germany Spain Italy Japan India China Brazil Canada Egypt Kenya Peru Norway Poland "
    "Greece"
)
COLORS: Final = _words("red blue green yellow black white brown purple pink gray")
JOBS: Final = _words(
    "doctor teacher farmer baker pilot sailor painter singer nurse judge writer cook driver"
)
TRAITS: Final = _words(
    "brave happy curious quiet kind clever little old young small big gentle lonely funny lazy "
    "wise tiny friendly shy hungry sleepy lost"
)
LOOKS: Final = _words("old small golden red silver strange tiny heavy blue beautiful")
TROUBLES: Final = _words("storm flood fire wind snow thunder fog")
DAYS: Final = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS: Final = _words(
    "January February March April May June July August September October November December"
)
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"

_IRREGULAR_PLURALS: Final = {
    "wolf": "wolves",
    "mouse": "mice",
    "sheep": "sheep",
    "deer": "deer",
    "child": "children",
    "man": "men",
    "woman": "women",
    "witch": "witches",
    "puppy": "puppies",
    "butterfly": "butterflies",
    "monkey": "monkeys",
    "fairy": "fairies",
    "fox": "foxes",
    "princess": "princesses",
}


def with_article(phrase: str) -> str:
    """Return `phrase` behind its indefinite article: `a fox`, `an old fox`."""
    # "unicorn" is the one word of the lists that is spelt with a vowel and spoken with a consonant.
    vowel = phrase[0].lower() in "aeiou" and not phrase.startswith("uni")
    return f"{'an' if vowel else 'a'} {phrase}"


def plural(noun: str) -> str:
    """Return the plural of a noun of the lists."""
    return _IRREGULAR_PLURALS.get(noun, noun + "s")


def capitalized(text: str) -> str:
    """Return `text` with its first character in upper case and the rest untouched."""
    return text[:1].upper() + text[1:]
