"""Long work on texts leaves the interpreter to others. Counted in turns of another thread, which
get more the slower the machine is."""

import threading
import time

import pytest

from pagewire_frontend.models.tokenizer import load_tokenizer
from pagewire_shared.identity.model_folder import BUILTIN_NAME, builtin_folder

NUM_CHARS = 600_000
NUM_IDS = 400_000
MIN_TURNS = 8
"""Of what takes a hundred milliseconds at least, with a turn every millisecond."""


@pytest.fixture(scope="module")
def tokenizer():
    folder = builtin_folder(BUILTIN_NAME)
    assert folder is not None
    return load_tokenizer(folder)


class Turns:
    """Counts how often another thread came to run."""

    def __init__(self):
        self.count = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._turn)

    def _turn(self):
        while not self._is_over:
            time.sleep(0.001)
            self.count += 1

    def __enter__(self):
        self._thread.start()
        while not self.count:
            time.sleep(0.001)
        self.count = 0
        return self

    def __exit__(self, *_):
        self._is_over = True
        self._thread.join()


def test_others_run_while_a_long_text_is_encoded(tokenizer):
    text = ("The quick brown fox jumps over the lazy dog. " * (NUM_CHARS // 45 + 1))[:NUM_CHARS]
    with Turns() as turns:
        ids = tokenizer.encode(text, add_special_tokens=False)
        count = turns.count
    assert len(ids) > NUM_CHARS // 20
    assert count >= MIN_TURNS


def test_others_run_while_many_ids_are_decoded(tokenizer):
    ids = tokenizer.encode("The quick brown fox. ", add_special_tokens=False)
    ids = (ids * (NUM_IDS // len(ids) + 1))[:NUM_IDS]
    with Turns() as turns:
        # In pieces or not: a call that keeps the lock lets nobody run before its end.
        before = turns.count
        for _ in range(3):
            text = tokenizer.decode(ids, skip_special_tokens=True)
        count = turns.count - before
    assert text.startswith("The quick")
    assert count >= 3 * MIN_TURNS
