"""Connectors by name, and the one that docs/connectors.md shows."""

import re
import sys
import types
from contextlib import aclosing

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.connectors.making import make_connector
from pagewire_worker.connectors.transfer_config import ConnectorChoice
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from support.source_tree import ROOT

LAYOUT = BlockLayout(b"m" * 32, b"n" * 32, (CacheGroup(1, 16, 64, "float32"),))
OTHER = BlockLayout(b"x" * 32, b"n" * 32, LAYOUT.groups)


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The connector of the documentation, found as a plug-in."""
    text = (ROOT / "docs" / "connectors.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module = types.ModuleType("folder_connector")
    exec(compile(source, "docs/connectors.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "folder_connector", module)
    monkeypatch.setenv("BLOCK_FOLDER", str(tmp_path))
    return make_connector(ConnectorChoice("folder_connector:FolderConnector"))


def block(index):
    return OutgoingBlock(bytes([index]) * 16, None, memoryview(bytes([index]) * 64))


async def got(connector, names):
    async with aclosing(connector.get("", names, 5.0)) as blocks:
        return [(loaded.name, bytes(loaded.payload)) async for loaded in blocks]


async def test_the_example_keeps_blocks(example, tmp_path):
    await example.register(LAYOUT, [])
    blocks = [block(index) for index in range(4)]
    names = [each.name for each in blocks]
    assert await example.put(blocks[:3]) == set(names[:3])
    expected = [(each.name, bytes(each.payload)) for each in blocks]
    assert await got(example, names) == expected[:3]
    (file,) = tmp_path.glob(f"*/{names[1].hex()}")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert await got(example, names) == expected[:1]
    await example.register(OTHER, [])
    assert await got(example, names) == []
    await example.close()


def test_the_own_connector_is_the_default():
    assert isinstance(make_connector(ConnectorChoice("pagewire")), KvStoreConnector)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing", "is no MODULE:CLASS"),
        (":Class", "is no MODULE:CLASS"),
        ("no_such_module_here:Class", "No module named"),
        ("json:Class", "no attribute 'Class'"),
        ("json:JSONDecoder", "has no register, put, get"),
        ("json:loads", "missing 1 required"),
    ],
)
def test_a_bad_name_is_refused_at_start(name, text):
    with pytest.raises(StartupError, match=re.escape(text)) as caught:
        make_connector(ConnectorChoice(name))
    assert caught.value.field == "kv_connector"
