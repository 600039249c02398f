"""How good greedy stories are: requests in the wordings of the corpus, and in wordings outside
it."""

import random
from dataclasses import dataclass
from typing import Final

from tokenizers import Tokenizer

from builtin_recipe.corpus import corpus_vocabulary, text_words
from builtin_recipe.evaluation import greedy_answers
from builtin_recipe.network import Decoder
from builtin_recipe.story_requests import draw_cast, draw_request

_SEED: Final = 4242
MIN_WORDS: Final = 20
_NO_TOPIC: Final = frozenset({"a", "an", "the", "and", "in", "at", "to", "who", "is", "near"})

# Frames, adjectives, topics and letter cases that no template of the corpus gives.
OTHER_WORDINGS: Final = (
    "Tell me a tale regarding a lion.",
    "Tell me a wonderful tale about a lion.",
    "Please, I would so much like to hear a story about a fox.",
    "Could you please tell me a really short story about a cat?",
    "Would you tell us a tale about two friends?",
    "Narrate a story about a brave knight.",
    "Compose a short story about an owl.",
    "Share a story about a turtle with me.",
    "Write an exciting adventure about a pirate.",
    "Write a story in which a dog finds a key.",
    "Write a story where a cat meets a mouse.",
    "Write three sentences of a story about a bear.",
    "I am bored, tell me a story.",
    "It is late. Tell me a bedtime story about a bear.",
    "My daughter cannot sleep, tell her a story about a unicorn.",
    "How about a story about a penguin?",
    "Got any stories about dragons?",
    "Let's have a story about a robot.",
    "Let me hear a tale of a king.",
    "tell a tale now",
    "tell me a story of a boy who is named tom",
    "TELL ME A STORY ABOUT A FOX.",
    "story please",
    "fairy tale about a witch please",
    "Story time! Tell me about a rabbit.",
    "Begin a story about a sailor.",
    "Start a story about a whale.",
    "Give us an adventure about a wolf and a sheep.",
    "Can I get a short story about a frog?",
    "Can we have a story about a horse?",
    "What is a good story about a queen?",
    "Do you want to tell me a story about a monkey?",
    "Please tell a tale about a day at the sea.",
    "Tell me a story about a day at school.",
    "Tell me a story about a lonely lighthouse.",
    "Tell me a story about an old train that dreams.",
    "Tell me a story about a fox, a bear and an owl.",
    "Tell me a story about love.",
    "Tell me a story about the first snow of winter.",
    "Tell me a story about a girl who could fly.",
    "Tell me a story about a mouse that stole the cheese.",
    "Tell me a scary story about a ghost.",
    "Tell me a sad story about a tree.",
    "Tell me a children's story about a duck.",
    "Tell me your favorite story.",
    "I'd like you to write a story about a snail.",
    "Write a story of about 50 words about a bird.",
    "Write a very short story about a spider and a bee.",
)


@dataclass(frozen=True, slots=True)
class StoryScore:
    """How many greedy stories pass each check, out of `num_stories`."""

    num_stories: int
    num_stopped: int
    num_long_enough: int
    num_known_words: int
    num_all_three: int
    num_on_topic: int

    def rows(self, has_topics: bool) -> list[tuple[str, int]]:
        """Return the checks by name; the topic counts only where one was asked for."""
        rows = [
            ("stops by itself", self.num_stopped),
            (f"at least {MIN_WORDS} words", self.num_long_enough),
            ("every word in the vocabulary", self.num_known_words),
            ("all three", self.num_all_three),
        ]
        return [*rows, ("names what was asked for", self.num_on_topic)] if has_topics else rows


def score_answers(
    answers: list[tuple[str, bool]], topics: list[list[str]], vocabulary: set[str]
) -> StoryScore:
    """Check answers (text, whether it stopped); `topics` holds the words asked for, per answer."""
    said = [text_words(answer) for answer, _ in answers]
    stopped = [is_stopped for _, is_stopped in answers]
    long_enough = [len(words) >= MIN_WORDS for words in said]
    known = [vocabulary.issuperset(words) for words in said]
    on_topic = [
        any(word in words for word in topic) for topic, words in zip(topics, said, strict=True)
    ]
    return StoryScore(
        num_stories=len(answers),
        num_stopped=sum(stopped),
        num_long_enough=sum(long_enough),
        num_known_words=sum(known),
        num_all_three=sum(map(all, zip(stopped, long_enough, known, strict=True))),
        num_on_topic=sum(on_topic),
    )


def score_stories(network: Decoder, tokenizer: Tokenizer, num_stories: int = 100) -> StoryScore:
    """Ask in the wordings of the corpus, in unseen combinations with a topic."""
    vocabulary, rng = set(corpus_vocabulary()), random.Random(_SEED)
    requests: list[str] = []
    topics: list[list[str]] = []
    while len(requests) < num_stories:
        topic = draw_cast(rng, has_topic=True).topic
        assert topic is not None
        named = [word for word in text_words(topic) if word not in _NO_TOPIC]
        if vocabulary.issuperset(named):
            requests.append(draw_request(rng, topic))
            topics.append(named)
    return score_answers(greedy_answers(network, tokenizer, requests), topics, vocabulary)


def score_other_wordings(network: Decoder, tokenizer: Tokenizer) -> StoryScore:
    """Ask in `OTHER_WORDINGS`; whether the topic is met is not judged."""
    answers = greedy_answers(network, tokenizer, list(OTHER_WORDINGS))
    return score_answers(answers, [[] for _ in answers], set(corpus_vocabulary()))
