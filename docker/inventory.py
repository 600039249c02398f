"""Lists the Python packages of the images: as pins, as a bill of materials, and by known faults.

    python docker/inventory.py constraints docker/constraints.txt [--hashes INDEX]
    python docker/inventory.py sbom dist/sbom.json [--list requirements.txt]
    python docker/inventory.py audit [--list requirements.txt] [--server https://api.osv.dev]

Without --list these are the packages of this environment that Pagewire's roles need: those that the
tests ran with. With it they are those of an image, as its /opt/pagewire/requirements.txt has them.
With --hashes the files hashes/ROLE.txt beside the constraints are written as well: what an image
installs before anything else, with the SHA-256 of each file of a version, as an index gives them
(PEP 691). A version with a local part, such as 2.11.0+cpu, is not of that index, and left out.
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
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

EXTRAS: Final = frozenset(
    ("frontend", "scheduler", "worker", "kvstore", "otel", "certs", "events", "cuda")
)
"""Of the packages in the images."""
OF_ROLES: Final = {
    "frontend": ("frontend", "otel"),
    "scheduler": ("scheduler", "certs", "events"),
    "worker": ("worker",),
    "kvstore": ("kvstore",),
}
"""The extras in the image of each role."""
HASHES_HEAD: Final = """\
# Packages that the image installs before anything else, each with the hashes of its files. Empty:
# nothing is checked. `make constraints HASHES=INDEX` fills it; see docs/images.md.
"""
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


def hashes(name: str, version: str, index: str) -> list[str]:
    """Return the SHA-256 of the files of one version, in order. Raises OSError, ValueError."""
    request = urllib.request.Request(
        f"{index.rstrip('/')}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        files = json.load(answer)["files"]
    found = sorted(
        one["hashes"]["sha256"] for one in files if _version_of(one["filename"]) == Version(version)
    )
    if not found:
        raise ValueError(f"{index} has no file of {name} {version}")
    return found


def _version_of(filename: str) -> Version | None:
    """Return the version in the name of a wheel or a source package; None for other files."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def is_local(name: str) -> bool:
    """Whether the installed version has a local part: it came from an index of its own."""
    try:
        return "+" in metadata.version(name)
    except metadata.PackageNotFoundError:
        return False


def hashed(packages: Versions, index: str) -> str:
    """Return the lines of a requirements file with hashes. Raises OSError, ValueError."""
    lines = [
        " \\\n    ".join(
            [
                f"{name}=={version}",
                *(f"--hash=sha256:{one}" for one in hashes(name, version, index)),
            ]
        )
        for name, version in packages.items()
        if not is_local(name)
    ]
    return "".join(f"{line}\n" for line in lines)


def constraints(packages: Versions) -> str:
    """Return the lines of a constraints file."""
    return HEAD + "".join(f"{name}=={version}\n" for name, version in packages.items())


def texts_with_hashes(folder: Path, packages: Versions, index: str) -> dict[Path, str]:
    """Return what the files of all roles hold. Raises OSError, ValueError."""
    found = {}
    for role, extras in OF_ROLES.items():
        wanted = {name: packages[name] for name in needed(extras) if name in packages}
        found[folder / "hashes" / f"{role}.txt"] = HASHES_HEAD + hashed(wanted, index)
    return found


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
    parser.add_argument("--hashes", metavar="INDEX", help="index that hashes are taken from")
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
    texts = {}
    if options.command == "sbom":
        text = json.dumps(bill(packages, metadata.version("pagewire")), indent=1) + "\n"
    else:
        text = constraints(packages)
    try:
        if options.hashes is not None:
            texts = texts_with_hashes(options.file.parent, packages, options.hashes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"no hashes, so nothing is written: {error}", file=sys.stderr)
        return UNASKED
    for path, written in {options.file: text, **texts}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(written)
    print(f"{options.file}: {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
