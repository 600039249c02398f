"""Going on with the last turn, against transformers, and what may be passed to a template."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from pagewire_frontend.models.chat_template import ChatTemplate
from pagewire_frontend.models.template_arguments import MAX_ARGUMENTS, checked_arguments
from pagewire_shared.errors import InvalidRequestError

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRIPPING = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}[/]{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
THINKING = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}</>{% endfor %}"
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant"]), st.text(alphabet="ab \n</think>", max_size=9)
    ),
    min_size=1,
    max_size=4,
)


def ours(source, messages):
    return ChatTemplate(source, {}).render(
        messages, add_generation_prompt=False, continue_final_message=True
    )


def theirs(source, messages):
    rendered, _ = render_jinja_template(
        conversations=[[dict(message) for message in messages]],
        chat_template=source,
        continue_final_message=True,
    )
    return rendered[0]


@settings(max_examples=150, deadline=None)
@given(turns=TURNS, source=st.sampled_from([CHATML, STRIPPING, THINKING]))
def test_the_same_as_transformers(turns, source):
    messages = [{"role": role, "content": text} for role, text in turns]
    try:
        expected = theirs(source, messages)
    except ValueError:
        # It also compares the text of the turn, and refuses a template that rewrites it.
        return
    assert ours(source, messages) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CHATML, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nSo "),
        (STRIPPING, "[user] x[/][assistant] So"),
    ],
)
def test_the_turn_is_left_open(source, expected):
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "So "}]
    assert ours(source, messages) == expected
    assert messages[1]["content"] == "So "


def test_a_template_without_the_turn_is_the_requests_fault():
    with pytest.raises(InvalidRequestError) as caught:
        ours("{{ messages[0].role }}", [{"role": "user", "content": "x"}])
    assert caught.value.field == "continue_final_message"


@pytest.mark.parametrize("value", ["x", 1, 1.5, True, None])
def test_scalars_may_be_passed(value):
    assert checked_arguments("f", {"x": value}) == {"x": value}
    assert checked_arguments("f", {f"x{i}": value for i in range(MAX_ARGUMENTS)})


@pytest.mark.parametrize(
    "arguments",
    [
        {f"x{i}": 1 for i in range(MAX_ARGUMENTS + 1)},
        {"x": [1]},
        {"x": {"y": 1}},
        {"messages": "x"},
        {"tools": None},
        {"add_generation_prompt": True},
        {"chat_template": "x"},
        {"eos_token": "x"},
        {"raise_exception": "x"},
    ],
)
def test_what_may_not_be_passed_names_the_field(arguments):
    with pytest.raises(InvalidRequestError) as caught:
        checked_arguments("chat_template_kwargs", arguments)
    assert caught.value.field == "chat_template_kwargs"


def test_nothing_passed_is_nothing():
    assert checked_arguments("f", None) is None
    assert checked_arguments("f", {}) is None
