"""A frontend's name is the one that its certificate is bound to."""

from pathlib import Path

import pytest

from pagewire.cli.certs.authority import Authority
from pagewire_frontend.serve import _check_certificate
from pagewire_shared.errors import StartupError
from pagewire_shared.security.roles import LinkRole
from support.security.certificates import links_of


def test_the_name_is_that_of_the_certificate(tmp_path: Path) -> None:
    authority, role = Authority.create(tmp_path, "c", 10.0), LinkRole.FRONTEND
    names = {"cell": "c", "instance": "a", "days": 1.0}
    authority.issue(tmp_path / "bound", role, is_bound=True, **names)
    authority.issue(tmp_path / "any", role, **names)
    _check_certificate("b")
    with links_of(tmp_path / "any"):
        _check_certificate("b")
    with links_of(tmp_path / "bound"):
        for name in ("", "a", "A"):
            _check_certificate(name)
        with pytest.raises(StartupError, match="is bound to 'a', not 'b'"):
            _check_certificate("b")
