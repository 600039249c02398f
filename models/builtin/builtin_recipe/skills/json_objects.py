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
    ),
    held_out=(
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
