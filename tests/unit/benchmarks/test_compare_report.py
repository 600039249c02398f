"""The tables of benchmarks/compare, and how servers are named for it."""

from pathlib import Path

import pytest
from compare.peer_names import PeerNameError, our_variants, peer
from compare.peers.llama_cpp import LlamaCpp
from compare.peers.vllm import Vllm
from compare.report import figure, tables
from compare.results import Run, ServerResult, document


def server(label: str, values: list[float], share: float = 0.0) -> ServerResult:
    runs = [Run({"itl_p50_ms": value, "output_rate": 1000 / value}, share) for value in values]
    return ServerResult(label, f"settings of {label}", {"b": runs})


def test_medians_and_spread() -> None:
    assert figure([3.0, 1.0, 2.25], 1) == "2.2 (1.0..3.0)"
    assert figure([1.0, 2.0], 1) == "1.5 (1.0..2.0)"
    assert figure([1.0], 2) == "1.00"
    assert figure([], 2) == "-"


def test_ours_is_compared_with_each_and_with_the_best() -> None:
    servers = [server("ours", [10.0]), server("fast", [5.0]), server("slow", [40.0])]
    text = tables(servers, ["ours"], ["b"])
    assert "| b | ITL median, ms | 0.50 | 4.00 | 0.50 |" in text
    assert "| b | with prefill, tok/s | 0.50 | 4.00 | 0.50 |" in text
    assert "ITL mean, ms | - | - | - |" in text


def test_a_server_that_did_not_start_is_a_row_that_says_why() -> None:
    broken = ServerResult("other", "its settings", failures={"": "not | found"})
    text = tables([server("ours", [10.0]), broken], ["ours"], ["b"])
    assert "| other | its settings | not run: not / found |" in text
    assert "times as good" not in text


def test_a_failed_case_and_foreign_load_are_noted() -> None:
    result = server("ours", [10.0, 11.0], share=0.12)
    result.failures["d"] = "3 of 64 tokens came"
    text = tables([result], ["ours"], ["b", "d"])
    assert "- ours, case d failed: 3 of 64 tokens came" in text
    assert "- ours, foreign CPU in each run: b 12%, 12%" in text


def test_all_figures_are_in_the_document() -> None:
    found = document("machine", {"repeats": 1}, [server("ours", [10.0], 0.5)])
    (one,) = found["servers"]
    assert one["cases"]["b"] == [
        {"figures": {"itl_p50_ms": 10.0, "output_rate": 100.0}, "foreign_share": 0.5}
    ]


def test_variants_of_ours() -> None:
    assert [one.label for one in our_variants([])] == ["pagewire"]
    plain, named, bare = our_variants(["plain=", "int8=--quantization int8", "--max-num-seqs 8"])
    assert (plain.label, plain.arguments) == ("plain", ())
    assert (named.label, named.arguments) == ("int8", ("--quantization", "int8"))
    assert (bare.label, bare.arguments) == ("pagewire --max-num-seqs 8", ("--max-num-seqs", "8"))
    (with_equals,) = our_variants(["--max-num-seqs=8"])
    assert with_equals.arguments == ("--max-num-seqs=8",)


def test_peers() -> None:
    assert peer("vllm=v/python") == Vllm("vllm", Path("v/python"))
    assert peer("vllm=v/python,zentorch=z,label=zen") == Vllm("zen", Path("v/python"), Path("z"))
    made = peer("llama.cpp=server,gguf=m.gguf,args=-fa on --mlock")
    assert made == LlamaCpp("llama.cpp", Path("server"), Path("m.gguf"), ("-fa", "on", "--mlock"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sglang=python", "is not one of vllm, llama.cpp, openvino, transformers"),
        ("llama.cpp=server", "llama.cpp needs gguf="),
        ("vllm=python,gguf=x", "gguf"),
        ("vllm=", "no path"),
    ],
)
def test_names_that_mean_nothing(text: str, reason: str) -> None:
    with pytest.raises(PeerNameError, match=reason):
        peer(text)
