"""Converts values of keyword arguments, written in Python or JSON, to JSON text."""

import ast
import json
import warnings
from typing import Any, Final, NoReturn

from pagewire_frontend.message.call_object import json_text
from pagewire_frontend.message.json_scanner import MAX_DEPTH

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_JSON_WORDS: Final = {"true": True, "false": False, "null": None}


class ValueScanner:
    """Finds the end of a value: the first comma or bracket outside of it. `is_broken` once its
    brackets cannot match."""

    def __init__(self) -> None:
        self.is_broken = False
        self._closing: list[str] = []
        self._quote = ""
        self._is_escaped = False

    def feed(self, text: str) -> int | None:
        """Return the position in `text` of the character that ends the value; None while it goes
        on."""
        for index, char in enumerate(text):
            if self._quote:
                self._in_string(char)
            elif char in "\"'":
                self._quote = char
            elif char in _CLOSING:
                self._closing.append(_CLOSING[char])
                self.is_broken = len(self._closing) > MAX_DEPTH
            elif char in ")]}" and self._closing:
                self.is_broken = self._closing.pop() != char
            elif char in "),]}" and not self._closing:
                return index
            if self.is_broken:
                return None
        return None

    def _in_string(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == self._quote:
            self._quote = ""
        elif char == "\n":
            # A string of either language has one line.
            self.is_broken = True


def value_as_json(text: str) -> str | None:
    """Return JSON text for a value: unchanged if it is JSON, else read as a Python literal. None if
    it is neither."""
    text = text.strip()
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _literal_as_json(text)
    return text


def _literal_as_json(text: str) -> str | None:
    try:
        with warnings.catch_warnings():
            # Invalid escapes such as "\d" only warn.
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
        return json_text(_value(tree.body))
    # Python 3.11 may report too deep a tree as a SystemError.
    except (ValueError, SyntaxError, RecursionError, MemoryError, SystemError):
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return _finite(node.value)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {_key(key): _value(item) for key, item in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    if isinstance(node, ast.Name) and node.id in _JSON_WORDS:
        return _JSON_WORDS[node.id]
    raise ValueError(f"no literal: {ast.dump(node)}")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("keys of objects are texts")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and value - value != 0.0:
        raise ValueError("no finite number")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
