"""Shows how many prompts of a call have been answered."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def shown_progress(total: int, is_shown: bool) -> Iterator[Callable[[], object]]:
    """Yield a function to call after each prompt; tqdm is imported only to show a bar."""
    if not is_shown:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc="Processed prompts", unit="prompt") as bar:
        yield lambda: bar.update(1)
