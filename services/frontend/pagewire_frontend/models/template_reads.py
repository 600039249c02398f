"""Finds out which values a chat template reads, from its syntax tree."""

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import nodes

_TURNS = "messages"
_KIND_TESTS = {"string", "iterable", "sequence", "mapping"}
_SHOWN_WHOLE = {"tojson", "items", "string", "pprint", "xmlattr"}
"""Filters that show every field."""


EVERY_FIELD = "*"
"""Stands for all fields of a turn, where a template shows turns as a whole."""


@dataclass(frozen=True, slots=True)
class TemplateReads:
    """What a template reads.

    Attributes:
        values: Names of the values that it is given, such as "tools" or "enable_thinking".
        turn_fields: Fields of a turn, such as "content" or "name"; maybe EVERY_FIELD.
        takes_parts, takes_text: Whether the content of a turn may be a list of parts, or a text.
    """

    values: frozenset[str]
    turn_fields: frozenset[str]
    takes_parts: bool = False
    takes_text: bool = True

    def has_turn_field(self, name: str) -> bool:
        """Whether a field of a turn is read."""
        return name in self.turn_fields or EVERY_FIELD in self.turn_fields


def template_reads(tree: nodes.Template, values: frozenset[str]) -> TemplateReads:
    """Return what a template reads, at most: a branch that no request takes counts, too.

    Args:
        tree: The template.
        values: Names of the values that it is given and reads.
    """
    turns = _turn_names(tree)
    names = {
        assignment.target.name
        for assignment in tree.find_all(nodes.Assign)
        if isinstance(assignment.target, nodes.Name) and _is_content(assignment.node, set())
    }
    takes_parts = any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))
    return TemplateReads(
        values,
        frozenset(name for turn, name in _fields(tree) if turn in turns),
        takes_parts,
        # Character by character a text would be lost without a word.
        takes_text=not takes_parts or _asks_for_kind(tree, names),
    )


def _asks_for_kind(tree: nodes.Template, names: set[str]) -> bool:
    """Return whether a content is asked whether it is a text, or perhaps one."""
    return any(
        test.name in _KIND_TESTS
        and (isinstance(test.node, nodes.Name) or _is_content(test.node, names))
        for test in tree.find_all(nodes.Test)
    )


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    """Return whether an expression is the content of a turn, or a selection of its parts.

    Args:
        names: Of values that are contents.
    """
    while isinstance(node, nodes.Filter) and node.node is not None:
        node = node.node
    return _field(node) == "content" or (isinstance(node, nodes.Name) and node.name in names)


def _turn_names(tree: nodes.Template) -> set[str]:
    """Return the names of lists of turns and of single turns."""
    reached_from: dict[str, set[str]] = {}
    for target, source in _bindings(tree):
        for name in _names(source):
            reached_from.setdefault(name, set()).add(target)
    known, new = {_TURNS}, [_TURNS]
    while new:
        reached = reached_from.get(new.pop(), set()) - known
        known |= reached
        new += reached
    return known


def _bindings(tree: nodes.Template) -> Iterator[tuple[str, nodes.Node]]:
    """Yield names and the expressions that they are set from: of loops, and of assignments of a
    part of something, such as `messages[1:]`."""
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name):
            yield loop.target.name, loop.iter
    for assignment in tree.find_all(nodes.Assign):
        target, source = assignment.target, assignment.node
        if isinstance(target, nodes.Name) and isinstance(source, nodes.Getitem | nodes.Name):
            yield target.name, source
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    for call in tree.find_all(nodes.Call):
        macro = macros.get(call.node.name) if isinstance(call.node, nodes.Name) else None
        if macro is not None:
            for parameter, value in zip(macro.args, call.args, strict=False):
                yield parameter.name, value


def _fields(tree: nodes.Template) -> Iterator[tuple[str, str]]:
    """Yield each use of a field: the name of what has it, and the field."""
    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        field = _field(node)
        if field is not None and isinstance(node, nodes.Getattr | nodes.Getitem):
            shown = EVERY_FIELD if field == "items" else field
            yield from ((name, shown) for name in _roots(node.node))
    for shown_whole in tree.find_all(nodes.Filter):
        if shown_whole.name in _SHOWN_WHOLE and shown_whole.node is not None:
            yield from ((name, EVERY_FIELD) for name in _roots(shown_whole.node))
    for call in tree.find_all(nodes.Call):
        # turn.get("name")
        if isinstance(call.node, nodes.Getattr) and call.node.attr == "get" and call.args:
            key = call.args[0]
            if isinstance(key, nodes.Const) and isinstance(key.value, str):
                yield from ((name, key.value) for name in _roots(call.node.node))
    for test in tree.find_all(nodes.Compare):
        # "name" in turn
        if isinstance(test.expr, nodes.Const) and isinstance(test.expr.value, str):
            for operand in test.ops:
                yield from ((name, test.expr.value) for name in _roots(operand.expr))


def _field(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value if isinstance(node.arg.value, str) else None
    return None


def _roots(node: nodes.Node) -> Iterator[str]:
    """Yield the name of a value, or of the list in `turns[0]`; nothing for `turn.content`."""
    if isinstance(node, nodes.Name):
        yield node.name
    elif isinstance(node, nodes.Getitem) and _field(node) is None:
        yield from _roots(node.node)


def _names(node: nodes.Node) -> set[str]:
    """Return the names whose values, or parts of them, an expression has."""
    if _field(node) is not None:
        return set()
    if isinstance(node, nodes.Name):
        return {node.name}
    return {name for child in node.iter_child_nodes() for name in _names(child)}
