"""Scans JSON text while it arrives and finds where it ends or breaks. Keeps no text.

Libraries that read half a document (jiter, ijson) return its values. They do not return how many
characters of a piece belong to it, which is needed to pass arguments on.
"""

from typing import Final

MAX_DEPTH: Final = 64

_SPACE = " \t\n\r"
_ESCAPES = '"\\/bfnrt'
_HEX = "0123456789abcdefABCDEF"
_DIGITS = "0123456789"
_WORDS = {"t": "rue", "f": "alse", "n": "ull"}

# A number is in one of these states (RFC 8259, section 6); the first of each row is the state.
_NUMBER: dict[str, tuple[tuple[str, str], ...]] = {
    "minus": (("0", "zero"), ("123456789", "whole")),
    "zero": ((".", "point"), ("eE", "exponent")),
    "whole": ((_DIGITS, "whole"), (".", "point"), ("eE", "exponent")),
    "point": ((_DIGITS, "fraction"),),
    "fraction": ((_DIGITS, "fraction"), ("eE", "exponent")),
    "exponent": (("+-", "sign"), (_DIGITS, "power")),
    "sign": ((_DIGITS, "power"),),
    "power": ((_DIGITS, "power"),),
}
_WHOLE_NUMBERS = ("zero", "whole", "fraction", "power")


class JsonScanner:
    """Scans one object or list, as defined by RFC 8259.

    Attributes:
        is_complete: The object or list has ended.
        is_broken: The next character cannot follow.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self.is_broken = False
        self._stack: list[str] = []
        self._expects = "value"
        self._word = ""
        self._num_hex = 0
        self._is_key = False

    def feed(self, text: str) -> int:
        """Return how many characters belong to the value; fewer than given once it is over."""
        for index, char in enumerate(text):
            if self.is_complete:
                return index
            if not self._take(char):
                self.is_broken = True
                return index
        return len(text)

    def _take(self, char: str) -> bool:
        step = _STEPS.get(self._expects)
        if step is not None:
            return step(self, char)
        # A number ends where another character follows.
        for chars, state in _NUMBER[self._expects]:
            if char in chars:
                self._expects = state
                return True
        if self._expects not in _WHOLE_NUMBERS:
            return False
        self._expects = "after"
        return self._after(char)

    def _value(self, char: str) -> bool:
        if char in _SPACE:
            return bool(self._stack)
        if char in "{[":
            self._stack.append(char)
            self._expects = "first key" if char == "{" else "first item"
            return len(self._stack) <= MAX_DEPTH
        if not self._stack:
            return False
        if char == '"':
            self._is_key, self._expects = False, "string"
        elif char in _WORDS:
            self._word, self._expects = _WORDS[char], "word"
        elif char == "-":
            self._expects = "minus"
        elif char in _DIGITS:
            self._expects = "zero" if char == "0" else "whole"
        else:
            return False
        return True

    def _first_item(self, char: str) -> bool:
        return self._close(char) if char == "]" else self._value(char)

    def _first_key(self, char: str) -> bool:
        return self._close(char) if char == "}" else self._key(char)

    def _key(self, char: str) -> bool:
        if char == '"':
            self._is_key, self._expects = True, "string"
            return True
        return char in _SPACE

    def _colon(self, char: str) -> bool:
        if char == ":":
            self._expects = "value"
            return True
        return char in _SPACE

    def _after(self, char: str) -> bool:
        if char == ",":
            self._expects = "key" if self._stack[-1] == "{" else "value"
            return True
        return char in _SPACE or self._close(char)

    def _close(self, char: str) -> bool:
        if self._stack[-1] + char not in ("{}", "[]"):
            return False
        self._stack.pop()
        self._expects = "after"
        self.is_complete = not self._stack
        return True

    def _string(self, char: str) -> bool:
        if char == '"':
            self._expects = "colon" if self._is_key else "after"
        elif char == "\\":
            self._expects = "escape"
        return char >= " "

    def _escape(self, char: str) -> bool:
        self._expects, self._num_hex = ("hex", 4) if char == "u" else ("string", 0)
        return char == "u" or char in _ESCAPES

    def _hex(self, char: str) -> bool:
        self._num_hex -= 1
        if not self._num_hex:
            self._expects = "string"
        return char in _HEX

    def _in_word(self, char: str) -> bool:
        is_next = char == self._word[0]
        self._word = self._word[1:]
        if not self._word:
            self._expects = "after"
        return is_next


_STEPS = {
    "value": JsonScanner._value,
    "first item": JsonScanner._first_item,
    "first key": JsonScanner._first_key,
    "key": JsonScanner._key,
    "colon": JsonScanner._colon,
    "after": JsonScanner._after,
    "string": JsonScanner._string,
    "escape": JsonScanner._escape,
    "hex": JsonScanner._hex,
    "word": JsonScanner._in_word,
}
