"""Finding models, reading their small files, and rendering their templates."""

import json

import pytest

from pagewire_frontend.models.chat_template import ChatTemplate, load_chat_template
from pagewire_frontend.models.model_registry import (
    ModelRegistry,
    ModelSpec,
    load_model,
    parse_specs,
)
from pagewire_shared.errors import InvalidRequestError, ModelNotFoundError, StartupError
from pagewire_shared.identity.ids import tokenizer_fingerprint
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.text_models import make_text_model


@pytest.fixture
def folder(tmp_path):
    return make_text_model(tmp_path / "tiny")


def test_what_a_folder_says(folder):
    model = load_model(ModelSpec("m", str(folder)))
    assert model.eos_token_ids == (2,)
    assert (model.context_length, model.vocab_size) == (512, 259)
    assert model.tokenizer_fingerprint == tokenizer_fingerprint(folder)
    assert model.chat_template is not None
    assert (model.defaults.temperature, model.defaults.max_tokens) == (1.0, None)


def test_generation_config_gives_defaults_and_ends(folder):
    advice = {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "eos_token_id": [7, 2]}
    (folder / "generation_config.json").write_text(json.dumps(advice))
    model = load_model(ModelSpec("m", str(folder)))
    assert (model.defaults.temperature, model.defaults.top_k) == (0.6, 20)
    assert model.eos_token_ids == (7, 2)


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ({"repetition_penalty": 1.25, "min_p": 0.25}, {"repetition_penalty": 1.25, "min_p": 0.25}),
        # Greedy: other sampling is a leftover, and a penalty works on greedy text, too.
        (
            {"do_sample": False, "temperature": 0.5, "top_k": 5, "repetition_penalty": 1.25},
            {"temperature": 0.0, "repetition_penalty": 1.25},
        ),
        ({"max_new_tokens": 7, "top_p": None}, {}),
    ],
)
def test_the_fields_of_a_generation_config(folder, advice, expected):
    (folder / "generation_config.json").write_text(json.dumps(advice))
    defaults = load_model(ModelSpec("m", str(folder))).defaults
    assert defaults == SamplingParams(max_tokens=None, **expected)


def test_a_generation_config_out_of_bounds_is_one_clear_line(folder):
    (folder / "generation_config.json").write_text('{"repetition_penalty": 0}')
    with pytest.raises(StartupError, match=r"generation_config\.json: repetition_penalty"):
        load_model(ModelSpec("m", str(folder)))


@pytest.mark.parametrize(
    ("models", "names", "expected"),
    [
        (["a=/x"], [], [("a", "/x")]),
        (["/x/y/z"], [], [("z", "/x/y/z")]),
        (["org/name"], [], [("org/name", "org/name")]),
        (["/x/y", "b=/z"], ["first"], [("first", "/x/y"), ("b", "/z")]),
    ],
)
def test_names_of_models(models, names, expected):
    assert [(s.name, s.path) for s in parse_specs(models, names)] == expected


@pytest.mark.parametrize("models", [[], ["=x"], ["a="], ["a=/x", "a=/y"]])
def test_bad_model_flags(models):
    with pytest.raises(StartupError):
        parse_specs(models, [])


@pytest.mark.parametrize("broken", ["missing", "no_config", "no_json"])
def test_broken_models_are_one_clear_line(folder, broken):
    if broken == "missing":
        path, reason = str(folder / "nope" / "deep"), "there is no folder"
    elif broken == "no_config":
        (folder / "config.json").unlink()
        path, reason = str(folder), r"no config\.json"
    else:
        (folder / "config.json").write_text("{")
        path, reason = str(folder), r"config\.json is no JSON"
    with pytest.raises(StartupError, match=reason):
        load_model(ModelSpec("m", path))


def test_finding_models(folder):
    one = load_model(ModelSpec("one", str(folder)))
    registry = ModelRegistry([one])
    assert registry.find(None) is one
    with pytest.raises(ModelNotFoundError) as caught:
        registry.find("two")
    assert caught.value.field == "model"
    both = ModelRegistry([one, load_model(ModelSpec("two", str(folder)))])
    with pytest.raises(InvalidRequestError, match="model is required"):
        both.find(None)


def render(source, messages=({"role": "user", "content": "<hi> & 'you'"},), **arguments):
    template = ChatTemplate(source, {"bos_token": "<s>"})
    return template.render(list(messages), add_generation_prompt=True, arguments=arguments)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", "<s><hi> & 'you'"),
        ("{{ messages[0].content | tojson }}", "\"<hi> & 'you'\""),
        ("{% for m in messages %}{% continue %}x{% endfor %}y", "y"),
        ("{% generation %}a{% endgeneration %}", "a"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{{ tools is none }}", "True"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("  {% if true %}\nx\n  {% endif %}\n", "x\n"),
    ],
)
def test_templates(source, expected):
    assert render(source) == expected


def test_arguments_reach_the_template_but_not_the_messages():
    assert render("{{ thinking }}", thinking="no") == "no"
    assert render("{{ messages | length }}", messages=()) == "0"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].nothing.more }}",
        "{{ 1 // 0 }}",
        "{% for i in range(10000000) %}{% endfor %}",
    ],
)
def test_what_a_template_refuses_is_the_requests_fault(source):
    with pytest.raises(InvalidRequestError) as caught:
        render(source)
    assert caught.value.field == "messages"


def test_a_template_that_does_not_compile():
    with pytest.raises(StartupError, match="does not compile"):
        ChatTemplate("{% for %}", {})


def test_where_templates_come_from(folder):
    (folder / "chat_template.jinja").write_text("file")
    config = {"chat_template": [{"name": "default", "template": "listed"}]}
    found = load_chat_template(folder, config)
    assert found is not None
    assert found.render([], add_generation_prompt=True) == "file"
    (folder / "chat_template.jinja").unlink()
    found = load_chat_template(folder, config)
    assert found is not None
    assert found.render([], add_generation_prompt=True) == "listed"
    assert load_chat_template(folder, {}) is None
