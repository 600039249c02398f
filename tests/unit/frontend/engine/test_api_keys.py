"""API keys: where they come from, what is kept, and what a file's change does."""

import asyncio
import hashlib
import logging
import os
import time

import pytest

from pagewire.cli import config as config_command
from pagewire.config import config_from_keywords
from pagewire.local.layout import Endpoints, plan_children
from pagewire.models import ServedModel
from pagewire_frontend.access.api_keys import ApiKeys, Caller, set_caller, tenant_of
from pagewire_frontend.access.key_usage import KeyUsage, KeyUsages
from pagewire_frontend.config import FrontendConfig
from pagewire_shared.errors import (
    AuthenticationError,
    ForbiddenError,
    OverloadedError,
    StartupError,
)
from pagewire_shared.identity.api_key import ApiKey, hidden_key, parse_api_key
from pagewire_shared.identity.key_rights import ALL_SCOPES, KeyLimits, KeyScope
from pagewire_shared.identity.salted_key import salted

SECRET = "sk-secret-0123"
HASH = "sha256:" + hashlib.sha256(SECRET.encode()).hexdigest()


def checked(keys, authorization):
    return asyncio.run(keys.check(authorization))


def refused(keys, authorization):
    with pytest.raises(AuthenticationError) as caught:
        checked(keys, authorization)
    assert caught.value.code == "invalid_api_key"
    return caught.value.message


def name_of(keys, key):
    caller = checked(keys, f"Bearer {key}")
    assert caller is not None
    return caller.key.name


def test_without_keys_all_may_call():
    keys = ApiKeys()
    assert not keys.are_required
    assert checked(keys, None) is None
    assert checked(keys, "Bearer anything") is None


@pytest.mark.parametrize("given", [SECRET, HASH, HASH.upper().replace("SHA256", "sha256")])
def test_a_key_in_the_clear_or_as_its_digest(given):
    keys = ApiKeys(["another", given])
    assert keys.are_required
    for text in (f"Bearer {SECRET}", f"bearer {SECRET}", f"Bearer   {SECRET} ", "Bearer another"):
        assert checked(keys, text).key.name is None
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
    names = {key: name_of(keys, key) for key in (SECRET, "YWJj=", "YQ==", "with=equals")}
    assert names == {SECRET: "team-a", "YWJj=": None, "YQ==": "team.b", "with=equals": "team-c"}
    refused(keys, "Bearer team-a")


def test_a_file_is_read_again_when_it_changes(tmp_path, caplog):
    file = tmp_path / "keys"
    file.write_text("old\n")
    now = [0.0]
    keys = ApiKeys((), file, clock=lambda: now[0])
    assert name_of(keys, "old") is None
    file.write_text("team=newer\n")
    now[0] = 2.0
    assert name_of(keys, "newer") == "team"
    refused(keys, "Bearer old")
    with caplog.at_level(logging.ERROR):
        file.write_text(f"team=newer\nbad {SECRET}\n")
        now[0] = 4.0
        assert name_of(keys, "newer") == "team"
    assert "keys:2" in caplog.text
    assert SECRET not in caplog.text
    os.remove(file)
    now[0] = 6.0
    assert name_of(keys, "newer") == "team"


def test_an_empty_file_lets_nobody_in_and_a_missing_one_is_told(tmp_path):
    (tmp_path / "keys").write_text("")
    refused(ApiKeys((), tmp_path / "keys"), "Bearer x")
    with pytest.raises(StartupError, match="--api-key-file"):
        ApiKeys((), tmp_path / "none")


def test_a_key_decides_the_tenant():
    set_caller(None)
    assert (tenant_of(None), tenant_of("b")) == (None, "b")
    set_caller(Caller(ApiKey(b"", "a"), KeyUsage(time.monotonic), "a"))
    try:
        assert (tenant_of(None), tenant_of("a")) == ("a", "a")
        with pytest.raises(ForbiddenError) as caught:
            tenant_of("b")
        assert caught.value.field == "tenant"
    finally:
        set_caller(None)


def test_keys_without_a_name_are_tenants_of_their_own():
    keys = ApiKeys(["one", "two", "ops admin"])
    first, second, ops = (checked(keys, f"Bearer {key}").tenant for key in ("one", "two", "ops"))
    assert first.startswith("key-")
    assert first != second
    assert "one" not in first
    assert ops is None, "an operator's request names its tenant"
    assert checked(ApiKeys(["one"]), "Bearer one").tenant is None, "the only key may, too"
    assert checked(ApiKeys(["one", "one"]), "Bearer one").tenant is None


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
    assert "--api-key-file keys " in text
    assert "--cors-origin http://a --cors-origin *" in text
    for hidden in (SECRET, HASH, "--api-key "):
        assert hidden not in text


def test_what_a_key_may_is_written_behind_it():
    key = parse_api_key(f"ops={HASH}  admin streams=3 requests-per-minute=60", may_be_named=True)
    assert (key.name, key.is_admin) == ("ops", True)
    assert key.rights.limits == KeyLimits(streams=3, requests_per_minute=60)
    plain = parse_api_key(f"team={SECRET} tokens-per-minute=7", may_be_named=True)
    assert (plain.is_admin, plain.rights.limits) == (False, KeyLimits(tokens_per_minute=7))
    assert hidden_key(f"{SECRET} admin streams=3") == f"{HASH} admin streams=3"


