"""`pagewire certs`: makes, renews and shows the certificates of a cell's roles."""

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path

from pagewire.cli.commands import choose_action
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import DEFAULT_CELL, check_cell_name
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.security.roles import LinkRole
from pagewire_shared.security.tls_files import AUTHORITY, CERTIFICATE, KEY

ACTIONS = {
    "init": "make an authority in DIR, and a folder with a certificate per role below it",
    "issue": "make one certificate of a role, in a folder of its own",
    "public": "make one certificate of a frontend's public ports, for --ssl-certfile",
    "rotate": "renew all certificates below DIR; running processes take them up",
    "show": "list the certificates below DIR; exit status 1 if one ends soon",
}
AUTHORITY_DAYS, DAYS, SOON_DAYS = 3650.0, 90.0, 14.0
SHARED = "1"
"""Instance in the URI of a certificate that speaks for all of its role."""


def run(name: str, argv: Sequence[str]) -> int:
    """Run one action and return its exit status; else raise PagewireError."""
    action, words = choose_action(name, argv, ACTIONS)
    parser = HintingParser(prog=f"pagewire {name} {action}", description=ACTIONS[action])
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of the authority")
    if action == "issue":
        parser.add_argument(
            "role", metavar="ROLE", choices=list(LinkRole), help=", ".join(LinkRole)
        )
        help_text = "name of the one process that it speaks for; without, all of the role"
        parser.add_argument("--instance", default="", help=help_text)
        parser.add_argument(
            "--out", type=Path, help="folder for the files (DIR/ROLE-INSTANCE, or ROLE-1)"
        )
    if action == "public":
        help_text = "name or IP address by which clients reach it"
        parser.add_argument("hosts", metavar="HOST", nargs="+", help=help_text)
        parser.add_argument("--out", type=Path, help="folder for the files (DIR/public)")
    if action == "show":
        help_text = f"days that every certificate has to last ({SOON_DAYS:g})"
        parser.add_argument("--soon", type=float, default=SOON_DAYS, metavar="DAYS", help=help_text)
        return _show(parser.parse_args(words))
    if action == "init":
        help_text = "leave what is there as it is, and make the rest"
        parser.add_argument("--keep", action="store_true", help=help_text)
    help_text = f"name of the cell, as --cell of the scheduler ({DEFAULT_CELL})"
    parser.add_argument("--cell", default=DEFAULT_CELL, help=help_text)
    help_text = f"days that certificates of roles last ({DAYS:g})"
    parser.add_argument("--days", type=_days, default=DAYS, help=help_text)
    options = parser.parse_args(words)
    check_cell_name(options.cell)
    return _RUN[action](options)


def _days(text: str) -> float:
    days = float(text)
    if not 0.0 < days <= 10 * AUTHORITY_DAYS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {10 * AUTHORITY_DAYS:g}")
    return days


def _init(options: argparse.Namespace) -> int:
    from pagewire.cli.certs.authority import Authority

    has_one = options.keep and (options.dir / AUTHORITY).exists()
    authority = (
        Authority.load(options.dir)
        if has_one
        else Authority.create(options.dir, options.cell, AUTHORITY_DAYS)
    )
    for role in LinkRole:
        folder = options.dir / role
        if has_one and (folder / CERTIFICATE).exists():
            continue
        authority.issue(folder, role, cell=options.cell, instance=SHARED, days=options.days)
        print(f"{folder}: for --tls-dir of {_article(role)} {role}")
    print(f"Keep {options.dir / 'ca.key'} where no role reaches it.")
    return 0


def _article(role: LinkRole) -> str:
    return "an" if role is LinkRole.OPERATOR else "a"


def _issue(options: argparse.Namespace) -> int:
    from pagewire.cli.certs.authority import Authority

    role, instance = LinkRole(options.role), options.instance or SHARED
    folder = options.out or options.dir / f"{role}-{instance}"
    is_bound, names = bool(options.instance), {"cell": options.cell, "instance": instance}
    authority = Authority.load(options.dir)
    authority.issue(folder, role, days=options.days, is_bound=is_bound, **names)
    print(folder)
    return 0


def _public(options: argparse.Namespace) -> int:
    from pagewire.cli.certs.authority import Authority

    folder = options.out or options.dir / "public"
    Authority.load(options.dir).issue_public(folder, options.hosts, days=options.days)
    print(f"{folder}: --ssl-certfile {folder / CERTIFICATE} --ssl-keyfile {folder / KEY}")
    print(f"Clients trust it by {folder / AUTHORITY}.")
    return 0


def _rotate(options: argparse.Namespace) -> int:
    from pagewire.cli.certs.authority import Authority, facts_of

    authority = Authority.load(options.dir)
    for folder in _folders(options.dir):
        facts = facts_of(folder)
        roles = [role for role in LinkRole if role == facts.role]
        if facts.hosts and authority.has_signed(folder):
            authority.issue_public(folder, facts.hosts, days=options.days)
            print(f"{folder}: renewed")
            continue
        if not roles or not authority.has_signed(folder):
            print(f"{folder}: left as it is, since this authority has not signed it for one role")
            continue
        cell, _, rest = facts.name.removeprefix("spiffe://").partition("/")
        instance = facts.instance or rest.rpartition("/")[2] or SHARED
        names = {"cell": cell or options.cell, "instance": instance}
        is_bound = bool(facts.instance)
        authority.issue(folder, roles[0], days=options.days, is_bound=is_bound, **names)
        print(f"{folder}: renewed")
    return 0


def _show(options: argparse.Namespace) -> int:
    from pagewire.cli.certs.authority import facts_of

    now, status = datetime.datetime.now(datetime.UTC), 0
    for folder in _folders(options.dir):
        facts = facts_of(folder)
        left = facts.days_left(now)
        if left < options.soon:
            status = 1
        role, name = facts.role or "public ports", facts.name or ", ".join(facts.hosts)
        role += f" {facts.instance} alone" if facts.instance else ""
        print(f"{facts.folder}: {role}, {name}, {left:.1f} days left")
    return status


def _folders(root: Path) -> list[Path]:
    found = sorted(path.parent for path in root.glob("*/tls.crt"))
    if (root / "tls.crt").is_file():
        found.insert(0, root)
    if not found:
        raise StartupError(f"{root} has no certificates of roles", field="DIR")
    return found


_RUN = {"init": _init, "issue": _issue, "public": _public, "rotate": _rotate}
