"""How good greedy stories are: requests in the wordings of the corpus, and in wordings that it never
draws.
"""

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

# Frames, adjectives, topics and cases that no template of the corpus gives.
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
    "tell me a tale",
    "tell me a story about a boy named tom",
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
    num_on_topic: int

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Return the checks by name."""
        return [
            ("stops by itself", self.num_stopped),
            (f"at least {MIN_WORDS} words", self.num_long_enough),
            ("every word in the vocabulary", self.num_known_words),
            ("names what was asked for", self.num_on_topic),
        ]


def _score(
    network: Decoder, tokenizer: Tokenizer, requests: list[tuple[str, list[str]]]
) -> StoryScore:
    vocabulary = set(corpus_vocabulary())
    answers = greedy_answers(network, tokenizer, [request for request, _ in requests])
    said = [text_words(answer) for answer, _ in answers]
    return StoryScore(
        num_stories=len(requests),
        num_stopped=sum(is_stopped for _, is_stopped in answers),
        num_long_enough=sum(len(words) >= MIN_WORDS for words in said),
        num_known_words=sum(vocabulary.issuperset(words) for words in said),
        num_on_topic=sum(
            any(word in words for word in named)
            for (_, named), words in zip(requests, said, strict=True)
        ),
    )


def score_stories(network: Decoder, tokenizer: Tokenizer, num_stories: int = 100) -> StoryScore:
    """Ask in the wordings of the corpus, in unseen combinations with a topic."""
    vocabulary, rng = set(corpus_vocabulary()), random.Random(_SEED)
    requests: list[tuple[str, list[str]]] = []
    while len(requests) < num_stories:
        topic = draw_cast(rng, has_topic=True).topic
        assert topic is not None
        named = [word for word in text_words(topic) if word not in _NO_TOPIC]
        if vocabulary.issuperset(named):
            requests.append((draw_request(rng, topic), named))
    return _score(network, tokenizer, requests)


def score_other_wordings(network: Decoder, tokenizer: Tokenizer) -> StoryScore:
    """Ask in `OTHER_WORDINGS`; on topic is an answer with any longer word of the request."""
    vocabulary = set(corpus_vocabulary())
    requests = [
        (wording, [word for word in text_words(wording) if word in vocabulary - _NO_TOPIC])
        for wording in OTHER_WORDINGS
    ]
    return _score(network, tokenizer, requests)
