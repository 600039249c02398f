"""Versions of weights: which exclude each other, and what an update may name."""

import pytest

from pagewire_frontend.session.events import joined_versions
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.weights.convert import (
    source_from_message,
    source_to_message,
    update_mode_from_message,
    update_mode_to_message,
    version_from_message,
    version_to_message,
)
from pagewire_shared.weights.version import (
    UpdateMode,
    WeightsSource,
    WeightsVersion,
    check_label,
    check_path,
    parse_update_mode,
)

ONE, OTHER = WeightsVersion(b"1" * 32, 2, "a"), WeightsVersion(b"2" * 32, 2)


def test_versions_exclude_others_that_can_be_compared():
    assert ONE.excludes(OTHER)
    assert not ONE.excludes(WeightsVersion(b"1" * 32, 2))
    assert not ONE.excludes(WeightsVersion(b"2" * 32, 3))


def test_a_version_is_shown_by_its_label_or_fingerprint():
    assert (ONE.shown, OTHER.shown) == ("a", "32" * 8)


def test_messages_bring_the_same_back():
    assert version_from_message(version_to_message(ONE)) == ONE
    source = WeightsSource(path="/a", label="b", serial=2**40)
    assert source_from_message(source_to_message(source)) == source
    for mode in UpdateMode:
        assert update_mode_from_message(update_mode_to_message(mode)) is mode
    assert update_mode_from_message(0) is UpdateMode.WAIT


def test_what_an_update_may_name():
    assert check_path("") == ""
    assert check_path("/a") == "/a"
    assert check_label("step 2") == "step 2"
    assert parse_update_mode("abort") is UpdateMode.ABORT


@pytest.mark.parametrize(
    ("check", "value", "reason"),
    [
        (check_path, "a", "begin with /"),
        (check_path, "/" + "a" * 4096, "more than 4096"),
        (check_path, "/a\0", "4096"),
        (check_label, "a\n", "printable"),
        (check_label, "a" * 65, "64"),
        (parse_update_mode, "keep", "no answer is of two versions"),
        (parse_update_mode, "never", "wait or abort"),
        (update_mode_from_message, 7, "not known"),
    ],
)
def test_what_it_may_not_name(check, value, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        check(value)


def test_versions_of_several_prompts_are_named_once_each():
    assert joined_versions("", "a") == "a"
    assert joined_versions("a", "a") == "a"
    assert joined_versions("a", "b") == "a, b"
    assert joined_versions("a, b", "") == "a, b"
