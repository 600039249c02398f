"""The wordings of small talk: greetings, thanks, questions about the model itself, each kind with
its one answer; it draws nothing.
"""

from dataclasses import dataclass
from typing import Final

from builtin_recipe.wording import Wordings


@dataclass(frozen=True, slots=True)
class Talk:
    """An answer, and what users say to get it."""

    answer: str
    wordings: Wordings


_GREETING: Final = Talk(
    "Hello! How can I help you?",
    Wordings(
        trained=(
            # The bare words are what users greet with most.
            *("hi.", "hello.", "hey.") * 3,
            "hello[| there| again| you| everyone| my friend| model| assistant].",
            "hi[| there| again| you| everyone| friend].",
            "hey[| there| you| again].",
            "good [morning|evening|day|afternoon][| to you| my friend].",
            "hello hello.",
            "hi hi.",
            "hello, [are you there|can you hear me|is anyone there]?",
            "hi, [it is me|I am back|I am here].",
            "[hello|hi], nice to meet you.",
            "greetings.",
            *("hello, hello, is anybody home?", "hi, I am new here.", "good to see you."),
            *("hey hey.", "welcome back."),
            *("hey friend.", "hello to you.", "hi, good morning.", "hello, good evening."),
            *("hey hello.", "hi, nice to see you.", "greetings, my friend."),
            *("hello, it has been a long time.", "long time no see.", "I greet you."),
            "[hello|hi|hey] to [you all|everybody].",
            "[hello|hi|hey] [computer|robot|dear model|Pagewire].",
        ),
        held_out=(
            *("hello world.", "I wanted to say hi.", "hi, can we talk?", "pleased to meet you."),
            *("hello, do you have a minute?", "hey, it is good to be back."),
            "hi, what a nice day.",
        ),
    ),
)
_SELF: Final = Talk(
    "I am the small built-in model of Pagewire.",
    Wordings(
        trained=(
            "[|hello, |hi, |hey, ][who|what] are you?",
            "[who|what] are you[ really| exactly|, please]?",
            "what is your name[|, please]?",
            "what are you called?",
            "do you have a name?",
            "tell me your name.",
            "tell me who you are.",
            "introduce yourself.",
            "are you [a robot|a human|a person|a machine|a computer|a program|an AI|real]?",
            "are you [a model|a chatbot|an assistant|ChatGPT|Claude|Qwen]?",
            "which model are you?",
            "what model is this?",
            "who am I talking to?",
            "tell me about yourself.",
            "what kind of [model|robot|machine|assistant] are you?",
            "who is this?",
            "what should I call you?",
            *("what sort of program are you?", "do you go by a name?", "who is there?"),
            *("who is talking to me?", "describe yourself."),
            *("may I ask who you are?", "say who you are.", "can you introduce yourself?"),
            *("what do people call you?", "am I talking to a [robot|human|machine]?"),
            *("is this a [robot|machine|model]?", "tell me what you are."),
            *("can you tell me your name?", "[explain|say] what you are."),
            *("who [is on the other side|answers me here]?", "I do not know you. Who are you?"),
            "are you [a bot|a language model|the built-in model]?",
        ),
        held_out=(
            *("and you are?", "your name?", "I want to know who you are."),
            *("who am I chatting with?", "are you human or a machine?"),
            *("which program am I using?", "is there a person behind this?"),
            "can you say something about yourself?",
        ),
    ),
)
_ABILITIES: Final = Talk(
    "I can tell stories, copy and reverse lists, look things up, count, add and make JSON.",
    Wordings(
        trained=(
            "[|hello, |hi, ]what can you do[| for me|, please| here| exactly]?",
            "how can you help[| me]?",
            "what [are you able to|do you] do?",
            "what are you good at?",
            "what can I ask[| you]?",
            "what can I do [here|with you]?",
            "what do you know how to do?",
            "what are your [skills|abilities]?",
            "help.",
            "[help me|I need help|can you help me][|, please].",
            "list your skills.",
            "tell me what you can do.",
            "how do I use you?",
            "show me what you can do.",
            *("what tasks can you do?", "what else can you do?", "how do you work for me?"),
            *("give me a list of your skills.", "what are you made for?"),
            *("what are you able to do for me?", "what skills do you have?"),
            *("which things can you do?", "what can you help me with?", "please help me."),
            *("tell me your skills.", "what may I ask you?", "explain your skills."),
            *("what sort of [questions|tasks] do you [answer|take]?", "let me see your skills."),
            "is there anything you do well?",
        ),
        held_out=(
            *("what can I use you for?", "what are you useful for?"),
            *("name some things you can do.", "I wonder what you can do."),
            *("what is possible with you?", "I do not know what to ask you."),
            "could you help me with something?",
        ),
    ),
)
_WELCOME: Final = Talk(
    "You are welcome!",
    Wordings(
        trained=(
            "thank you[| very much| so much| again|, model|, my friend| for your help| for that].",
            "thanks[| a lot| again| so much| for your help| for that|, my friend].",
            "[great|good|perfect|ok|nice], [thanks|thank you].",
            "many thanks.",
            "that was helpful, [thanks|thank you].",
            "I thank you.",
            *("thanks and thanks again.", "a big thank you.", "thank you, that is all I need."),
            *("I want to thank you.", "thanks, you helped me."),
            *("thank you a lot.", "thanks, that was great.", "oh, thank you.", "thanks very much."),
            *("many thanks to you.", "[wonderful|very good], thank you.", "[wow|ah], thanks."),
            *("my thanks to you.", "let me thank you[| for this]."),
            *("[that is|this was] all, thank you.", "thank you for [helping|helping me|the help]."),
        ),
        held_out=(
            *("I appreciate it.", "thank you for everything.", "I am very grateful[| to you]."),
            *("thanks for the answer.", "that is very kind of you, thank you."),
            "you were a big help, thanks.",
        ),
    ),
)
_WELL: Final = Talk(
    "I am fine, thank you.",
    Wordings(
        trained=(
            "[|hello, |hi, |hey, ]how are you[| today| doing| now| this morning]?",
            "how are you [doing|feeling] today?",
            "how do you feel[| today]?",
            "how is it going?",
            "how are things?",
            "are you [well|fine|ok|good|all right]?",
            "what is up?",
            "how is your day?",
            *("how have you been?", "is everything all right with you?", "how goes it?"),
            *("are you doing well?", "how was your day?"),
            *("good morning, how are you?", "are you feeling well?", "how are you, my friend?"),
            *("and how are you?", "how do you do?", "how are things today?"),
            *("how is [everything|it all]?", "what's up?"),
            *("how [has|was] your [morning|week|day][| so far]?", "do you feel [well|good|fine]?"),
        ),
        held_out=(
            *("how is life?", "I hope you are well.", "are you having a good day?"),
            *("how are you getting on?", "tell me how you are.", "everything good?"),
        ),
    ),
)
_GOODBYE: Final = Talk(
    "Goodbye!",
    Wordings(
        trained=(
            "goodbye[| for now| my friend].",
            "bye[| bye| for now| then].",
            "good night.",
            "see you[| later| soon| tomorrow].",
            "[thanks|thank you|ok], [bye|goodbye].",
            "I have to go[| now].",
            "[I am leaving|I must go] now[|, bye].",
            "that is all, [bye|goodbye].",
            *("have a good [day|night|evening].", "until [tomorrow|next time].", "farewell."),
            *("time to go, bye.", "I am going home now, goodbye."),
            *("bye, see you.", "goodbye and good night.", "ok, see you later."),
            *("I must go, goodbye.", "bye, my friend.", "well, goodbye."),
            *("I am [off|done|finished][| for today], [bye|goodbye].", "bye-bye."),
            *("I wish you a good [day|night|evening].", "it is time to say goodbye."),
        ),
        held_out=(
            *("take care.", "talk to you later.", "let us stop here, goodbye."),
            *("I will come back tomorrow.", "sleep well.", "it was nice talking to you, bye."),
        ),
    ),
)
_AGREED: Final = Talk(
    "OK.",
    Wordings(
        trained=(
            "ok[| then| good].",
            "[yes|no][|, please| of course|, not now].",
            "[sure|fine|right|all right|good|great|nice|perfect|I see|I understand|well].",
            "[ok|yes|good], [fine|I see|I understand|great].",
            "that is [fine|good|right|ok|great].",
            "never mind.",
            "sounds good.",
            "no problem.",
            *("yes, that is right.", "that works[| for me].", "okay.", "as you like."),
            *("no, that is all.", "very well."),
            *("ok, that is good.", "yes, sure.", "no, never mind.", "all right then."),
            *("fine, I see.", "great, that is right.", "[I agree|agreed]."),
            *("[true|correct|indeed].", "do as you [want|wish].", "let us [do that|leave it]."),
        ),
        held_out=(
            *("got it.", "that makes sense.", "good to know.", "of course.", "yes, exactly."),
            "it does not matter.",
        ),
    ),
)
_PRAISED: Final = Talk(
    "Thank you!",
    Wordings(
        trained=(
            "you are [great|good|nice|smart|clever|kind|funny|helpful|the best|very good].",
            "[well done|good job|good work|nice work|great job].",
            "I like [you|talking to you|your answers|your stories].",
            "I love [you|your stories|this model].",
            "that was [great|very good|perfect|a good answer|a nice story].",
            "you did [well|a good job].",
            "what a [good|nice|smart] [model|answer|story].",
            *("[excellent|amazing|wonderful|impressive].", "this is great work.", "bravo."),
            *("you answered very well.", "you make me happy."),
            *("you are a [good|great|nice] model.", "that is a very good answer."),
            *("you do great work.", "I really like you.", "your answer was perfect."),
            *("you are so [smart|kind|clever].", "I am [happy|pleased] with [you|your answer]."),
            "keep up the good work.",
            "the [story|answer|list] [is|was] [great|wonderful|very nice].",
            "you [always help|never fail].",
        ),
        held_out=(
            *("I am [very|really] impressed.", "you are my favorite model.", "that was well said."),
            *("I enjoy talking to you.", "nobody answers better than you."),
            "such a clever answer.",
        ),
    ),
)
TALKS: Final = (_GREETING, _SELF, _ABILITIES, _WELCOME, _WELL, _GOODBYE, _AGREED, _PRAISED)
