"""The generator's edits to protoc's output, and the drift report."""

from pathlib import Path

import pytest

from support.scripts import load_script

generate = load_script("protos/generate.py")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "from pagewire.common.v1 import sampling_pb2 as x\n",
            "from pagewire_protos.common.v1 import sampling_pb2 as x\n",
        ),
        (
            "_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'pagewire.a.v1.a_pb2', _globals)",
            "_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'pagewire_protos.a.v1.a_pb2',"
            " _globals)",
        ),
        ("'/pagewire.a.v1.AService/Ping'", "'/pagewire.a.v1.AService/Ping'"),
        ("from pagewire_shared import x", "from pagewire_shared import x"),
        (
            "        context: _aio.ServicerContext[_a.Req, _abc.Awaitable[_a.Rep]],",
            "        context: _aio.ServicerContext[_a.Req, _a.Rep],",
        ),
        (
            "        context: _aio.ServicerContext"
            "[_abc_1.AsyncIterator[_a.Req], _abc_1.AsyncIterator[_a.Rep]],",
            "        context: _aio.ServicerContext[_a.Req, _a.Rep],",
        ),
        ("    ) -> _abc.Awaitable[_a.Rep]:", "    ) -> _abc.Awaitable[_a.Rep]:"),
    ],
)
def test_re_root(before: str, after: str) -> None:
    assert generate.re_root(before) == after


def test_equal_trees_do_not_differ() -> None:
    assert generate.compare({"a.py": "x\n"}, {"a.py": "x\n"}) == []


def test_report_names_missing_unexpected_and_changed_files() -> None:
    report = generate.compare({"new.py": "", "a.py": "x\n"}, {"old.py": "", "a.py": "y\n"})
    assert report[:2] == ["missing: new.py", "unexpected: old.py"]
    assert "-y" in report
    assert "+x" in report


def test_check_prints_the_repairing_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    for name, text in (("fresh", "x\n"), ("committed", "y\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(text)
    assert generate.check(tmp_path / "fresh", tmp_path / "committed") == 1
    assert "make proto" in capsys.readouterr().out
    assert generate.check(tmp_path / "fresh", tmp_path / "fresh") == 0
