"""Base of the readers of calls that are JSON objects: the states between the first brace of a call
and its last. Each format adds the states around them."""

from abc import abstractmethod
from collections.abc import Collection

from pagewire_frontend.message.call_object import head_of, is_other, whole_call
from pagewire_frontend.message.call_writer import CallWriter
from pagewire_frontend.message.json_scanner import JsonScanner
from pagewire_frontend.message.text_machine import TextMachine, num_held


class ObjectReader(TextMachine):
    """Finds calls behind a marker.

    A call begins once its name is known, is a tool's, and its arguments have begun. From then on
    its arguments are passed on as they come. Earlier text is held back, and is content if no call
    follows.
    """

    marker = ""

    def __init__(self, writer: CallWriter, names: Collection[str]) -> None:
        super().__init__(writer)
        self._names = names
        self._scanner = JsonScanner()
        self._num_scanned = 0

    def _begin(self) -> bool:
        self._state = self._in_text
        return True

    def _in_text(self) -> bool:
        """Take everything up to the next marker as content."""
        at = self._buffer.find(self.marker)
        if at < 0:
            held = 0 if self._is_ended else num_held(self._buffer, self.marker)
            self._writer.say(self._drop(len(self._buffer) - held))
            return False
        self._writer.say(self._drop(at))
        self._hold(len(self.marker))
        self._state = self._behind_marker
        return True

    def _behind_marker(self) -> bool:
        """Expect an object, perhaps behind white space."""
        if not self._skip_space():
            return self._wait()
        if self._buffer[0] == "{":
            self._open_object()
            return True
        return self._give_up()

    def _open_object(self) -> None:
        self._scanner, self._num_scanned = JsonScanner(), 0
        self._state = self._in_object

    def _in_object(self) -> bool:
        """Take the object at the beginning of the buffer."""
        head = head_of(self._buffer, self._names)
        if head is not None:
            name, begin = head
            self._begin_call(name)
            self._drop(begin)
            return True
        if is_other(self._buffer, self._names):
            return self._give_up()
        # The keys come in another order: only the whole object decides.
        self._num_scanned += self._scanner.feed(self._buffer[self._num_scanned :])
        if self._scanner.is_broken:
            return self._give_up()
        if not self._scanner.is_complete:
            return self._wait()
        call = whole_call(self._buffer[: self._num_scanned], self._names)
        if call is None:
            return self._give_up()
        self._begin_call(call[0])
        self._writer.add_arguments(call[1])
        self._drop(self._num_scanned)
        self._state = self._behind_call
        return True

    def _begin_call(self, name: str) -> None:
        self._held = ""
        self._writer.begin_call(name)
        self._scanner = JsonScanner()
        self._state = self._in_arguments

    def _in_arguments(self) -> bool:
        """Pass arguments on up to their last brace. Text that breaks them is content: a call whose
        arguments are cut off never looks whole."""
        self._writer.add_arguments(self._drop(self._scanner.feed(self._buffer)))
        if self._scanner.is_broken:
            self._state = self._in_text
            return True
        if not self._scanner.is_complete:
            return False
        # Scan the rest of the object as if only an empty key had come before.
        self._scanner = JsonScanner()
        self._scanner.feed('{"":0')
        self._state = self._behind_arguments
        return True

    def _behind_arguments(self) -> bool:
        """Drop the rest of the object; where it breaks, the call ends all the same."""
        self._drop(self._scanner.feed(self._buffer))
        if not self._scanner.is_complete and not self._scanner.is_broken:
            return False
        self._state = self._behind_call
        return True

    @abstractmethod
    def _behind_call(self) -> bool:
        """The state behind the last brace of a call."""