def test_a_tenant_keeps_what_the_largest_of_its_keys_allows(tmp_path):
    file = tmp_path / "keys"
    file.write_text(
        "a=key-one cache-bytes=1MiB\na=key-two cache-bytes=2MiB\nb=key-three cache-bytes=1MiB\n"
        "b=key-four\n"
    )
    now = [0.0]
    keys = ApiKeys([], file, clock=lambda: now[0])
    bounds = [keys.cache_bytes_of(tenant) for tenant in ("a", "b", "c", None)]
    assert bounds == [2 << 20, None, None, None]
    file.write_text("a=key-one cache-bytes=0\n")
    now[0] += 60
    assert keys.cache_bytes_of("a") == 0


@pytest.mark.parametrize(
    "words",
    [
        "Admin",
        "admin admin",
        "streams=0",
        "streams=-1",
        "streams=x",
        "streams=1 streams=2",
        "rps=3",
        SECRET,
        "requests-per-minute=1e3",
        "cache-bytes=much",
        "cache-bytes=8388608TiB",
    ],
)
def test_what_is_not_known_behind_a_key_is_refused_without_showing_it(words):
    with pytest.raises(StartupError, match=r"word [12] behind a key") as caught:
        parse_api_key(f"team=sk-key {words}", may_be_named=True)
    assert SECRET not in caught.value.message
    assert "sk-key" not in caught.value.message


def test_a_change_of_limits_keeps_what_was_used(tmp_path):
    file = tmp_path / "keys"
    file.write_text("a=one requests-per-minute=10\nb=two\n")
    now = [0.0]

    def clock():
        return now[0]

    usages = KeyUsages(8, clock=clock)
    keys = ApiKeys((), file, usages=usages, clock=clock)
    usage = checked(keys, "Bearer one").usage
    ticket = usage.open_stream()
    usage.begin_request()
    assert [one.remaining for one in usage.remaining()] == [9]
    file.write_text("a=one requests-per-minute=10 streams=1\nb=two\n")
    now[0] = 1.5
    usage = checked(keys, "Bearer one").usage
    with pytest.raises(OverloadedError, match="1 requests open at once, of at most 1"):
        usage.open_stream()
    ticket.give_back()
    ticket.give_back()
    usage.open_stream()
    assert [one.remaining for one in usage.remaining()] == [9], "it comes back by and by"
    now[0] = 7.0
    assert [one.remaining for one in usage.remaining()] == [10]


def test_tokens_are_overdrawn_and_come_back():
    now = [0.0]
    usage = KeyUsage(lambda: now[0])
    usage.limit(parse_api_key("k tokens-per-minute=60", may_be_named=False), None)
    usage.open_stream().give_back(100)
    with pytest.raises(OverloadedError, match="60 tokens per minute") as caught:
        usage.begin_request()
    assert caught.value.retry_after_ms == pytest.approx(41_000, abs=2)
    now[0] = 41.1
    usage.begin_request()


def test_scopes_models_and_an_end_are_written_behind_a_key():
    text = "k scope=embed scope=metrics model=a model=org/b expires=2030-01-31"
    rights = parse_api_key(text, may_be_named=False).rights
    assert rights.scopes == {KeyScope.EMBED, KeyScope.METRICS}
    assert rights.models == {"a", "org/b"}
    assert rights.expires_at == 1896048000.0, "midnight of UTC"
    assert parse_api_key("k admin", may_be_named=False).rights.scopes == ALL_SCOPES
    zoned = parse_api_key("k expires=2030-01-31T01:00+01:00", may_be_named=False)
    assert zoned.rights.expires_at == 1896048000.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("scope=all", "scope takes one of generate, embed"),
        ("scope", "are known"),
        ("admin=1", "are known"),
        ("model=", "model takes the name"),
        ("expires=soon", "expires takes a date"),
        ("expires=2030-01-01 expires=2031-01-01", "word 2"),
        ("admin scope=embed", "admin is all scopes"),
    ],
)
def test_rights_that_make_no_sense_are_refused(words, told):
    with pytest.raises(StartupError, match=told):
        parse_api_key(f"sk-key {words}", may_be_named=False)


def test_a_key_ends():
    now = [1896047999.0]
    keys = ApiKeys(["k expires=2030-01-31"], wall_clock=lambda: now[0])
    assert checked(keys, "Bearer k") is not None
    now[0] += 1
    assert "expired" in refused(keys, "Bearer k")


def test_a_salted_key_is_recognised_and_its_digest_is_no_key(tmp_path, monkeypatch):
    key, other = "sk-" + "a" * 40, "sk-" + "b" * 40
    line, same_start = salted(key), salted(key[:20] + "x" * 20)
    file = tmp_path / "keys"
    file.write_text(f"team={line} scope=embed\nlong={same_start}\nplain={SECRET}\n")
    keys = ApiKeys((), file)
    caller = checked(keys, f"Bearer {key}")
    assert (caller.key.name, caller.key.rights.scopes) == ("team", {KeyScope.EMBED})
    for wrong in (other, str(line), key[:-1], key + "a"):
        refused(keys, f"Bearer {wrong}")
    # What was computed once is kept, for right and wrong keys.
    monkeypatch.setattr(hashlib, "scrypt", None)
    assert checked(keys, f"Bearer {key}").key.name == "team"
    refused(keys, f"Bearer {key[:-1]}")
    refused(keys, f"Bearer {other}")
    assert name_of(keys, SECRET) == "plain"
    assert hidden_key(f"{line} admin") == f"{line} admin"


@pytest.mark.parametrize("text", ["scrypt:", "scrypt:sk-aaaaa:00:11", "scrypt:" + "0" * 200])
def test_a_salted_digest_of_another_form_is_refused(text):
    with pytest.raises(StartupError, match="pagewire keys new"):
        parse_api_key(text, may_be_named=False)
