"""Exchanges that turn a sentence into a JSON object with the keys that the request names, in the
order it names them; the sentence holds every value.
"""

import json
import random
import re
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.skills.json_sentences import draw_told_facts
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import capitalized

_LINE_START: Final = re.compile(r"\n[a-z]")

# {keys} is the list of keys, {text} the sentence bare or set apart, {quoted} the same in quotes.
_REQUESTS: Final = Wordings(
    keywords="json",
    trained=(
        "[turn|convert|change|make] this[ sentence| text|] into [JSON|a JSON object] with the keys"
        " {keys}: {text}",
        "[turn|convert] [the sentence |the text |]{quoted} into JSON with [the keys|keys] {keys}.",
        "extract JSON ({keys}): {text}",
        "extract [JSON|a JSON object] with [the keys|the fields|keys] {keys}: {text}",
        "extract {keys} [as JSON|into JSON|in JSON] [from this|from the sentence|from]: {text}",
        "{text}\n[write|give|return|show] [that|this] as [a JSON object|JSON] with"
        " [the keys|keys|the fields] {keys}.",
        "{text}\n[extract|return|give me] {keys} as JSON.",
        "make [a JSON object|JSON] with[ the keys| the fields|] {keys} from: {text}",
        "[answer|reply] in JSON with the keys {keys}. {text}",
        "[return|give me|write] [JSON|a JSON object] with [the keys|the fields] {keys}"
        " [for|from|for this sentence|from this text]: {text}",
        "JSON with [keys|the keys|the fields] {keys}: {text}",
        "JSON, keys {keys}: {text}",
        "keys: {keys}\n[text|sentence]: {text}\nJSON:",
        "[text|sentence]: {text}\nkeys: {keys}\n[JSON:|write JSON.|make JSON.]",
        "{text}\nJSON with the keys {keys}[:|, please.|]",
        "read [the sentence|this text|this] and [answer with|return|write] [JSON|a JSON object]"
        " that has the keys {keys}: {text}",
        "[can|could] you [turn|convert] {quoted} into JSON with the keys {keys}?",
        "write [this sentence|this] as JSON[ with the keys|, the keys are| and use the keys]"
        " {keys}. {text}",
        "[find|take|get] {keys} [in|from] this [sentence|text] and [return|write] JSON: {text}",
        "[use|with] the keys {keys}, [turn|convert] this[ sentence| text|] into JSON: {text}",
        "parse [this sentence|this text|this] into JSON ({keys}): {text}",
        "here is a [sentence|text]: {text}\n[turn it into|write it as] JSON with the keys {keys}.",
        "I need JSON with the keys {keys} from this [sentence|text]: {text}",
        "from [the sentence |the text |]{quoted}[,|] make JSON with the keys {keys}.",
        "only [answer|return] JSON. Keys: {keys}. [Text|Sentence]: {text}",
        "[fill in|fill] [a JSON object|JSON] with[ the keys|] {keys} from [this|the] text: {text}",
        "[give back|send back|hand me] [JSON|a JSON object|a JSON record] with {keys} for: {text}",
        "[show|represent|encode|store|save] [this|the sentence|the text] as JSON with"
        " [the keys|the fields|keys] {keys}: {text}",
        "[show|represent|encode|store|save] {quoted} [as|in] JSON with [the keys|fields] {keys}.",
        "{text}\n[Create|Build|Make|Form] a JSON [object|record] with [the fields|keys] {keys}.",
        "[create|build up|form|generate|compose] JSON with {keys} [out of|for|from]: {text}",
        "{text}\n[Put|Pack|Bring|Place] [it|this|the facts] into [JSON|a JSON object] with {keys}.",
        "[put|pack] [this|the facts|this text] [in|into] JSON[,| and] use the keys {keys}: {text}",
        "JSON output with [the keys|keys|fields] {keys}[:| for:| for this:] {text}",
        "[as|in] [a JSON record|a JSON object|JSON format] with {keys}: {text}",
        "a JSON[ object| record|] with[ the keys| the fields|] {keys}[, please|]: {text}",
        "{text}\n[As|In|Now] JSON[| please|,| with| with the keys] {keys}",
        "{text}\nThe [keys|fields] are {keys}. [Write|Give me|Return|Show] [JSON|the JSON object].",
        "the keys are {keys}. [The sentence is|The text is|Sentence:] {text}\n[Write|Return] JSON.",
        "the fields are {keys}. [Turn|Put|Make] [this|the text] into [JSON|a JSON object]. {text}",
        "what is [this|the sentence|this text] [as|in] JSON with [the keys|keys] {keys}? {text}",
        "what [is|would be|are] {keys} here? [Answer|Reply] [in|with|as] JSON. {text}",
        "{text}\n[What|Which] JSON [has|comes from] this with [the keys|the fields] {keys}?",
        "[I want|I would like|please give me|we need] [JSON|a JSON object] [for|from|of] this text"
        " with {keys}: {text}",
        "[I want|I need|give me|get me] {keys} in JSON[.|, please.] {text}",
        "[read|take|see] [this|the text]: {text}\n[Give back|Fill in] JSON with the keys {keys}.",
        "[take|read] {quoted} and [make|build|write] JSON with [keys|the fields] {keys}.",
        "[can|could|would] you [write|make|return|build] [JSON|a JSON object] with {keys} for this"
        "[ sentence| text|]? {text}",
        "[input|data|facts]: {text}\n[fields|keys]: {keys}\n[output|JSON|JSON output]:",
        "[fields|JSON fields|JSON keys|wanted]: {keys}\n[input|text|sentence|data]: {text}",
        "[list|note|collect] {keys} [of|from] this [sentence|text] [in|as] JSON: {text}",
        "[create|build] a JSON object with the keys {keys} from [this|the following] text: {text}",
        "{text}\n[put|pack] that into JSON. Use the keys {keys}.",
        "what does this [sentence|text] look like as JSON with the fields {keys}? {text}",
        "I want {keys} from this [text|sentence] as JSON: {text}",
        "[can|could] you give me JSON for this sentence? The keys are {keys}. {text}",
        "as JSON ({keys}): {text}",
        "JSON please, the fields are {keys}. The sentence is: {text}",
        "take {quoted} and [return|write] it as a JSON object that has {keys}.",
        "read this: {text}\nNow write JSON with {keys}.",
        "produce JSON for the text {quoted}, with keys {keys}.",
        "[text|input]: {text}\n[return|extract] the fields {keys} as a JSON object.",
        "[rewrite|translate|express] [this|the text] [to|as|in] JSON[,| with] keys {keys}: {text}",
        "{text}\n[the output|your answer] [must|has to] be JSON with the [keys|fields] {keys}.",
        "[summarize|describe] [this|the sentence] [with|by] [JSON|a JSON object] of {keys}: {text}",
        "{keys} [to|into|as] JSON: {text}",
        "[look at|here comes] {quoted}. [Which|What] JSON has its {keys}?",
        "write a JSON object for this sentence. It should have the keys {keys}. {text}",
        "{text}\nI need this as JSON, and the keys should be {keys}.",
        "how would you write {quoted} as JSON with the keys {keys}?",
        "get me a JSON object with {keys} out of this sentence: {text}",
        "transform this text into JSON with the fields {keys}: {text}",
        "{text}\nturn the sentence above into JSON using the keys {keys}.",
        "tell me {keys} in JSON format: {text}",
        "{text}\nplease answer with a JSON object. Keys: {keys}",
        "my sentence is {quoted} and I want it as JSON with the keys {keys}.",
        "the JSON object needs the keys {keys}. Here is the sentence: {text}",
        "pull {keys} out of this sentence and put them in JSON: {text}",
        "I have a [sentence|note|line of text] and need JSON with the keys {keys}. {text}",
        "I have this note: {text}\n[My program|The app|My script] needs JSON with the keys {keys}.",
        "[my program|my app|our server|the database] only reads JSON. It wants the"
        " [keys|fields] {keys}: {text}",
        "for [my database|my app|a program|my notes], [turn|make|convert] this into JSON with"
        " {keys}: {text}",
        "[my boss|my teacher|a customer] wants {keys} [as|in] JSON. [The note says|The text"
        " is]: {text}",
        "my [boss|teacher] sent me this: {text}\nPlease make JSON of it with the keys {keys}.",
        "[someone|a friend] wrote: {quoted} [Make|Write|Give me] JSON with the keys {keys}.",
        "someone wrote {quoted} on a piece of paper. Save it as JSON with the keys {keys}.",
        "a [friend|man|woman] said {quoted} and I need {keys} from that in JSON.",
        "if you [were to|had to] store {quoted} as JSON with the keys {keys}, what would it be?",
        "if the [keys|fields] are {keys}, what is the JSON for {quoted}?",
        "it would help me to have this as JSON with the keys {keys}: {text}",
        "your [answer|reply|output] should contain only JSON with the keys {keys}. {text}",
        "your [answer|reply] is a JSON object and has the [keys|fields] {keys}. [Here is the"
        " text|Text]: {text}",
        "the [answer|output|result] should be [JSON|one JSON object] with the keys {keys}."
        " Text: {text}",
        "no [words|sentence|text] around it, [just|only] the JSON object with the keys {keys}:"
        " {text}",
        "do not explain. [Just|Only] JSON, with the keys {keys}: {text}",
        "{text}\n[No explanation|No other text], just JSON with the keys {keys}.",
        "{text}\n[Who reads this needs|My program needs|I am after] {keys}, as JSON.",
        "{quoted}\n[Can|Could] [you make|I have|I get] JSON of [this|that] with the keys {keys}?",
        "{quoted}\nThe [keys|fields] I [need|want|use] are {keys}. Format: JSON.",
        "{quoted}: [read|take] the [values|facts] of {keys} from it and [answer|reply] in JSON.",
        "[note|message|line]: {text}\n[wanted|needed]: JSON with {keys}",
        "[structure|format|organize] [this|the text|this note] as JSON with the [keys|fields]"
        " {keys}: {text}",
        "[pick|dig|filter] {keys} out of this [note|line|message] and [answer in|give"
        " me|write] JSON: {text}",
        "[map|match] this [sentence|text] to the [keys|fields] {keys} and [print|return] JSON:"
        " {text}",
        "for each of the keys {keys}, find [the value|what the text says]. [Reply in|Return]"
        " JSON. {text}",
        "for every key of {keys}, put [its value|the right word or number] in a JSON object."
        " Text: {text}",
        "each of {keys} should be a key of [your|the] JSON object. [The text|The sentence]: {text}",
        "[a|one] JSON object, please. [It has|Its keys are|With the keys] {keys}. [It is"
        " about|Text]: {text}",
        "which values do {keys} have in this [sentence|text|note]? [Give|Write|Show] them as"
        " JSON. {text}",
        "what are the values of {keys} in {quoted}? [Use JSON|Answer as JSON].",
        "[do you know|can you show me] how this looks in JSON, with {keys} as keys? {text}",
        "[how does|how would] {quoted} look [as|in] JSON if the keys are {keys}?",
        "what JSON object with the keys {keys} [tells|says] the same as this? {text}",
        "we [collect|store|keep] such notes as JSON with the keys {keys}. [Do it for|The next"
        " one is]: {text}",
        "we only keep {keys} of each note, in JSON. Here is one: {text}",
        "let's make JSON of a sentence. The keys: {keys}. The sentence: {text}",
        "[in my file|in the file], every line is JSON with {keys}. [Write|Make] the line for:"
        " {text}",
        "[prepare|print|output|deliver] [a JSON object|JSON], keys {keys}, for the"
        " [following|next] text: {text}",
        "[copy|move|sort] the facts of this [sentence|note] into JSON under the keys {keys}:"
        " {text}",
        "[from|out of] the [following|next] [sentence|line], [I need|we want] {keys} in a JSON"
        " object: {text}",
        "[after|below] this line [comes|is] a [text|sentence]. Make JSON with the keys"
        " {keys}.\n{text}",
        "[here|below] you [see|find] a text. {text}\n[It has|It tells] {keys}. Write these in"
        " JSON.",
        "[understand|study|check] the [sentence|text] and fill the JSON keys {keys}: {text}",
        "the text [says|tells us]: {text}\nSo what is {keys}? [JSON only|Answer in JSON].",
        "there is [a text|a sentence] to [turn into|make into|write as] JSON. [Use|Take] the"
        " keys {keys}. {text}",
        "you are a [tool|program|parser] that [returns|writes|speaks] JSON. Keys: {keys}."
        " Text: {text}",
        "you [get|read] a text and [return|write] JSON with the [keys|fields] {keys}. The text"
        " is {quoted}.",
        "[name|label|mark] the facts with {keys} and [reply in|write] JSON: {text}",
        "[remember|notice] this: {text}\nTell me {keys} of it as a JSON object.",
        *("{text}\n{keys} as JSON, please.", "{text}\n[Keys|Fields|JSON keys]: {keys}"),
        *("{text}\nJSON: {keys}", "{text}\n-> JSON with {keys}", "{text} -> JSON ({keys})"),
        *("{quoted} -> JSON with the keys {keys}", "{quoted} as JSON, keys {keys}[.|]"),
        *("to JSON ({keys}): {text}", "JSON! [Keys|Fields]: {keys}. [Sentence|Text|Note]: {text}"),
        "format: JSON\nkeys: {keys}\n[text|note|message]: {text}",
        "[format|output]: JSON with {keys}\n[text|input]: {text}",
        "is it possible to get {keys} from this as JSON? {text}",
    ),
    held_out=(
        "make a JSON object from this sentence, with {keys} as keys: {text}",
        "{text}\nGive me that as JSON. Keys: {keys}",
        "can you pull {keys} out of {quoted} and give me JSON?",
        "please convert the following to JSON using the keys {keys}:\n{text}",
        "what would this look like as a JSON object with the fields {keys}? {text}",
        "{text}\n\nPlease write the above as a JSON object. Use the keys {keys}[ in that order|].",
        "text: {text}\nformat: JSON\nkeys: {keys}",
        "read the following sentence and fill in a JSON object with {keys}:\n{text}",
        "how do I write this in JSON? {text}\nThe fields are {keys}.",
        "I'm saving some data. Put {keys} into JSON for me: {text}",
        "I only want JSON back, with the keys {keys}: {text}",
        "I got this message: {text}\nI need {keys} from it in JSON format.",
    ),
)
# A whole list pattern: opening, what stands before and after a key, separator, last one, closing.
_KEY_LISTS: Final = (
    ("", "", ", ", ", ", ""),
    ("", "", ", ", ", ", ""),
    ("", "", ", ", ", ", ""),
    ("", "", ", ", " and ", ""),
    ("", "", ", ", " and ", ""),
    ("", "", ", ", ", and ", ""),
    ("", '"', ", ", " and ", ""),
    ("", '"', ", ", ", ", ""),
    ("[", "", ", ", ", ", "]"),
    ("[", '"', ", ", ", ", "]"),
    ("(", "", ", ", ", ", ")"),
    ("", "", "/", "/", ""),
    ("", "", " ", " ", ""),
    ("", "'", ", ", ", ", ""),
    ("", "", ",", ",", ""),
    ("(", '"', ", ", ", ", ")"),
    ("", "", " and ", " and ", ""),
    ("", "`", ", ", ", ", ""),
    ("", "", " | ", " | ", ""),
    ("<", "", ", ", ", ", ">"),
    ("", "'", ", ", " and ", ""),
    ("{", "", ", ", ", ", "}"),
    ("", "", "; ", "; ", ""),
    ("", '"', ", ", ", and ", ""),
    ("", "", " / ", " / ", ""),
    ("", "", " + ", " + ", ""),
    ("", "*", ", ", ", ", ""),
    ("", '"', " ", " ", ""),
    ("", "", "; ", " and ", ""),
)
_HELD_OUT_KEY_LISTS: Final = (
    ("[", "'", ", ", ", ", "]"),
    ("{", '"', ", ", ", ", "}"),
    ("", "", ", ", " & ", ""),
    ("", "`", ", ", " and ", ""),
    ("(", "", ", ", " and ", ")"),
)


