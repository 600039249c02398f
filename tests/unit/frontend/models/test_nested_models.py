"""Files of models with a tower for images: the text's fields, and the template of a processor."""

import json

import pytest

from pagewire_frontend.models.chat_template import ChatTemplate
from pagewire_frontend.models.model_registry import ModelSpec, load_model
from pagewire_shared.errors import StartupError
from support.checkpoints.text_models import make_text_model

PARTS_ONLY = (
    "{% for m in messages %}{{ m.role }}:{% for part in m['content'] "
    "| selectattr('type', 'equalto', 'text') %} {{ part['text'] }}{% endfor %};{% endfor %}"
)
VARIABLE = (
    "{% for m in messages %}{{ m.role }}:{% set content = m.content %}{% for c in content %}"
    "{% if c.type == 'text' %} {{ c.text }}{% endif %}{% endfor %};{% endfor %}"
)
EITHER = (
    "{% for m in messages %}{{ m.role }}: {% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for part in m['content'] %}<{{ part['text'] }}>{% endfor %}{% endif %};"
    "{% endfor %}"
)
CALLS = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %} {{ part.text }}{% endfor %};"
    "{% for call in m.tool_calls %}{% if call.function.arguments is string %}x{% endif %}"
    "{% endfor %}{% endfor %}"
)
TEXT_ONLY = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }};{% endfor %}"
TURNS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]


@pytest.fixture
def folder(tmp_path):
    return make_text_model(tmp_path / "tiny")


def change(folder, name, **fields):
    path = folder / name
    data = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**data, **fields}))


@pytest.mark.parametrize("source", [PARTS_ONLY, VARIABLE, EITHER, CALLS, TEXT_ONLY])
def test_every_template_shows_what_is_said(source):
    template = ChatTemplate(source, {})
    assert template.reads.takes_text is (source in (EITHER, TEXT_ONLY))
    assert template.reads.takes_parts is (source != TEXT_ONLY)
    assert template.render(TURNS, add_generation_prompt=True) == "user: hi;assistant: ho;"
    opened = template.render(TURNS, add_generation_prompt=False, continue_final_message=True)
    assert opened == "user: hi;assistant: ho"


@pytest.mark.parametrize(
    ("source", "shown"),
    [(PARTS_ONLY, " h i"), (EITHER, " <h><i>"), (TEXT_ONLY, " hi"), (VARIABLE, " h i")],
)
def test_parts_stay_parts_where_the_template_goes_through_them(source, shown):
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    turns = [{"role": "user", "content": parts}]
    template = ChatTemplate(source, {})
    assert template.render(turns, add_generation_prompt=True) == f"user:{shown};"
    opened = template.render(turns, add_generation_prompt=False, continue_final_message=True)
    assert opened == f"user:{shown.rstrip('>')}"
    assert parts[-1]["text"] == "i"
    one = [{"role": "user", "content": parts[:1]}]
    assert template.render(one, add_generation_prompt=True) == "user: h;"
    nothing = [{"role": "user", "content": []}]
    assert template.render(nothing, add_generation_prompt=True).rstrip(" ;") == "user:"


def test_fields_of_the_text_model(folder):
    config = json.loads((folder / "config.json").read_text())
    text = {"vocab_size": 200, "max_position_embeddings": 300, "eos_token_id": 7}
    outer = {name: config[name] for name in ("architectures",)}
    (folder / "config.json").write_text(json.dumps({**outer, "text_config": text}))
    model = load_model(ModelSpec("m", str(folder)))
    assert (model.vocab_size, model.context_length) == (200, 300)
    assert model.eos_token_ids[0] == 7
    change(folder, "config.json", eos_token_id=[5, 6])
    assert load_model(ModelSpec("m", str(folder))).eos_token_ids[:2] == (5, 6)
    # The published text of Gemma 3 leaves its sizes out.
    text = {"model_type": "gemma3_text"}
    (folder / "config.json").write_text(json.dumps({**outer, "text_config": text}))
    model = load_model(ModelSpec("m", str(folder)))
    assert (model.vocab_size, model.context_length) == (262208, 131072)


@pytest.mark.parametrize("name", ["chat_template.json", "processor_config.json"])
def test_the_template_of_a_processor(folder, name):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_model(ModelSpec("m", str(folder))).chat_template is None
    (folder / name).write_text(json.dumps({"processor_class": "P", "chat_template": "of it"}))
    assert load_model(ModelSpec("m", str(folder))).chat_template.source == "of it"
    # That of the tokenizer is the one for text.
    change(folder, "tokenizer_config.json", chat_template="for text")
    assert load_model(ModelSpec("m", str(folder))).chat_template.source == "for text"
    change(folder, "tokenizer_config.json", chat_template=None)
    (folder / name).write_text("{")
    with pytest.raises(StartupError, match=f"{name} is no JSON"):
        load_model(ModelSpec("m", str(folder)))
