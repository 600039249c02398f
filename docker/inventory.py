"""Lists the Python packages of the images: as pins, as a bill of materials, and by known faults.

    python docker/inventory.py constraints docker/constraints.txt
    python docker/inventory.py sbom dist/sbom.json [--list requirements.txt]
    python docker/inventory.py audit [--list requirements.txt] [--server https://api.osv.dev]

Without --list these are the packages of this environment that Pagewire's roles need: those that the
tests ran with. With it they are those of an image, as its /opt/pagewire/requirements.txt has them.
The bill is CycloneDX 1.5. The audit asks OSV, whose answer needs a network: exit status 1 for known
faults, 2 when it cannot be asked.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS: Final = frozenset(
    ("frontend", "scheduler", "worker", "kvstore", "otel", "certs", "events", "cuda")
)
"""Of the packages in the images."""
HEAD: Final = """\
# Versions that the images are held to, one NAME==VERSION a line. Empty: the newest that
# pyproject.toml allows. `make constraints` fills it with the versions of the environment that the
# tests ran in. Images list what they hold in /opt/pagewire/requirements.txt; see docs/images.md.
"""
SECONDS: Final = 30.0
FOUND, UNASKED = 1, 2

Versions = Mapping[str, str]
"""By canonical name; of local versions (2.11.0+cpu) the public part."""


def needed(extras: Iterable[str] = EXTRAS) -> dict[str, str]:
    """Return the installed packages that Pagewire needs with some extras, with what they need."""
    found: dict[str, str] = {}
    left: list[tuple[str, frozenset[str]]] = [("pagewire", frozenset(extras))]
    seen = set(left)
    while left:
        name, wanted = left.pop()
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed here
        found[canonicalize_name(name)] = package.version.partition("+")[0]
        for text in package.requires or ():
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in (*wanted, "")]
            if requirement.marker and not any(map(requirement.marker.evaluate, environments)):
                continue
            one = (requirement.name, frozenset(requirement.extras))
            if one not in seen:
                seen.add(one)
                left.append(one)
    del found["pagewire"]
    return dict(sorted(found.items()))


def listed(path: Path) -> dict[str, str]:
    """Return the packages in a list of NAME==VERSION lines."""
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    pairs = [line.partition("==") for line in lines if "==" in line]
    return {canonicalize_name(name): version.partition("+")[0] for name, _, version in pairs}


def purl(name: str, version: str) -> str:
    """Return the package URL."""
    return f"pkg:pypi/{name}@{version}"


def bill(packages: Versions, version: str) -> dict[str, Any]:
    """Return a CycloneDX document."""
    components = [
        {
            "type": "library",
            "bom-ref": purl(name, number),
            "name": name,
            "version": number,
            "purl": purl(name, number),
            **_license_of(name),
        }
        for name, number in packages.items()
    ]
    own = purl("pagewire", version)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "pagewire",
                "version": version,
                "purl": own,
            },
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _license_of(name: str) -> dict[str, Any]:
    try:
        text = metadata.metadata(name).get("License-Expression")
    except metadata.PackageNotFoundError:
        return {}
    return {"licenses": [{"expression": text}]} if text else {}


def faults(packages: Versions, server: str) -> dict[str, list[str]]:
    """Return the ids of known faults by NAME==VERSION. Raises OSError, ValueError."""
    queries = [{"package": {"purl": purl(*one)}} for one in packages.items()]
    request = urllib.request.Request(
        f"{server}/v1/querybatch",
        json.dumps({"queries": queries}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        results = json.load(answer)["results"]
    if len(results) != len(packages):
        raise ValueError(f"{len(results)} answers to {len(packages)} questions")
    return {
        f"{name}=={version}": [fault["id"] for fault in result["vulns"]]
        for (name, version), result in zip(packages.items(), results, strict=True)
        if result.get("vulns")
    }


def _audit(packages: Versions, server: str) -> int:
    try:
        found = faults(packages, server)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        print(f"{server} cannot be asked, so nothing is known: {reason}", file=sys.stderr)
        return UNASKED
    for package, ids in found.items():
        print(f"{package}: {', '.join(ids)}")
    print(f"{len(packages)} packages, {len(found)} with known faults")
    return FOUND if found else 0


def main() -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(description="Python packages of the images")
    parser.add_argument("command", choices=("constraints", "sbom", "audit"))
    parser.add_argument("file", nargs="?", type=Path, help="what is written")
    parser.add_argument(
        "--list", type=Path, help="NAME==VERSION lines, instead of this environment"
    )
    parser.add_argument(
        "--server", default="https://api.osv.dev", help="where faults are looked up"
    )
    options = parser.parse_args()
    packages = needed() if options.list is None else listed(options.list)
    if not packages:
        parser.error("there are no packages: install Pagewire, or name a --list with some")
    if options.command == "audit":
        return _audit(packages, options.server)
    if options.file is None:
        parser.error("name the file to write")
    if options.command == "constraints":
        text = HEAD + "".join(f"{name}=={version}\n" for name, version in packages.items())
    else:
        text = json.dumps(bill(packages, metadata.version("pagewire")), indent=1) + "\n"
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(text)
    print(f"{options.file}: {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
