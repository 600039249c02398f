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
SMALL_WORDS: Final = _words(
    "the a of and in to is was with for on at by from that this not but or as are you we they "
    "it very more some all no so then here there can will up out over under about after "
    "before"
)
# What most English text is made of besides the words above; only copied.
COMMON_WORDS: Final = _words(
    "quick slow fast big great good bad best better new young high low long short hot cold warm "
    "dark bright deep wide hard soft easy heavy light full empty open closed early late right "
    "left wrong true false same other next last first second free busy ready safe sweet sour "
    "clean dirty dry wet rich poor strong weak loud near far jump jumps run runs walk walks go "
    "goes went come comes came see sees saw look looks looked make makes made take takes took "
    "give gives gave find finds found know knows knew think thinks thought say says said tell "
    "tells told ask asks asked work works worked play plays played read reads write writes wrote "
    "sing sings sang eat eats ate drink drinks sleep sleeps sit sits sat stand stands stood "
    "carry hold holds held keep keeps kept leave leaves bring brings brought buy buys bought "
    "sell sells sold pay pays paid love loves like likes want wants need needs use uses help "
    "helps try tries turn turns move moves live lives lived begin begins began end ends stop "
    "stops wait waits call calls called show shows hear hears heard feel feels felt fall falls "
    "fell fly flies flew swim swims rest grow grows build builds built break breaks broke lose "
    "win wins won learn learns meet meets met people man men woman women friend friends family "
    "mother father son daughter baby name word words line lines page side part place thing things "
    "time times day days week month year years today tomorrow yesterday hour minute hand head eye "
    "eyes face foot feet heart body life world country street water air food fish meat tea coffee "
    "money game ball toy music sound voice color number question answer idea problem reason story "
    "test system computer server model program file user message letter list example text language "
    "English public school student class office team job company price order service I he she his "
    "her him my your our their its who what when where why how because if than too also only just "
    "even still never always often again away back down into through between around without "
    "against during until while each every both few many much most such any one two three four "
    "five six seven eight nine ten hundred thousand been being have has had do does did may must "
    "should would could might shall us me them these those am were be an"
)
# Those of them that could decide what is asked, or what a thing is called.
DECIDING_WORDS: Final = _words(
    "how many count number first second last next same other end ends begin begins back away left "
    "right up down line lines long name call calls called story after before between more my your "
    "our his her their its example around one two three four five six seven eight nine ten "
    "hundred thousand"
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
