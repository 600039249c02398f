"""Who a frontend is, who the others are, and whose an id is."""

import pytest

from pagewire_frontend.group.membership import parse_membership
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.frontend_tag import mint_tag, slot_of


def test_a_name_stays_and_its_tags_do_not():
    first, second = parse_membership("frontend-0", []), parse_membership("frontend-0", [])
    assert first.name == second.name == "frontend-0"
    assert first.tag[:5] == second.tag[:5] == slot_of("frontend-0")
    assert len({mint_tag("frontend-0") for _ in range(50)}) > 40


def test_a_name_is_drawn_where_none_is_given():
    names = {parse_membership("", []).name for _ in range(20)}
    assert len(names) == 20
    assert all(len(name) == 8 and set(name) <= set("0123456789abcdef") for name in names)


def test_peers_listen_anywhere():
    peers = parse_membership(
        "a", ["b=unix:/run/b.sock", "pod-1=pod-1.frontends.default.svc:9000", "c=[::1]:7"]
    ).peers
    assert {name: str(address) for name, address in peers.items()} == {
        "b": "unix:/run/b.sock",
        "pod-1": "pod-1.frontends.default.svc:9000",
        "c": "[::1]:7",
    }


def test_all_may_be_given_one_list():
    everybody = ["a=unix:/a", "b=unix:/b", "c=unix:/c"]
    for name in "abc":
        assert parse_membership(name, everybody).peers.keys() == set("abc") - {name}


@pytest.mark.parametrize(
    ("name", "peers", "fault"),
    [
        ("a_b", [], "--frontend-name: 'a_b'"),
        ("-a", [], "--frontend-name"),
        ("a" * 64, [], "--frontend-name"),
        ("a", ["b"], "--peer: 'b' is not NAME=ADDRESS"),
        ("a", ["=unix:/x"], "--peer: ''"),
        ("a", ["b=nowhere"], "--peer: 'nowhere' is no address"),
        ("a", ["a=unix:/x", "a=unix:/y"], "two frontends are called 'a'"),
        ("a", ["a=nowhere"], "--peer: 'nowhere' is no address"),
        ("a", ["b=unix:/x", "b=unix:/y"], "two frontends are called 'b'"),
    ],
)
def test_what_is_no_group_is_refused(name, peers, fault):
    with pytest.raises(StartupError, match=fault):
        parse_membership(name, peers)


def test_names_whose_ids_look_alike_are_refused():
    seen: dict[str, str] = {}
    number = 0
    while (twin := seen.setdefault(slot_of(f"n{number}"), f"n{number}")) == f"n{number}":
        number += 1
    with pytest.raises(StartupError, match="another name"):
        parse_membership(twin, [f"n{number}=unix:/x"])
