"""Stubs of today read what every released version wrote. Also proves that the check can fail."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

import pagewire_protos
from support.scripts import load_script

record_history = load_script("protos/record_history.py")

HISTORY = record_history.HISTORY
CHANGELOG = HISTORY.parents[1] / "CHANGELOG.md"
VERSIONS = sorted(path.parent.name for path in HISTORY.glob(f"*/{record_history.CONTRACT}"))


@pytest.fixture(scope="module", autouse=True)
def stubs() -> None:
    """Import every stub, which registers its messages in the default pool."""
    for module in pkgutil.walk_packages(pagewire_protos.__path__, "pagewire_protos."):
        importlib.import_module(module.name)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history that holds the contract of today."""
    history = tmp_path_factory.mktemp("history")
    record_history.record("9.9.9", history)
    return history


def test_every_released_version_is_recorded_with_every_message() -> None:
    released = re.findall(r"^## \[(\d\S*)\]", CHANGELOG.read_text(), re.MULTILINE)
    assert sorted(released) == VERSIONS
    for version in VERSIONS:
        messages = record_history.load_messages(HISTORY / version / record_history.CONTRACT)
        samples = record_history.load_samples(HISTORY / version)
        assert samples.keys() == messages.keys(), version
        assert all(samples.values()), version


def test_released_samples_still_parse() -> None:
    assert [problem for version in VERSIONS for problem in problems(HISTORY, version)] == []


def test_contract_of_today_reads_itself(recorded: Path) -> None:
    assert problems(recorded, "9.9.9") == []


def test_every_field_of_every_message_is_sampled(recorded: Path) -> None:
    messages = record_history.load_messages(recorded / "9.9.9" / record_history.CONTRACT)
    samples = record_history.load_samples(recorded / "9.9.9")
    assert len(messages) > 20
    for name, message in messages.items():
        seen = {
            field.number
            for sample in samples[name]
            for field, _ in message.FromString(sample).ListFields()
        }
        assert seen == set(message.DESCRIPTOR.fields_by_number), name


def test_recording_is_deterministic(recorded: Path, tmp_path: Path) -> None:
    record_history.record("9.9.9", tmp_path)
    for name in (record_history.CONTRACT, "samples.json"):
        assert (tmp_path / "9.9.9" / name).read_bytes() == (recorded / "9.9.9" / name).read_bytes()


OLD = {"name": "kept", "number": 1, "type": 9}  # a string


@pytest.mark.parametrize(
    ("today", "expected"),
    [
        ({"field": [OLD]}, []),
        ({"field": [{**OLD, "name": "renamed"}]}, []),
        ({"field": [{**OLD, "type": 5}]}, ["x.M.kept: 'kept 0' became 0"]),
        ({"field": []}, ["x.M.kept: removed without being reserved"]),
        ({"field": [], "reserved_range": [{"start": 1, "end": 2}]}, []),
    ],
    ids=["same", "renamed", "retyped", "removed", "reserved"],
)
def test_changes_of_a_field(today: dict[str, Any], expected: list[str]) -> None:
    old = record_history.fill(make_class({"field": [OLD]})(), 0)
    new = make_class(today).FromString(old.SerializeToString())
    assert list(differences(old, new, "x.M")) == expected


def make_class(message: dict[str, Any]) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    description = descriptor_pb2.DescriptorProto(name="M", **message)
    pool.Add(
        descriptor_pb2.FileDescriptorProto(
            name="x.proto", package="x", syntax="proto3", message_type=[description]
        )
    )
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("x.M"))


def problems(history: Path, version: str) -> list[str]:
    """What today's stubs misread, or lose on the way back, of a version's samples."""
    found: list[str] = []
    old_classes = record_history.load_messages(history / version / record_history.CONTRACT)
    for name, samples in record_history.load_samples(history / version).items():
        try:
            descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
        except KeyError:
            found.append(f"{name}: the message is gone")
            continue
        for sample in samples:
            old = old_classes[name].FromString(sample)
            new = message_factory.GetMessageClass(descriptor).FromString(sample)
            found += differences(old, new, name)
            if old_classes[name].FromString(new.SerializeToString()) != old:
                found.append(f"{name}: not the same after a round trip")
    return found


def differences(old: Message, new: Message, path: str) -> Iterator[str]:
    """Compare by field number, which is what counts on the wire; names may change."""
    reserved = descriptor_pb2.DescriptorProto()
    new.DESCRIPTOR.CopyToProto(reserved)
    for field, value in old.ListFields():
        where = f"{path}.{field.name}"
        today = new.DESCRIPTOR.fields_by_number.get(field.number)
        if today is None:
            if not any(r.start <= field.number < r.end for r in reserved.reserved_range):
                yield f"{where}: removed without being reserved"
            continue
        yield from value_differences(value, getattr(new, today.name), where)


def value_differences(old: Any, new: Any, where: str) -> Iterator[str]:
    if isinstance(old, Message):
        if isinstance(new, Message):
            yield from differences(old, new, where)
        else:
            yield f"{where}: a message became {new!r}"
    elif isinstance(old, str | bytes | int | float):
        if type(new) is not type(old) or new != old:
            yield f"{where}: {old!r} became {new!r}"
    elif hasattr(old, "items"):
        if not hasattr(new, "items") or set(old) != set(new):
            yield f"{where}: the map has other keys"
            return
        for key, value in old.items():
            yield from value_differences(value, new[key], f"{where}[{key!r}]")
    elif not hasattr(new, "extend") or len(new) != len(old):
        yield f"{where}: {len(old)} values became {new!r}"
    else:
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from value_differences(before, after, f"{where}[{index}]")
