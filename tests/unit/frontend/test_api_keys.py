"""API keys: where they come from, what is kept, and what a file's change does."""

import hashlib
import logging
import os

import pytest

from pagewire.cli import config as config_command
from pagewire.config import config_from_keywords
from pagewire.local.layout import Endpoints, plan_children
from pagewire.models import ServedModel
from pagewire_frontend.api_keys import ApiKeys, set_tenant, tenant_of
from pagewire_frontend.config import FrontendConfig
from pagewire_shared.errors import AuthenticationError, ForbiddenError, StartupError

SECRET = "sk-secret-0123"
HASH = "sha256:" + hashlib.sha256(SECRET.encode()).hexdigest()


def refused(keys, authorization):
    with pytest.raises(AuthenticationError) as caught:
        keys.check(authorization)
    assert caught.value.code == "invalid_api_key"
    return caught.value.message


def test_without_keys_all_may_call():
    keys = ApiKeys()
    assert not keys.are_required
    assert keys.check(None) is None
    assert keys.check("Bearer anything") is None


@pytest.mark.parametrize("given", [SECRET, HASH, HASH.upper().replace("SHA256", "sha256")])
def test_a_key_in_the_clear_or_as_its_digest(given):
    keys = ApiKeys(["another", given])
    assert keys.are_required
    for text in (f"Bearer {SECRET}", f"bearer {SECRET}", f"Bearer   {SECRET} ", "Bearer another"):
        assert keys.check(text) is None
    for text in (None, "", SECRET, f"Basic {SECRET}", "Bearer", "Bearer ", "Bearer é\udcff"):
        refused(keys, text)
    for text in (f"Bearer {SECRET}x", f"Bearer {SECRET[:-1]}", f"Bearer {HASH}"):
        assert SECRET[:-1] not in refused(keys, text)


@pytest.mark.parametrize("key", ["", "a b", "sha256:", "sha256:12", "schlüssel", "x" * 1025])
def test_what_is_no_key_is_refused_without_showing_it(key):
    with pytest.raises(StartupError) as caught:
        ApiKeys([key])
    assert key in ("", "sha256:") or key not in caught.value.message


def test_a_file_with_names_comments_and_digests(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n team-a={HASH}\nYWJj=\nteam.b=YQ==\nteam-c=with=equals\n")
    keys = ApiKeys([SECRET], file)
    names = {key: keys.check(f"Bearer {key}") for key in (SECRET, "YWJj=", "YQ==", "with=equals")}
    assert names == {SECRET: "team-a", "YWJj=": None, "YQ==": "team.b", "with=equals": "team-c"}
    refused(keys, "Bearer team-a")


def test_a_file_is_read_again_when_it_changes(tmp_path, caplog):
    file = tmp_path / "keys"
    file.write_text("old\n")
    now = [0.0]
    keys = ApiKeys((), file, clock=lambda: now[0])
    assert keys.check("Bearer old") is None
    file.write_text("team=newer\n")
    now[0] = 2.0
    assert keys.check("Bearer newer") == "team"
    refused(keys, "Bearer old")
    with caplog.at_level(logging.ERROR):
        file.write_text(f"team=newer\nbad {SECRET}\n")
        now[0] = 4.0
        assert keys.check("Bearer newer") == "team"
    assert "keys:2" in caplog.text
    assert SECRET not in caplog.text
    os.remove(file)
    now[0] = 6.0
    assert keys.check("Bearer newer") == "team"


def test_an_empty_file_lets_nobody_in_and_a_missing_one_is_told(tmp_path):
    (tmp_path / "keys").write_text("")
    refused(ApiKeys((), tmp_path / "keys"), "Bearer x")
    with pytest.raises(StartupError, match="--api-key-file"):
        ApiKeys((), tmp_path / "none")


def test_a_key_decides_the_tenant():
    set_tenant(None)
    assert (tenant_of(None), tenant_of("b")) == (None, "b")
    set_tenant("a")
    try:
        assert (tenant_of(None), tenant_of("a")) == ("a", "a")
        with pytest.raises(ForbiddenError) as caught:
            tenant_of("b")
        assert caught.value.field == "tenant"
    finally:
        set_tenant(None)


def test_keys_are_shown_nowhere():
    config = FrontendConfig(scheduler=("127.0.0.1:1",), api_key=(SECRET,))
    assert SECRET not in repr(config)
    loaded = config_from_keywords({"api_key": [SECRET, "b"]}, {})
    shown = config_command.describe(loaded)
    assert "api-key: [(hidden), (hidden)]" in shown.replace("'", "")
    assert SECRET not in shown
    assert HASH not in shown


def test_children_are_given_digests(tmp_path):
    given = {"api_key": [SECRET], "api_key_file": "keys", "cors_origin": ["http://a", "*"]}
    config = config_from_keywords(given, {}).config
    model = ServedModel("m", str(tmp_path))
    endpoints = Endpoints("127.0.0.1", 0, 0, "")
    children = plan_children(config, [model], tmp_path, endpoints)
    frontend = next(child for child in children if child.role == "frontend")
    # Every user of the machine sees the flags of a process, and may guess at a digest.
    assert dict(frontend.environ) == {"PAGEWIRE_API_KEY": HASH}
    text = " ".join(word for child in children for word in child.arguments)
    assert "--api-key-file keys --cors-origin http://a --cors-origin *" in text
    for hidden in (SECRET, HASH, "--api-key "):
        assert hidden not in text
