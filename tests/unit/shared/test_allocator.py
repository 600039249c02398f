"""Processes through which KV passes start with an allocator that keeps the memory of messages."""

import os
import subprocess
import sys

import pytest

from pagewire_shared.process.allocator import with_allocator_settings

# How often 64 times 1 MiB, written and given back in turn, takes a page from the kernel.
FAULTS = """
import resource
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    b"x" * 2**20
before = faults()
for _ in range(64):
    b"x" * 2**20
print(faults() - before)
"""


@pytest.mark.parametrize("role", ["worker", "kvstore"])
def test_roles_that_move_kv_get_the_settings(role):
    environ = with_allocator_settings({"HOME": "h"}, role)
    assert environ.pop("HOME") == "h"
    assert set(environ) == {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}
    assert all(int(value) > 2 * 2**20 for value in environ.values())


@pytest.mark.parametrize("role", ["frontend", "scheduler"])
def test_other_roles_do_not_get_the_settings(role):
    assert with_allocator_settings({"HOME": "h"}, role) == {"HOME": "h"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "1"),
        ("LD_PRELOAD", "libjemalloc.so.2"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1"),
    ],
)
def test_settings_of_the_environment_are_kept(name, value):
    assert with_allocator_settings({name: value}, "worker") == {name: value}


def test_other_tunables_do_not_prevent_the_settings():
    environ = with_allocator_settings({"GLIBC_TUNABLES": "glibc.cpu.x86_ibt=off"}, "worker")
    assert "MALLOC_MMAP_THRESHOLD_" in environ


def test_freed_message_memory_is_reused():
    """Fixed thresholds below a message, as a process that has not grown its own yet, cost pages."""

    def faults(environ):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS], env=environ, capture_output=True, check=True
        )
        return int(done.stdout)

    plain = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    assert faults(with_allocator_settings(plain, "kvstore")) < 64
    assert faults({**plain, "MALLOC_MMAP_THRESHOLD_": str(2**17)}) > 64 * 200
