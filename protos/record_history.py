"""Store the contract of a released version in protos/history, so that later stubs are held to it.

``record_history.py VERSION`` writes ``history/<version>/contract.binpb`` (a FileDescriptorSet with
imports, what ``buf breaking`` compares with) and ``history/<version>/samples.json`` (full message
name -> base64 of serialized samples). Owns how samples are made and compared; never touches a
.proto file.
"""

import argparse
import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

PROTOS = Path(__file__).resolve().parent
HISTORY = PROTOS / "history"
CONTRACT = "contract.binpb"
OWN_FILES = "pagewire/"

# Messages may contain themselves; samples stop nesting here.
MAX_DEPTH = 4

MESSAGE = FieldDescriptor.CPPTYPE_MESSAGE


def main() -> int:
    """Record one version; refuses to overwrite, since history is what was shipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="as in CHANGELOG.md, such as 0.2.0")
    version = parser.parse_args().version
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        parser.error(f"version: {version!r} is not of the form 1.2.3")
    if (HISTORY / version / CONTRACT).exists():
        parser.error(f"version: {version} is recorded already")
    record(version, HISTORY)
    print(f"wrote {CONTRACT} and samples.json in history/{version}")
    return 0


def record(version: str, history: Path) -> None:
    """Write the contract of today's .proto files, and samples of it, as ``version``."""
    folder = history / version
    folder.mkdir(parents=True)
    image = folder / CONTRACT
    buf = Path(sys.executable).with_name("buf")
    build = (buf, "build", "--as-file-descriptor-set", "--exclude-source-info", "-o", image)
    subprocess.run(build, cwd=PROTOS, check=True)
    samples = make_samples(load_messages(image))
    encoded = {
        name: [base64.b64encode(sample).decode() for sample in samples[name]]
        for name in sorted(samples)
    }
    (folder / "samples.json").write_text(json.dumps(encoded, indent=1) + "\n")


def load_samples(folder: Path) -> dict[str, list[bytes]]:
    """Return full message name -> serialized samples, as ``record`` stored them."""
    encoded: dict[str, list[str]] = json.loads((folder / "samples.json").read_text())
    return {name: [base64.b64decode(item) for item in items] for name, items in encoded.items()}


def load_messages(image: Path) -> dict[str, type[Message]]:
    """Return full name -> class of every message in a stored FileDescriptorSet.

    The classes live in a pool of their own: they show the contract as it was, whatever the stubs
    of today say.
    """
    files = descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:  # sorted by the compiler: a file comes after what it imports
        pool.Add(file)
    return {
        message.full_name: message_factory.GetMessageClass(message)
        for file in files
        if file.name.startswith(OWN_FILES)
        for top in pool.FindFileByName(file.name).message_types_by_name.values()
        for message in walk(top)
    }


def walk(message: Descriptor) -> Iterator[Descriptor]:
    """Yield a message and those declared in it; map entries are no messages of their own."""
    yield message
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            yield from walk(nested)


def make_samples(messages: dict[str, type[Message]]) -> dict[str, list[bytes]]:
    """Serialize every message with every field set; one sample per member of its largest oneof."""
    return {
        name: [
            fill(message(), variant).SerializeToString(deterministic=True)
            for variant in range(num_variants(message.DESCRIPTOR))
        ]
        for name, message in messages.items()
    }


def num_variants(message: Descriptor) -> int:
    """Return how many samples show every member of every oneof at least once."""
    return max((len(oneof.fields) for oneof in message.oneofs), default=1)


def fill(message: Message, variant: int, depth: int = 0) -> Message:
    """Set every field to a value derived from its number and name, none of them a default."""
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.fields[variant % len(oneof.fields)] != field:
            continue
        if field.cpp_type == MESSAGE and depth == MAX_DEPTH:
            continue
        set_field(message, field, depth)
    return message


def set_field(message: Message, field: FieldDescriptor, depth: int) -> None:
    """Fill one field; repeated ones and maps get two entries."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entries = getattr(message, field.name)
        key_field, value_field = field.message_type.fields
        for index in range(2):
            key = scalar(key_field, index)
            if value_field.cpp_type == MESSAGE:
                fill(entries[key], 0, depth + 1)
            else:
                entries[key] = scalar(value_field, index)
    elif field.is_repeated:
        values = getattr(message, field.name)
        for index in range(2):
            if field.cpp_type == MESSAGE:
                fill(values.add(), index, depth + 1)
            else:
                values.append(scalar(field, index))
    elif field.cpp_type == MESSAGE:
        inner = getattr(message, field.name)
        inner.SetInParent()
        fill(inner, 0, depth + 1)
    else:
        setattr(message, field.name, scalar(field, 0))


def scalar(field: FieldDescriptor, index: int) -> Any:
    """Return a value that differs from the default, between fields, and by ``index``."""
    if field.enum_type is not None:
        numbers = sorted(value.number for value in field.enum_type.values)
        return numbers[-1 - index % len(numbers)]
    if field.type == FieldDescriptor.TYPE_BOOL:
        return index == 0
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{field.name} {index}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return f"{field.name} {index}".encode()
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return field.number + index + 0.5
    return 1000 * field.number + index


if __name__ == "__main__":
    sys.exit(main())
