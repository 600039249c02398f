"""Conversations whose answers stand in the system prompt: the name of the assistant, a fact on the
user, or a secret; it owns no rule for the form of answers.
"""

from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_code, draw_invented_word
from builtin_recipe.skills.fact_forms import draw_person
from builtin_recipe.skills.plain_prompts import PLAIN
from builtin_recipe.skills.user_facts import FACTS
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import NOUNS

_NAMED: Final = Wordings(
    trained=(
        *("Your name is {name}.", "Your name is {name}.", "You are called {name}."),
        *("You are {name}.", "You are {name}, a [helpful|friendly|kind|small] assistant."),
        "You are [a helpful|a friendly|an|a small] [assistant|model] [named|called] {name}.",
        "[People|Users|They|Your friends] call you {name}.",
        "Act as {name}[|, a friendly assistant].",
        "The [name of the assistant|assistant's name] is {name}.",
        "We call you {name}.",
        "You go by the name {name}.",
        "The assistant is called {name}.",
        "[I|We|They] [named|called] you {name}.",
        "[The user|Everybody|The team] [talks|speaks] to you as {name}.",
        "You are an assistant[,| and you are] [called|named] {name}.",
        "You are the [assistant|model|helper] {name}.",
        "This is {name}, a [helpful|friendly|kind] assistant.",
        "[Say|Remember|Know] that your name is {name}.",
        "[Name|Your name|Name of the assistant]: {name}.",
        *("The user calls you {name}.", "You have the name {name}."),
        *("Your users know you as {name}.", "{name} is your name."),
        *("The name of this assistant is {name}.", "You are an assistant and your name is {name}."),
        *("[Speak|Reply|Answer] as {name}.", "[Take|Use] the name {name}."),
        *("You listen to the name {name}.", "In this [chat|conversation] you are {name}."),
    ),
    held_out=(
        *("From now on you are {name}.", "You were given the name {name}."),
        *("Introduce yourself as {name}.", "If someone asks, your name is {name}."),
        *("Hello {name}, you are my assistant now.", "Think of yourself as {name}."),
    ),
)
_NAME_ASKED: Final = Wordings(
    trained=(
        *("What is your name?", "What is your name?", "What are you called?", "Who are you?"),
        *("Tell me your name.", "Do you have a name?", "What should I call you?"),
        *("[Hi|Hello|Hey], who are you?", "[Hi|Hello|Hey], what is your name?"),
        *("Introduce yourself.", "Tell me who you are.", "Who is this?", "Who am I talking to?"),
        *("What's your name?", "Your name, please.", "Your name is what?", "Who is talking to me?"),
        *("[Can|Could] you say who you are?", "What is your name, [please|assistant|friend]?"),
        *("[By what name|How] should I call you?", "What do I call you?", "Name yourself."),
        "I [want|would like] to know your name.",
        "[So|And] who are you?",
        "You are called what?",
        "What is the name of [the|this] assistant?",
        "Say who you are.",
        "What name do you go by?",
        *("May I ask your name?", "Can you tell me your name?", "What do people call you?"),
        *("Say your name.", "Which name do you have?", "Can you introduce yourself?"),
        *("[Write|Spell|Type] your name.", "By which name do [people|your friends] know you?"),
        "What name [were you given|do you use]?",
    ),
    held_out=(
        *("And your name is?", "How are you called?", "I did not hear your name."),
        *("Who am I speaking with?", "Give me your name.", "Is there a name for you?"),
    ),
)
# The user's fact by its key in FACTS.
_USER_TOLD: Final = {
    "name": Wordings(
        trained=(
            *("The user's name is {value}.", "The user is called {value}.", "The user is {value}."),
            *("The name of the user is {value}.", "You are talking to {value}."),
            "You [help|assist|work for] {value}.",
            "Your user is {value}.",
            "The user [goes by|answers to] {value}.",
            "We call the user {value}.",
            "The user's name: {value}.",
            "[You talk|You are speaking] to a user [called|named] {value}.",
            "[Know|Note|Remember] that the user is [called|named] {value}.",
            *("The user has the name {value}.", "The person you talk to is {value}."),
            *("The user signed in as {value}.", "{value} is [talking|writing] to you."),
            "[Call|Address] the user {value}.",
        ),
        held_out=(
            *(
                "You are helping a user whose name is {value}.",
                "The user wants to be called {value}.",
            ),
            "Your conversation is with {value}.",
        ),
    ),
    "city": Wordings(
        trained=(
            *("The user lives in {value}.", "The user's home is in {value}."),
            *("The user's city is {value}.", "The home of the user is {value}."),
            "You are talking to a user who lives in {value}.",
            *("The user has a [house|flat|home] in {value}.", "The user's city: {value}."),
            *("The user moved to {value}.", "The city of the user is {value}."),
            "[Know|Note|Remember] that the user lives in {value}.",
            "Your user lives in {value}.",
            *("The user is living in {value}.", "{value} is where the user lives."),
            *("The user settled in {value}.", "{value} is the [home|city] of the user."),
            "The user [stays|resides] in {value}.",
        ),
        held_out=(
            "The user has lived in {value} for years.",
            *("The user rents a room in {value}.", "The user calls {value} home."),
        ),
    ),
    "age": Wordings(
        trained=(
            *("The user is {value} years old.", "The user's age is {value}."),
            *("The age of the user is {value}.", "The user is {value}."),
            "You are talking to a user who is {value} years old.",
            *("The user's age: {value}.", "The user is [now|already] {value} years old."),
            *("Your user is {value} years old.", "The user was born {value} years ago."),
            "[Know|Note|Remember] that the user is {value} years old.",
            *("The user turned {value} this year.", "{value} is the age of the user."),
            *("The user reached the age of {value}.", "Age of the user: {value}."),
            "In years, the user is {value}.",
        ),
        held_out=(
            "The user has been alive for {value} years.",
            *(
                "You are helping somebody aged {value}.",
                "{value} is how old the user is.",
            ),
        ),
    ),
    "job": Wordings(
        trained=(
            *("The user works as {value}.", "The user is {value}.", "The user's job: {value}."),
            *("You are talking to {value}.", "You are talking to a user who works as {value}."),
            *("The user's work is that of {value}.", "The user earns money as {value}."),
            *("Your user works as {value}.", "By trade the user is {value}."),
            *("[Know|Note|Remember] that the user works as {value}.", "The user became {value}."),
            *("The user has a job as {value}.", "The user is working as {value}."),
            *("The user is employed as {value}.", "The user [was hired|serves] as {value}."),
            "The job of the user: {value}.",
        ),
        held_out=(
            *("The user makes a living as {value}.", "You are helping somebody who is {value}."),
            "The user's job is being {value}.",
        ),
    ),
    "pet": Wordings(
        trained=(
            *("The user has a pet {value}.", "The user's pet is a {value}."),
            *("The user owns a pet {value}.", "The pet of the user is a {value}."),
            *("The user lives with a pet {value}.", "The pet the user has is a {value}."),
            "Your user has a pet {value}.",
            "The user got a pet {value}.",
            "The user's pet: {value}.",
            "[Know|Note|Remember] that the user has a pet {value}.",
            *("The user keeps a {value} as a pet.", "A {value} is the user's pet."),
            *("The user [feeds|walks|loves] a pet {value}.", "The user bought a pet {value}."),
            "Pet of the user: {value}.",
        ),
        held_out=(
            *("At home the user has a pet {value}.", "The user takes care of a pet {value}."),
            "The animal that lives with the user is a {value}.",
        ),
    ),
    "color": Wordings(
        trained=(
            "The user's favorite color is {value}.",
            "The favorite color of the user is {value}.",
            "The color the user likes best is {value}.",
            *("The user's favorite color: {value}.", "{value} is the color the user likes best."),
            *("Your user's favorite color is {value}.", "The best color for the user is {value}."),
            "[Know|Note|Remember] that the user's favorite color is {value}.",
            *("{value} is the user's favorite color.", "The user likes {value} most."),
            "The user's color of choice is {value}.",
            "The user finds {value} the [nicest|best] color.",
            "Favorite color of the user: {value}.",
        ),
        held_out=(
            *("Of all colors, the user likes {value} best.", "The user prefers the color {value}."),
            "The user loves the color {value} more than any other.",
        ),
    ),
    "lucky number": Wordings(
        trained=(
            "The user's lucky number is {value}.",
            "The lucky number of the user is {value}.",
            "{value} is the lucky number of the user.",
            *("The user's lucky number: {value}.", "Your user's lucky number is {value}."),
            *("The user has the lucky number {value}.", "The user says that {value} is lucky."),
            "[Know|Note|Remember] that the user's lucky number is {value}.",
            *("{value} is the user's lucky number.", "As lucky number the user has {value}."),
            "Lucky number of the user: {value}.",
            "The user always plays the lucky number {value}.",
            "The user chose {value} as a lucky number.",
        ),
        held_out=(
            "The number that brings the user luck is {value}.",
            "The user believes that {value} brings luck.",
            "For the user, {value} is a lucky number.",
        ),
    ),
}
_SECRETS: Final = (
    *("password", "secret word", "code", "secret code", "key", "access code", "secret number"),
    *("pin", "magic word"),
)
_SECRET_TOLD: Final = Wordings(
    trained=(
        *("The {thing} is {value}.", "The {thing} is {value}.", "The {thing} is {value}."),
        *("{value} is the {thing}.", "[Remember|Note|Know] that the {thing} is {value}."),
        *("The {thing} for today is {value}.", "[Remember|Note] the {thing}: {value}."),
        "[If|When] the user asks for the {thing}, say that it is {value}.",
        "We use {value} as the {thing}.",
        "The {thing} of the user is {value}.",
        *("The {thing}: {value}.", "The {thing} = {value}.", "This is the {thing}: {value}."),
        *("The {thing} [was set to|has been set to|will be|is now] {value}.", "{thing}: {value}."),
        *("[Always|Please] say {value} when [somebody asks|asked] for the {thing}.",),
        "You know that the {thing} is {value}.",
        "[There is a {thing}|Here is the {thing}], it is {value}.",
        "[The user|Everybody] may know that the {thing} is {value}.",
        *("Today the {thing} is {value}.", "As the {thing}, we use {value}."),
        *("Keep in mind that the {thing} is {value}.", "You know the {thing}, it is {value}."),
        *("Our {thing} is {value}.", "The {thing} [changed to|reads] {value}."),
        *("[Store|Save|Learn] the {thing}: {value}.", "You were told that the {thing} is {value}."),
    ),
    held_out=(
        *("For the {thing}, use {value}.", "If anyone wants the {thing}, give them {value}."),
        "The user may ask for the {thing}, which is {value}.",
        *("Our team picked {value} as the {thing}.", "Everyone here uses the {thing} {value}."),
    ),
)
_SECRET_ASKED: Final = Wordings(
    trained=(
        *("What is the {thing}?", "What is the {thing}?", "Tell me the {thing}."),
        *("What was the {thing}?", "Do you know the {thing}?", "Give me the {thing}."),
        *("[Can|Could] you tell me the {thing}?", "What {thing} do you know?"),
        *("Which {thing} do we use?", "I need the {thing}.", "The {thing}, please."),
        *("What's the {thing}?", "The {thing} is what?", "Name the {thing}.", "Print the {thing}."),
        "Repeat the {thing}.",
        *("What is the {thing} [for today|again|, please]?", "[So|And] what is the {thing}?"),
        *("[Can|Could|Would] you [say|name|repeat] the {thing}?", "Let me know the {thing}."),
        *("I [want|would like|need] to know the {thing}.", "Tell me what the {thing} is."),
        *("Do you know what the {thing} is?", "What {thing} [do we use|were you told]?"),
        *("Which is the {thing}?", "I forgot the {thing}. What is it?", "Show me the {thing}."),
        *("What is our {thing} today?", "Do you remember the {thing}?", "Please say the {thing}."),
        *("[Write|Type|Reveal|Spell] the {thing}.", "What do I [type|enter] as the {thing}?"),
        *("How does the {thing} read?", "I was told you know the {thing}."),
    ),
    held_out=(
        *("Can I have the {thing}?", "What {thing} should I use?", "Remind me of the {thing}."),
        *("May I know the {thing}?", "Which {thing} is the right one?"),
        "Someone asks me for the {thing}. What is it?",
    ),
)


