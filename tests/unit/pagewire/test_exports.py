"""What `from pagewire import ...` gives: everything named, and nothing loaded before it is used."""

import subprocess
import sys

import pytest

import pagewire


@pytest.mark.parametrize("name", pagewire.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(pagewire, name) is not None
    assert name in dir(pagewire)


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        pagewire.Nothing  # noqa: B018


def test_parameters_need_no_grpc() -> None:
    program = (
        "import sys\n"
        "from pagewire import SamplingParams, StructuredOutputsParams\n"
        "SamplingParams(structured_outputs=StructuredOutputsParams(regex='a'))\n"
        "assert not {'grpc', 'torch', 'transformers'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
