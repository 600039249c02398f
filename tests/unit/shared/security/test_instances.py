"""Certificates that are bound to instances: what they say, who may call, and who says what."""

import os
import random
from pathlib import Path

import pytest

from pagewire.cli.certs.authority import Authority, facts_of
from pagewire_shared.errors import ForbiddenError, StartupError
from pagewire_shared.security.certificate import read_certificate
from pagewire_shared.security.claims import IdentityClaims, check_endpoints, split_instance
from pagewire_shared.security.instances import INSTANCES, AllowedInstances
from pagewire_shared.security.roles import LinkRole, PeerIdentity, identity_of


def bound(instance: str, role: LinkRole = LinkRole.WORKER) -> PeerIdentity:
    names = [role.host, "link.pagewire", *([f"{instance}.{role.host}"] if instance else [])]
    return identity_of([name.encode() for name in names])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates") / "w"
    Authority.create(made.parent, "c", 10.0).issue(
        made, LinkRole.WORKER, cell="c", instance="W-2", days=3.0, is_bound=True
    )
    return made


def test_a_certificate_says_who_it_is_and_when_it_ends(folder: Path) -> None:
    text, facts = read_certificate((folder / "tls.crt").read_bytes()), facts_of(folder)
    assert text.ends == facts.expires.timestamp()
    assert text.dns_names == {"worker.pagewire", "link.pagewire", "w-2.worker.pagewire"}
    assert (text.instances, facts.instance) == ({"worker/w-2"}, "w-2")


def test_a_damaged_certificate_is_a_value_error(folder: Path) -> None:
    whole, dice = (folder / "tls.crt").read_bytes(), random.Random(1)
    num_read = 0
    for _ in range(2000):
        data = bytearray(whole)
        data[dice.randrange(28, len(whole))] = dice.randrange(256)
        try:
            read_certificate(bytes(data[: dice.choice((len(data), dice.randrange(len(data))))]))
        except ValueError:
            continue
        num_read += 1
    assert 0 < num_read < 2000


def test_instances_come_of_whole_names_of_own_roles() -> None:
    assert bound("w-2").instances == {"worker/w-2"}
    assert bound("").instances == frozenset()
    for name in (b"a.b.worker.pagewire", b"w.worker.pagewire.example", b"a.scheduler.pagewire"):
        assert identity_of([b"worker.pagewire", name]).instances == frozenset()


def test_names_that_no_certificate_can_have(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "c", 10.0)
    for name in ("", "a.b", "-a", "a" * 64, "a/b", "ä"):
        with pytest.raises(StartupError, match="is not 1 to 63 letters"):
            authority.issue(
                tmp_path / "x", LinkRole.WORKER, cell="c", instance=name, days=1.0, is_bound=True
            )


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(0, random.randrange(2**40)))


def test_the_file_says_who_may_call_and_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / INSTANCES
    allowed = AllowedInstances(tmp_path)
    assert allowed.allows(bound(""))
    rewrite(path, "worker/W-1 # the first\nscheduler\n\n")
    assert allowed.allows(bound("w-1"))
    assert allowed.allows(bound("", LinkRole.SCHEDULER))
    assert not allowed.allows(bound("w-2"))
    assert not allowed.allows(bound(""))
    assert not allowed.allows(bound("w-1", LinkRole.FRONTEND))
    for text in ("king\n", "worker/a b\n", "worker/\n"):
        rewrite(path, text)
        assert not allowed.allows(bound("w-2"))
        assert allowed.allows(bound("w-1"))
    assert "the instances before are used" in caplog.text
    path.unlink()
    assert not allowed.allows(bound("w-2"))
    rewrite(path, "worker/w-2")
    assert allowed.allows(bound("w-2"))
    assert not allowed.allows(bound("w-1"))


def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / INSTANCES).write_text("king/1")
    with pytest.raises(StartupError, match="'king/1' is neither ROLE/INSTANCE nor ROLE"):
        AllowedInstances(tmp_path)


def test_an_id_stays_with_the_instance_that_came_with_it() -> None:
    claims = IdentityClaims()
    claims.check(bound("w-1"), b"1" * 16)
    claims.check(bound("w-1"), b"1" * 16)
    for other in ("w-2", ""):
        with pytest.raises(ForbiddenError, match="is that of another instance"):
            claims.check(bound(other), b"1" * 16)
    claims.check(bound("w-2"), b"2" * 16)


def test_an_endpoint_is_that_of_the_certificate() -> None:
    assert split_instance("w-1@host:80") == ("w-1", "host:80")
    assert split_instance("unix:/a@b") == ("", "unix:/a@b")
    check_endpoints(bound("w-1"), LinkRole.WORKER, ["w-1@host:80", "host:80", "W-1@host:1"])
    for peer in (bound("w-2"), bound(""), bound("w-1", LinkRole.FRONTEND)):
        with pytest.raises(ForbiddenError, match="its endpoint is that of worker/w-1"):
            check_endpoints(peer, LinkRole.WORKER, ["w-1@host:80"])
