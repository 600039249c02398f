"""The sentence patterns of stories and the words that fill them; it draws nothing at random.

A hero is a name, `the fox` or `the lamp`, so no pattern needs a pronoun for it, and a thing may be
`the sand` or `the night`, so no pattern picks it up or puts an indefinite article before it.
"""

from typing import Final

from builtin_recipe.words import DAYS

Patterns = tuple[str, ...]

_OPENINGS: Final = (
    "Once upon a time, {hero_introduced} lived near {a_place}.",
    "Long ago, {hero_introduced} lived in a small house near the {place}.",
    "Far away, near {a_place}, lived {hero_introduced}.",
    "In a little house near the {place} lived {hero_introduced}.",
    "Many years ago, {hero_introduced} came to live near {a_place}.",
    "This is the story of {hero_introduced} and a home near {a_place}.",
    "Not far from the {place}, {hero_introduced} had a small home.",
    "In an old tent near {a_place} lived {hero_introduced}.",
    "It was a bright {season} day when {hero_introduced} first came to the {place}.",
    "Everyone near the {place} knew {hero_introduced}.",
    "One year, {hero_introduced} moved to a new home near {a_place}.",
    "Do you know the tale of {hero_introduced}, who lived near {a_place}?",
    "When the world was young, {hero_introduced} lived near {a_place}.",
    "On the other side of the {place} lived {hero_introduced}.",
    "At the end of a long road, near {a_place}, lived {hero_introduced}.",
    "For many years, {hero_introduced} lived all alone near {a_place}.",
)
PERSON_OPENINGS: Final = (
    *_OPENINGS,
    "{hero} was a {virtue} child who lived near the {place}.",
    "A {virtue} child named {hero} lived near {a_place}.",
)
CREATURE_OPENINGS: Final = (
    *_OPENINGS,
    "Once upon a time, there was {hero_introduced} who lived near {a_place}.",
    "There was once {hero_introduced} who had a home near {a_place}.",
)
HABITS: Final = (
    "Every day {hero} walked to the {place} and looked for something new.",
    "{hero} loved the {place} more than any other place.",
    "{hero} grew {color} flowers and gave them to everyone.",
    "Every morning {hero} sang a song and danced in the sun.",
    "{hero} wanted to see the {thing} more than anything else.",
    "Every night {hero} dreamed about the {thing}.",
    "{hero} had everything but a good friend.",
    "{hero} liked to sit under an old tree and watch the clouds.",
    "{hero} knew a hundred songs but had nobody to sing them to.",
    "There was nobody kinder than {hero}.",
    "Each evening {hero} counted the stars and made a wish.",
    "{hero} was always busy and never had time to play.",
    "Nothing made {hero} happier than a little {meal}.",
    "{hero} hoped to see the whole world one day.",
    "People said that nobody could tell a joke like {hero}.",
)
EVENTS: Final = (
    "One {when}, {hero} met {friend_introduced}, who was looking for the {thing}.",
    "One {when}, {hero} went out to look for the {thing} and met {friend_introduced}.",
    "One {when}, {friend_introduced} came and told {hero} about the {thing}.",
    "One {when}, {friend_introduced} knocked at the door and asked about the {thing}.",
    "One {when}, {hero} heard {friend_introduced} singing about the {thing}.",
    "One {when}, {friend_introduced} sent {hero} a message about the {thing}.",
    "One {when}, {hero} and {friend_introduced} heard an old tale about the {thing}.",
    "One {when}, {hero} saw {friend_introduced} with an old drawing of the {thing}.",
    "It began one {when}, when {friend_introduced} asked {hero} for help with the {thing}.",
    "One {when}, {hero} thought of the {thing} and told {friend_introduced} about it.",
    "One {when}, {hero} found {friend_introduced} in tears about the {thing}.",
    "Then, one {when}, {hero} and {friend_introduced} went to look for the {thing}.",
)
DIALOGUES: Final = (
    '"What do you know about the {thing}?" asked {hero}.',
    '"Will you help me?" asked {friend}.',
    '"Can you keep a secret?" asked {friend}.',
    '"Tell me more about the {thing}," said {hero}.',
    '"Come with me," said {friend}, "and you will see."',
    '"Do not be afraid," said {hero}, "we will go together."',
    '"The {thing} is a secret," said {friend}.',
    '"I know the way," said {friend}.',
    '"I have waited for this all my life," said {hero}.',
    '"Hello, {hero_called}," said {friend}, "may I walk with you?"',
    '"It is a long story," said {friend}, "but I will tell you."',
    '"Two are better than one," said {hero} with a smile.',
    '"Nobody ever listens to me," said {friend}. "I will," said {hero}.',
    '"Let us look for it together," said {hero}.',
)
MIDDLES: Final = (
    "They walked past {sight} and {other_sight}.",
    "The road was long, but {hero} was not afraid.",
    '{friend} laughed and said, "I like you, {hero_called}."',
    "They ate some {meal} and rested under a tree.",
    "{hero} thought about home and smiled.",
    "On the way, they saw {colored_sight} and stopped to look at it.",
    "{hero} and {friend} talked about the {thing} for hours.",
    "They played and sang until they were tired.",
    "{friend} was tired, so {hero} waited for a while.",
    "A small bird flew over them and sang.",
    "{hero} told {friend} a story about the {place}.",
    "Near the {place} they saw {other_colored_sight}.",
    '"How far is it?" asked {friend}. "Not far," said {hero}.',
    "They crossed a river and climbed a hill.",
    "The air was cold, so they made a small fire.",
    "{hero} gave {friend} some {meal}.",
    "It began to rain, and they hid in an old cabin.",
    "They slept under the stars and woke with the sun.",
    "{friend} found {found} in the grass and gave it to {hero}.",
    "An old woman showed them the way.",
    "They drank cold water from a well.",
    "{hero} made a map of the way in the sand.",
    "{friend} told a joke, and they both laughed.",
    "They asked everyone they met, but nobody could help.",
    "{friend} wanted to turn back, but {hero} said no.",
    "They sat down near {last_sight} to rest.",
    "{hero} picked some {color} berries, and they tasted sweet.",
    "They heard music from far away and followed it.",
    "{friend} taught {hero} a new game.",
    "They had to jump over a small stream.",
    "The path was narrow, so {hero} went first.",
    "{hero} was hungry, but {friend} still had some {meal}.",
    "They counted the birds in the sky.",
    "{hero} made a wish but did not say it aloud.",
    "{friend} found some {other_color} stones and put them in a bag.",
    "They sang an old song to stay awake.",
)
# How a trouble comes, and the ways out of just that trouble.
TROUBLES: Final[tuple[tuple[Patterns, Patterns], ...]] = (
    (
        (
            "Suddenly a great {trouble} came to the {place}.",
            "But before long, a terrible {trouble} came.",
            "Then a {trouble} came, and {friend} began to cry.",
            "Without warning, a {trouble} closed the road.",
        ),
        (
            "{hero} did not run away but stayed with {friend}.",
            "{hero} and {friend} stayed close together until it was over.",
            "{hero} found a safe place, and they waited there.",
            "{hero} called for help, and everyone came.",
            "{hero} had a good idea, and soon everyone was safe.",
        ),
    ),
    (
        (
            "But then {friend} was lost, and nobody knew where to look.",
            "Suddenly {friend} was nowhere to be seen.",
            "Then {friend} took the wrong path and did not come back.",
        ),
        (
            "{hero} looked for a long time and found {friend} asleep under a tree.",
            "{hero} followed the tracks and found {friend} at last.",
            "{hero} called and called until {friend} answered.",
            "{hero} made a big fire, and {friend} saw the light and came back.",
        ),
    ),
    (
        (
            "But the {thing} was gone, and {friend} was very sad.",
            "But nobody could tell them where the {thing} was.",
            "They looked everywhere, but they could not find the {thing}.",
        ),
        (
            "{hero} did not give up, and in the end they found it.",
            "{hero} looked once more, and there it was.",
            "{hero} asked and asked until somebody knew where it was.",
        ),
    ),
    (
        (
            "But the bridge was broken, and the water was deep.",
            "Then they came to a gate that was locked.",
            "Then a high wall stood in their way.",
        ),
        (
            "{hero} found another way, and {friend} followed.",
            "{hero} thought hard and soon had a good plan.",
            "{hero} went first and then helped {friend}.",
            "Together, {hero} and {friend} found a way to the other side.",
        ),
    ),
    (
        (
            "Then {hero} and {friend} had a fight and stopped talking.",
            "But {friend} became angry and walked away.",
            "Then {hero} told a lie, and {friend} knew it.",
        ),
        (
            '"I am sorry," said {hero}, and {friend} smiled again.',
            "{hero} thought about it all night and said sorry.",
            "{hero} went to {friend}, and they talked until all was well.",
        ),
    ),
    (
        (
            "Then {friend} fell and could not go on.",
            "But {friend} became ill and had to lie down.",
        ),
        (
            "{hero} stayed with {friend} until everything was better.",
            "{hero} ran for help and was back very soon.",
            "{hero} brought water and {meal}, and {friend} felt better.",
        ),
    ),
    (
        (
            "Suddenly they heard a loud noise in the dark.",
            "Then a huge shadow fell on the road.",
            "Then something moved behind them, and {friend} began to shake.",
        ),
        (
            "{hero} was brave and went to look, but nobody was there.",
            "{hero} laughed, because it was only an old cart.",
            "{hero} did not run, and soon the danger was gone.",
        ),
    ),
)
THANKS: Final = (
    "After that, everyone was happy.",
    '"Thank you, my friend," said {friend}.',
    "{friend} gave {hero} {gift} to say thank you.",
    "Everyone near the {place} heard about it and was glad.",
    "Then they ate {meal} and told old stories.",
    "{friend} danced for joy, and {hero} danced too.",
    "After that they had a big party with music and {meal}.",
    '"You are the best friend in the world," said {friend}.',
    "{friend} smiled and promised to help {hero} one day.",
    "Now they knew the secret of the {thing}, and it made them laugh.",
    "The way back was easy, and they sang all the way.",
    "{hero} was proud, and {friend} was happy.",
)
ENDINGS: Final = (
    "{hero} and {friend} became best friends.",
    "From that day on, {hero} was never alone.",
    "{hero} never forgot the {thing}.",
    "And {hero} lived happily ever after.",
    "And every {when}, {hero} and {friend} meet again near the {place}.",
    "And they all lived happily ever after.",
    "And if you go to the {place}, you may still see them there.",
    "So {hero} learned that a friend is worth more than anything else.",
    "That night {hero} slept well and dreamed of the {place}.",
    "And that is how {hero} and {friend} became friends.",
    "Since then, {hero} and {friend} have done everything together.",
    "The {thing} made them smile for many years.",
    "{hero} went home with a warm heart.",
    "To this day, people near the {place} tell this story.",
    "Soon they set out again, but that is another story.",
    "And there was always a place at the table for {friend}.",
)
NEXT_EVENTS: Final = (
    "Some days later, {hero} went to see the {thing} near the {place} and met {friend_introduced}.",
    "The next {season}, {hero} met {friend_introduced} near the {place}, and they talked about "
    "the {thing}.",
    "A week later, {friend_introduced} came from the {place} with news about the {thing}.",
    "But {hero} wanted to learn about the {thing}, and {friend_introduced} near the {place} knew "
    "more.",
    "Soon after that, {friend_introduced} asked {hero} to look for the {thing} near the {place}.",
    "A year later, {hero} went to the {place} with {friend_introduced} to find the {thing}.",
    "Then {hero} had to go to the {place} for the {thing}, and {friend_introduced} came along.",
    "Another time, {hero} was near the {place} and heard {friend_introduced} talk about the "
    "{thing}.",
)
LONG_ENDINGS: Final = (
    "In the end, {hero}, {first_friend} and {friend} became best friends.",
    "{hero} told {first_friend} about {friend}, and soon all of them were friends.",
    "So {hero} found good friends like {first_friend} and {friend}.",
    "And every year {hero}, {first_friend} and {friend} meet again near the {place}.",
    "And {hero}, {first_friend} and {friend} lived happily ever after.",
    "At home, {hero} told everybody about {first_friend} and {friend}.",
)

WEATHERS: Final = ("storm", "flood", "fire", "wind", "fog")
SEASONS: Final = ("spring", "summer", "autumn", "winter")
VIRTUES: Final = ("brave", "kind", "clever", "quiet", "happy")
TIMES: Final = ("morning", "evening", "night", "summer day", "winter day", *DAYS)
MEALS: Final = ("bread", "cheese", "cake", "soup", "honey", "rice", "pie")
SIGHTS: Final = (
    *("tree", "flower", "pond", "bridge", "mill", "cabin", "barn", "church"),
    *("hill", "tent", "ship", "boat", "cart", "fence", "gate", "house"),
)