def _named_assistant(draw: Draw) -> tuple[str, Exchange]:
    name = draw_person(draw.rng)
    text = draw.pattern(_NAMED).replace("{name}", name)
    return text, Exchange(draw.pattern(_NAME_ASKED), f"My name is {name}.")


def _known_user(draw: Draw) -> tuple[str, Exchange]:
    key = draw.rng.choice(list(_USER_TOLD))
    fact = FACTS[key]
    value = fact.draw_value(draw.rng)
    # A value that opens the sentence keeps its case, as the answer copies it.
    text = draw.pattern(_USER_TOLD[key]).replace("{value}", value)
    return text, Exchange(draw.request(fact.asked), fact.answer.format(value=value))


def _known_secret(draw: Draw) -> tuple[str, Exchange]:
    rng = draw.rng
    thing = rng.choice(_SECRETS)
    pools = (draw_code(rng), rng.choice(NOUNS), draw_invented_word(rng))
    value = rng.choices(pools, (5, 3, 2))[0]
    if thing in ("pin", "secret number"):
        value = str(rng.randrange(100, 100000))
    text = draw.pattern(_SECRET_TOLD).replace("{thing}", thing).replace("{value}", value)
    asked = draw.request(_SECRET_ASKED).replace("{thing}", thing)
    return text, Exchange(asked, f"The {thing} is {value}.")


def persona_exchanges(draw: Draw) -> tuple[str, list[Exchange]]:
    """Return a system prompt that tells one to three things, and the questions for them."""
    rng = draw.rng
    makers = (_named_assistant, _known_user, _known_secret)
    told = [maker(draw) for maker in rng.sample(makers, rng.choices((1, 2, 3), (6, 3, 1))[0])]
    texts = [text for text, _ in told]
    if rng.random() < 0.35:
        texts.insert(rng.randint(0, len(texts)), draw.pattern(PLAIN))
    exchanges = [exchange for _, exchange in told]
    rng.shuffle(exchanges)
    return ("\n" if rng.random() < 0.1 else " ").join(texts), exchanges