def _key_list(draw: Draw, keys: list[str]) -> str:
    is_new_style = draw.is_held_out and draw.rng.random() < 0.3
    styles = _HELD_OUT_KEY_LISTS if is_new_style else _KEY_LISTS
    opening, quote, separator, last_separator, closing = draw.rng.choice(styles)
    quoted = [f"{quote}{key}{quote}" for key in keys]
    if len(quoted) == 2:
        # The comma of "a, b, and c" goes with three or more.
        last_separator = last_separator.replace(", and", " and")
    *first, last = quoted
    shown = separator.join(first) + last_separator + last if first else last
    return f"{opening}{shown}{closing}"


def _asked_keys(rng: random.Random, keys: list[str]) -> list[str]:
    """Return the keys to ask for: in two of three cases all, in the usual order."""
    form = rng.random()
    if form < 0.67:
        return keys
    if form < 0.84:
        return rng.sample(keys, len(keys))
    return rng.sample(keys, rng.randint(1 if form > 0.97 else 2, len(keys) - 1))


def json_exchanges(draw: Draw) -> list[Exchange]:
    """Return a sentence to turn into a JSON object with named keys."""
    rng = draw.rng
    sentence, facts = draw_told_facts(draw)
    keys = _asked_keys(rng, list(facts))
    pattern = draw.request(_REQUESTS)
    if len(keys) == 1:
        pattern = pattern.replace("keys are", "key is").replace("fields are", "field is")
        pattern = pattern.replace("keys", "key").replace("fields", "field")
        pattern = pattern.replace("{key}", "{keys}")
    if rng.random() < 0.7:
        pattern = _LINE_START.sub(lambda found: found.group().upper(), pattern)
    if pattern.startswith("jSON"):
        pattern = capitalized(pattern)
    layout = rng.random()
    if layout < 0.15:
        pattern = pattern.replace(": {text}", ":\n{text}").replace(". {text}", ".\n{text}")
    elif layout < 0.35:
        pattern = pattern.replace("{text}", "{quoted}")
    quote = '"' if rng.random() < 0.8 else "'"
    question = (
        pattern.replace("{text}", sentence)
        .replace("{quoted}", f"{quote}{sentence}{quote}")
        .replace("{keys}", _key_list(draw, keys))
    )
    answer = {key: facts[key] for key in keys}
    return [Exchange(question, json.dumps(answer))]
