"""What a chat template reads: values that it is given, and fields of turns."""

import pytest

from pagewire_frontend.chat.unread import unread_arguments, unread_effort, unread_name
from pagewire_frontend.models.chat_template import ChatTemplate


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, {})


@pytest.mark.parametrize(
    ("source", "is_read"),
    [
        ("{{ reasoning_effort }}", True),
        (
            "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'a' %}{% endif %}",
            True,
        ),
        ("{% set effort = reasoning_effort or 'medium' %}{{ effort }}", True),
        ("{% macro m() %}{{ reasoning_effort }}{% endmacro %}{{ m() }}", True),
        ("{% for reasoning_effort in messages %}{{ reasoning_effort.role }}{% endfor %}", False),
        ("{# reasoning_effort #}reasoning_effort", False),
    ],
)
def test_values_that_are_read(source: str, is_read: bool) -> None:
    found = template(source)
    assert unread_effort("low", found) is not is_read
    assert list(unread_arguments({"reasoning_effort": 1, "x": 2}, found)) == (
        ["x"] if is_read else ["reasoning_effort", "x"]
    )


def test_an_effort_of_none_is_read_where_thinking_has_a_switch() -> None:
    found = template("{% if enable_thinking is defined %}x{% endif %}")
    assert not unread_effort("none", found)
    assert unread_effort("low", found)
    assert not unread_effort(None, found)
    assert unread_effort("low", None)


@pytest.mark.parametrize(
    ("source", "is_read"),
    [
        ("{% for m in messages %}{{ m.name }}{% endfor %}", True),
        ("{% for m in messages %}{{ m['name'] }}{% endfor %}", True),
        ("{% for m in messages[1:] | list %}{{ m.get('name') }}{% endfor %}", True),
        ("{% for m in messages %}{% if 'name' in m %}x{% endif %}{% endfor %}", True),
        ("{% set rest = messages[1:] %}{% for m in rest %}{{ m.name }}{% endfor %}", True),
        ("{{ messages[0].name }}", True),
        ("{% set first = messages[0] %}{{ first.name }}", True),
        ("{% for m in messages %}{{ m | tojson }}{% endfor %}", True),
        ("{% for m in messages %}{% for k, v in m.items() %}{{ v }}{% endfor %}{% endfor %}", True),
        (
            "{% macro show(turn) %}{{ turn.name }}{% endmacro %}"
            "{% for m in messages %}{{ show(m) }}{% endfor %}",
            True,
        ),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        # Of a tool, of a call, of a function.
        ("{% for t in tools %}{{ t.name }}{% endfor %}{{ messages[0].role }}", False),
        (
            "{% for m in messages %}{% for c in m.tool_calls %}{{ c.name }}{{ c.function.name }}"
            "{% endfor %}{% endfor %}",
            False,
        ),
        ("{% for m in messages %}{{ m.function.name }}{{ m.content | tojson }}{% endfor %}", False),
    ],
)
def test_fields_of_turns_that_are_read(source: str, is_read: bool) -> None:
    assert unread_name([None, "Ann"], template(source)) is not is_read
    assert not unread_name([None, ""], template(source))


def test_no_template_reads_nothing() -> None:
    assert unread_name(["Ann"], None)
    assert list(unread_arguments(None, None)) == []


@pytest.mark.parametrize("harm", ["9 ** (9 ** 9)", "'a' * 10 ** 12", "[0] * 10 ** 12"])
def test_nothing_is_computed_to_find_out(harm: str) -> None:
    source = f"{{% if mood %}}{{{{ {harm} }}}}{{% set x = {harm} %}}{{% endif %}}"
    assert "mood" in template(source).reads.values


def test_a_template_of_many_parts_is_read_in_moments() -> None:
    """The names of turns go through a chain of macros, last to first."""
    macros = "".join(
        f"{{% macro m{i}(t{i}) %}}{{{{ m{i + 1}(t{i}) }}}}{{% endmacro %}}" for i in range(2000)
    )
    last = "{% macro m2000(t) %}{{ t.name }}{% endmacro %}"
    found = template(f"{macros}{last}{{% for m in messages %}}{{{{ m0(m) }}}}{{% endfor %}}")
    assert found.reads.has_turn_field("name")
