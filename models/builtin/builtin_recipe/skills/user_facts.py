"""The facts that users may tell about themselves, with the wordings of their own; it builds no
conversation.
"""

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
from builtin_recipe.wording import Wordings
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

FACTS: Final[Mapping[str, Fact]] = {
    "name": own(
        "name",
        draw_person,
        Wordings(
            trained=(
                *("I am {value}", "I go by {value}", "call me {value}", "I am called {value}"),
                *("I was named {value}", "I answer to {value}", "the name is {value}"),
                *("I have the name {value}", "I'm {value}", "my parents [named|called] me {value}"),
                *("[my mother|my father|my wife] calls me {value}", "the name I have is {value}"),
                *("[they|people|my friends] call me {value}", "my friends know me as {value}"),
                *("this is {value} speaking", "[you are|you're] [talking|speaking] to {value}"),
                *("[you can|please] call me {value}", "[I sign as|I sign with|I write as] {value}"),
                *("it is me, {value}", "the [one|person|user] [talking|writing] to you is {value}"),
            ),
            held_out=(
                *("{value} is what people call me", "let me introduce myself, I am {value}"),
                "I was given the name {value}",
            ),
        ),
        Wordings(
            trained=(
                *("who am I?", "who am I to you?", "what am I named?", "how am I called?"),
                *("what am I called?", "say who I am.", "tell me who I am.", "I am called what?"),
                *("do you know who I am?", "what [does my mother|do they|does everyone] call me?"),
                *("what do [people|my friends] call me?", "do you [remember|still know] who I am?"),
                *("who is [speaking|talking|writing] to you?", "[guess|recall|write] who I am."),
                *("what do you call me?", "tell me what I am called.", "can you tell me who I am?"),
                *("how do [people|you] call me?", "who are you [talking|speaking] to?"),
                *("by what name do you [know|call] me?", "with whom are you [talking|speaking]?"),
                *("who did I say I am?", "what should you call me?", "what name do I have?"),
            ),
            held_out=(
                "what is the name of the person who writes to you?",
                *("do you know what I am called?", "when you speak to me, what name do you use?"),
            ),
        ),
    ),
    "city": Fact(
        Wordings(
            trained=(
                *("I live in {value}", "my city is {value}", "{value} is my home"),
                *("my home is {value}", "I moved to {value}", "I live in {value} now"),
                *("my home is in {value}", "I am living in {value}", "home for me is {value}"),
                *("{value} is where I live", "I [rent|own|share] a [flat|house|room] in {value}"),
                *("I have a [house|flat] in {value}", "I am a [citizen|resident] of {value}"),
                *("I have lived in {value} for [years|a year|a long time]", "I reside in {value}"),
                "I [found a home|stay|settled|bought a house|am at home] in {value}",
                *("my [house|flat|family|address] is in {value}", "the city I live in is {value}"),
                "the [place|town] [where I live|I live in|I call home] is {value}",
                "{value} is the [city|place|town] [where I live|I live in|I call home]",
                *("I [went to live|now live|still live] in {value}", "you can find me in {value}"),
            ),
            held_out=(
                "I am based in {value}",
                *("my place is in {value}", "my family and I live in {value}"),
            ),
        ),
        Wordings(
            trained=(
                *("where do I live?", "where do I live?", "what is my city?", "say where I live."),
                *("where is my home?", "my home is where?", "tell me where I live."),
                *("what is my home city?", "my city is [what|which]?", "what city do I live in?"),
                *("which city do I live in?", "in which city do I live?", "which city is my home?"),
                *("can you tell me where I live?", "which city did I say I live in?"),
                *("what [place|town] is my home?", "I live where?", "[name|tell me|say] my city."),
                *("where did I say I live?", "do you [know|remember] [which|what] city I live in?"),
                *("do you [know|remember] where I live?", "[guess|recall|write] where I live."),
                "where [is my house|am I living|am I at home|do I stay|is my flat]?",
                "in [what|which] [city|town|place] [is my house|is my home|am I living]?",
                "[say|name|tell me] the [city|place|town] [I live in|where I live|I call home].",
                "what is the [city|place|town] [I live in|where I live|I call home]?",
                *("which [place|town] do I live in?", "[which|what] city am I living in?"),
                *("where do I have my [home|house]?", "where do I [reside|rent a flat]?"),
            ),
            held_out=(
                *("what is the name of the city I live in?", "where can people visit me at home?"),
                *("I live in which city?", "when I go home, what city do I go to?"),
            ),
        ),
        "You live in {value}.",
        draw_city,
    ),
    "age": Fact(
        Wordings(
            trained=(
                *("I am {value} years old", "I have [been alive for|behind me] {value} years"),
                *("I am {value}", "my age is {value}", "I am aged {value}"),
                *("{value} is my age", "I'm {value} years old", "I was born {value} years ago"),
                *("I turned {value} [today|this year|last week]", "I have lived for {value} years"),
                *("I am {value} years of age", "I am [now|already|just|only] {value}[| years old]"),
                *("I became {value} [today|this year]", "[at the moment|today|now] I am {value}"),
                *("my age [now|today|this year] is {value}", "I have been {value} since last year"),
                "you are talking to [somebody|someone|a person] who is {value} years old",
                *("{value} years have passed since I was born", "I am a person of {value} years"),
            ),
            held_out=(
                "{value} is how old I am",
                *("I just had my birthday and am {value} now", "I have reached the age of {value}"),
            ),
        ),
        Wordings(
            trained=(
                *("how old am I?", "can you tell me how old I am?", "[so|now|well], how old am I?"),
                *("how many years have I lived?", "what age [did I tell you|did I say|do I have]?"),
                *("how old am I?", "I am how old?"),
                *("what is my age?", "tell me my age.", "my age is what?", "say how old I am."),
                *("of what age am I?", "[say|name] my age.", "what age am I[| now]?"),
                *("tell me how old I am.", "how many years old am I?", "how old did I say I am?"),
                *("do you [know|remember] how old I am?", "do you [remember|still know] my age?"),
                *("what was my age[| again]?", "how old am I [now|today]?", "do you know my age?"),
                *("how many years ago was I born?", "[guess|recall|write] [how old I am|my age]."),
                *("tell me what age I am.", "[I want|I would like] to know [my age|how old I am]."),
                *("how long have I [lived|been alive]?", "which age [do I have|is mine]?"),
            ),
            held_out=(
                *("if someone asks how old I am, what do I say?", "how old would you say I am?"),
                "I forgot how old I am, can you help?",
            ),
        ),
        "You are {value} years old.",
        one_of(_AGES),
    ),
    "job": Fact(
        Wordings(
            trained=(
                *("I work as {value}", "I [serve|am employed|started|have a position] as {value}"),
                *("I work as {value}", "I am {value}", "I'm {value}"),
                *("I am {value} by trade", "at work I am {value}", "I am working as {value}"),
                *("I have a job as {value}", "my [work|trade|profession] is that of {value}"),
                *("my job is that of {value}", "my [career|occupation|role] is that of {value}"),
                *("I earn my money as {value}", "I have worked as {value} for [years|a long time]"),
                *("I [make|earn] my living as {value}", "by [trade|profession] I am {value}"),
                "I [found work|got a job|was hired|spend my days|make money] as {value}",
                *("they [pay|hired] me as {value}", "for a living I work as {value}"),
                *("I [became|have become|am now] {value}", "I [was trained|chose] to be {value}"),
            ),
            held_out=(
                *("I have been {value} for many years", "every day I go to work as {value}"),
                "I do the work of {value}",
            ),
        ),
        Wordings(
            trained=(
                *("what is my job?", "what is my job?", "tell me my job.", "I work as what?"),
                *("what is my work?", "what do I do for a living?", "what [is|was] my job again?"),
                *("as what do I work?", "what do I work as?", "what work do I do?"),
                *("what job do I have?", "which job do I have?", "which work do I do?"),
                *("do you [know|remember] my job?", "what is my [profession|trade|line of work]?"),
                *("in [what|which] job do I work?", "name my [job|work|profession]."),
                *("what is my [occupation|role]?", "[guess|recall|write] [my job|what I work as]."),
                *("say [my job|what I work as].", "tell me what [I work as|my job is|work I do]."),
                *("what kind of [work|job] do I [have|do]?", "my [job|work|profession] is what?"),
                *("how do I [earn|make] my [money|living]?", "what job did I [name|say I have]?"),
                *("what am I by [trade|profession]?", "what did I say [my job is|I work as]?"),
                "do you [know|remember] what [I work as|my job is|work I do]?",
                *("what do I do [at work|all day|for money|for work]?", "can you tell me my job?"),
            ),
            held_out=(
                "what am I at work?",
                *("what is it that I work as?", "I have to write down my job, what is it?"),
            ),
        ),
        "You work as {value}.",
        one_of(tuple(with_article(job) for job in JOBS)),
    ),
    "pet": Fact(
        Wordings(
            trained=(
                *("I have a pet {value}", "[there is|we have] a pet {value} [at home|in my house]"),
                *("I have a pet {value}", "[someone|my aunt|a friend] gave me a pet {value}"),
                *("my pet is a {value}", "the pet I [have|keep|own] is a {value}"),
                *("I keep a {value} [at home|in my house]", "at home I have a pet {value}"),
                *("I own a pet {value}", "I got a pet {value}", "a {value} is my pet"),
                *("I keep a {value} as a pet", "I [adopted|raised|was given|picked] a pet {value}"),
                "I [bought|found|feed|live with|look after|love] a pet {value}",
                *("a [pet |]{value} lives [with me|in my house|at home]", "a pet {value} is mine"),
                *("I share my home with a {value}", "I [bought|chose|got] a {value} as my pet"),
            ),
            held_out=(
                *("our family pet is a {value}", "I take care of a pet {value}"),
                "for a pet I have a {value}",
            ),
        ),
        Wordings(
            trained=(
                *("what pet do I have?", "which pet is mine?", "say what pet I have."),
                *("which pet do I have?", "[what|which] [animal|pet] lives [with me|in my house]?"),
                *("what is my pet?", "[name|say] my pet.", "tell me my pet.", "what pet do I own?"),
                *("what kind of pet do I have?", "do you [know|remember] [what|which] pet I have?"),
                *("do you [know|remember] my pet?", "what [sort|type] of [pet|animal] do I have?"),
                *("what animal is my pet?", "what kind of [pet|animal] do I [keep|own|live with]?"),
                *("tell me what pet I have.", "which pet did I [adopt|buy|choose|tell you about]?"),
                *("what animal do I [keep|own|have at home]?", "what [pet|animal] is in my house?"),
                *("which pet do I [own|keep]?", "[guess|recall|write] [my pet|which pet I have]."),
                *("my pet is what[| animal]?", "[what|which] animal did I say I have?"),
                *("what pet do I [keep|feed]?", "what is the pet [I have|I keep|I own]?"),
                *("what animal is the pet [I have|I keep]?", "name the pet [I have|I keep|I own]."),
                *("which animal do I have?", "which animal is my pet?", "what species is my pet?"),
            ),
            held_out=(
                *("which animal do I take care of?", "do I have a pet, and what is it?"),
                "what kind of animal is my pet?",
            ),
        ),
        "You have a pet {value}.",
        one_of(tuple(one for one in ANIMALS if one[0] not in "aeiou")),
    ),
    "birthday": Fact(
        Wordings(
            trained=(
                *("my birthday is in {value}", "my birth month is {value}"),
                *("my birthday comes in {value}", "in {value} I have my birthday"),
                "I was born in {value}",
                *("my [birth|date of birth] is in {value}", "{value} is the month of my birthday"),
                *("I have my birthday in {value}", "I get my birthday [cake|presents] in {value}"),
                *("the month of my birthday is {value}", "the month I was born in is {value}"),
                "{value} is [my birth month|the month I was born in|when I was born]",
                "my birthday [falls in|is always in|will be in|is some day in] {value}",
                "I [celebrate my birthday|get a year older|turn a year older] in {value}",
            ),
            held_out=(
                "{value} is my birthday month",
                *("we have a party for my birthday in {value}", "I came into the world in {value}"),
            ),
        ),
        Wordings(
            trained=(
                *("when is my birthday?", "when do I [get my birthday cake|get one year older]?"),
                *("in which month is my birthday?", "which month is my birthday in?"),
                *("when was I born?", "[guess|recall|write] [my birth month|when my birthday is]."),
                *("do you [know|remember] my birthday?", "my birthday is [when|in which month]?"),
                *("what is the month of my birthday?", "tell me when [my birthday is|I was born]."),
                *("what is [my birth month|the month I was born in]?", "in what month was I born?"),
                "[tell me|name|say] [my birth month|the month of my birthday].",
                *("[which|what] month was I born in?", "I was born [when|in which month]?"),
                "in [what|which] month [do I celebrate my birthday|does my birthday come]?",
                "when [do I turn a year older|do I celebrate my birthday|does my birthday come]?",
                *("what month is my birthday[| in]?", "what is my [date|month] of birth?"),
                *("when did I say my birthday is?", "when do I have my birthday?"),
                "do you [know|remember] when [my birthday is|I was born]?",
            ),
            held_out=(
                *("what is my birthday month?", "can you say in what month I have my birthday?"),
                "when should people wish me a happy birthday?",
            ),
        ),
        "Your birthday is in {value}.",
        one_of(MONTHS),
    ),
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
