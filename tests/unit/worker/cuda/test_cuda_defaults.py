"""What a worker on CUDA does unless it is told otherwise."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pagewire_worker.cuda.defaults import set_allocator, step_defaults

PYPROJECT = Path(__file__).resolve().parents[4] / "pyproject.toml"
GIB = 1024**3


@pytest.mark.parametrize(
    ("gib", "num_tokens", "num_seqs"),
    [
        (8, 2048, 256),
        (23.6, 2048, 256),  # 24 GB
        (39.4, 4096, 256),  # A100 with 40 GB
        (44.4, 4096, 256),  # L40S
        (79.1, 8192, 512),  # H100
        (139.7, 8192, 512),  # H200
    ],
)
def test_steps_are_as_large_as_a_device_has_room_for(gib, num_tokens, num_seqs):
    found = step_defaults(int(gib * GIB))
    assert (found.num_tokens, found.num_seqs) == (num_tokens, num_seqs)


def test_steps_have_room_for_a_token_of_every_sequence():
    for gib in (0, 36, 72, 1000):
        found = step_defaults(gib * GIB)
        assert found.num_tokens >= found.num_seqs


def test_segments_of_the_allocator_grow():
    environ = {"HOME": "/"}
    set_allocator(environ)
    assert environ == {"HOME": "/", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_an_allocator_that_somebody_has_set_stays(name):
    environ = {name: "max_split_size_mb:512"}
    set_allocator(environ)
    assert environ == {name: "max_split_size_mb:512"}


def test_the_allocator_is_set_before_torch_is_loaded():
    code = (
        "import os, sys; os.environ.pop('PYTORCH_CUDA_ALLOC_CONF', None)\n"
        "class Torch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF')); os._exit(0)\n"
        "sys.meta_path.insert(0, Torch())\n"
        "from pagewire_worker.__main__ import load\n"
        "load()\n"
    )
    done = subprocess.run(
        [sys.executable, "-u", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "expandable_segments:True", done.stderr


def test_torch_is_new_enough_for_rows_of_8_bit_floats_in_float16():
    # _scaled_mm with scales by rows gives float16 since 2.10; the floor is a release above.
    given = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    torches = [
        Requirement(text)
        for texts in given.values()
        for text in texts
        if Requirement(text).name == "torch"
    ]
    assert torches
    for requirement in torches:
        assert not any(requirement.specifier.filter(["2.9.1", "2.10.0", "2.10.99"]))
        assert requirement.specifier.contains("2.11.0")
