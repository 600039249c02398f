"""Loads transformers' tokenizer of a model for scripts; nothing else here needs transformers."""

import importlib
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_folder import resolve_model


def load_tokenizer(path: str) -> Any:
    """Return the tokenizer in a folder, or of a hub id. Raises StartupError when it cannot be."""
    folder = resolve_model(path, has_weights=False)
    try:
        # By name: the command line must not import transformers, which imports torch.
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise StartupError("get_tokenizer needs transformers: pip install transformers") from error
    return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
