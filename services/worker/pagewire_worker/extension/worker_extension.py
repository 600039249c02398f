"""The extension of a worker (--worker-extension-cls): a class of its operator, whose public methods
can be called in every rank. Without that flag no call reaches any code."""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch

from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.model_files.config import read_config

_FLAG: Final = "--worker-extension-cls"
_FIELD: Final = "worker_extension_cls"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What an extension finds in its attributes, by these names.

    Attributes:
        rank, num_ranks: Of this worker.
        model_path: Folder of the checkpoint.
        model_config: Content of its config.json, not to be changed.
        device, dtype: Of the model.
    """

    rank: int
    num_ranks: int
    model_path: Path
    model_config: Mapping[str, Any]
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(
        cls, folder: Path, device: torch.device, dtype: torch.dtype, *, rank: int, num_ranks: int
    ) -> "RankFacts":
        """Return the facts of a rank of a model. Raises StartupError."""
        return cls(
            rank=rank,
            num_ranks=num_ranks,
            model_path=folder,
            model_config=MappingProxyType(read_config(folder)),
            device=device,
            dtype=dtype,
        )


class WorkerExtension:
    """The object of an extension in one rank.

    Args:
        name: MODULE.CLASS.

    Raises:
        StartupError: There is no such class, or it cannot be made without arguments.
    """

    def __init__(self, name: str, facts: RankFacts) -> None:
        self._name = name
        kind = _class_of(name)
        self._methods = public_methods(kind)
        if not self._methods:
            raise StartupError(f"{_FLAG}: {name} has no public method", field=_FIELD)
        try:
            self._object = kind.__new__(kind)
            # Before __init__, which may read them.
            for fact in RankFacts.__slots__:
                setattr(self._object, fact, getattr(facts, fact))
            self._object.__init__()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise StartupError(f"{_FLAG}: {name} cannot be made: {reason}", field=_FIELD) from error

    def check(self, method: str) -> None:
        """Raise InvalidRequestError unless there is such a public method."""
        if method not in self._methods:
            known = ", ".join(sorted(self._methods))
            raise InvalidRequestError(
                f"method: {self._name} has no public method {method!r}; there are: {known}",
                field="method",
            )

    def call(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a method, and return its result, a value of JSON. Raises what it raises."""
        self.check(method)
        function: Callable[..., Any] = getattr(self._object, method)
        return function(*args, **kwargs)


def require_extension(name: str) -> None:
    """Import an extension before a model is loaded; none for "". Raises StartupError."""
    if name:
        _class_of(name)


def public_methods(kind: type) -> frozenset[str]:
    """Return the names of the methods that a class or one of its bases defines, without those that
    begin with an underscore."""
    return frozenset(
        name
        for base in kind.__mro__
        if base is not object
        for name, value in vars(base).items()
        if not name.startswith("_")
        and (callable(value) or isinstance(value, staticmethod | classmethod))
        and not isinstance(value, type)
    )


def read_arguments(args_json: str, kwargs_json: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call. Raises InvalidRequestError."""
    try:
        args, kwargs = json.loads(args_json or "[]"), json.loads(kwargs_json or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"args_json, kwargs_json: {error}", field="args_json") from error
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InvalidRequestError(
            "args_json must be an array and kwargs_json an object", field="args_json"
        )
    return args, kwargs


def _class_of(name: str) -> Any:
    module_name, _, class_name = name.rpartition(".")
    if not module_name or not class_name:
        raise StartupError(f"{_FLAG}: {name!r} is no MODULE.CLASS", field=_FIELD)
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:
        raise StartupError(f"{_FLAG}: {name}: {error}", field=_FIELD) from error
    if not isinstance(found, type):
        raise StartupError(f"{_FLAG}: {name} is no class", field=_FIELD)
    return found
