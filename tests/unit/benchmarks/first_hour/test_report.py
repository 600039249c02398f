"""Reports and the page of checks, from made-up states."""

import json

import pytest
from hour.fill import between_markers, filled_page
from hour.findings import figures, findings, outcome_of_check
from hour.plan import ITEMS
from hour.report import as_json, as_markdown, write
from hour.state import facts_of

from ..conftest import BENCHMARKS
from .conftest import ENVIRONMENT

PAGE = (BENCHMARKS.parent / "docs" / "gpu-checks.md").read_text()


def end(name, outcome="passed", **more):
    settled = {"code": 0, "seconds": 9.0, "at": 1.8e9, "output": "", "elapsed": 9.0}
    return {"event": "end", "item": name, "outcome": outcome, **settled, **more}


def tables(*found):
    return {"result": {"tables": [{"title": title, "rows": rows} for title, rows in found]}}


def steps(row, batch, in_flight, variant="graphs", **cells):
    where = {"row": row, "variant": variant, "batch": batch, "context": 1024}
    return {**where, "in flight": in_flight, "step ms": 1.0, "tok/s": 1.0, "idle ms": 0.1, **cells}


def job(row, path, speed):
    title = "256 requests, 142,827 tokens in, 133,966 out"
    return tables((title, [{"row": row, "path": path, "tok/s": speed}]))


def tax(what, before, after):
    return {
        "what": what,
        "in flight": 2,
        "step ms": after,
        "ms without": before,
        "speed-up": before / after,
    }


RECORDS = [
    {"event": "call", "elapsed": 0.0},
    end("environment", result=ENVIRONMENT),
    end("launch"),
    end("attention-first", tests={"passed": 1}, failed_tests=[]),
    end(
        "attention",
        "failed",
        code=1,
        tests={"passed": 110, "failed": 2},
        failed_tests=["tests/gpu/test_cuda_attention.py::test_x[0-a|b]"],
        output="E   CUDA error: an illegal memory access was encountered",
    ),
    end("model-eager"),
    end("model-captured", "crashed", code=-11, output="Fatal Python error: Segmentation fault"),
    end("kernels-8b", **tables(("qwen3-8b: paged attention (row 9: decodes at batch 64)", [
        {"kernel": "decode, batch 16, context 1024", "of the limit": 0.1},
        {"kernel": "decode, batch 64, context 1024", "of the limit": 0.91},
        {"kernel": "decode, batch 64, context 4096", "of the limit": 0.80},
    ]))),
    end("steps-8b", **tables(("qwen3-8b: decode steps, graphs", [
        steps("4", 1, 1, **{"tok/s": 90.0}),
        steps("4", 1, 2, **{"tok/s": 250.0}),
        steps("6", 64, 2, **{"step ms": 6.5}),
        steps("10", 256, 2, **{"idle ms": 0.1}),
        steps(None, 1, 2, **{"tok/s": 1.0}),
    ]))),
    end("steps-0.6b", **tables(("qwen3-0.6b: decode steps, graphs", [
        steps("10", 256, 2, **{"idle ms": 0.4}),
    ]))),
    end("job-0.6b-eager", **job("1", "in-process", 13_000.0)),
    end("job-8b", **job("2", "in-process", 10_400.0)),
    end("job-8b-served", **job("3", "served", 10_192.0)),
    end("exact-fp8-0.6b", **tables(("qwen3-0.6b: compared", [
        tax("exact mode (row 11)", 5.0, 5.4), tax("fp8 KV (row 12)", 9.0, 5.0),
    ]))),
    end("invariance", **tables(("qwen3-0.6b: the same requests alone and mixed (row 11)", [
        {"mixed batches": 10_020, "steps": 1, "answers": 96, "other tokens": 1,
         "same tokens, other log-probabilities": 2},
    ]))),
]  # fmt: skip

FACTS = facts_of(RECORDS)


@pytest.fixture
def rows():
    return {row.goal.number: row for row in figures(ITEMS, FACTS, {"2": {"expected": 9000.0}})}


def test_figures_come_to_their_goals_with_the_share_of_each(rows):
    seen = {number: row.seen.value for number, row in rows.items()}
    assert seen == {
        **{1: 13_000.0, 2: 10_400.0, 3: pytest.approx(0.98), 4: 250.0, 5: None, 6: 6.5},
        **{7: None, 8: None, 9: 0.80, 10: 0.4, 11: pytest.approx(8.0), 12: pytest.approx(1.8)},
    }
    assert rows[6].share == pytest.approx(6.2 / 6.5)
    assert rows[2].share == pytest.approx(1.04)
    assert rows[2].expected == 9000.0
    reached = [number for number, row in rows.items() if row.verdict.startswith("reached")]
    assert reached == [2, 3, 4, 12]
    assert rows[5].verdict == "not measured"


def test_figures_without_graphs_and_without_proof_are_marked(rows):
    assert "without graphs" in rows[1].verdict
    assert "not shown to be right: attention failed" in rows[9].verdict
    # It costs less than was asked for, but bits differ.
    assert rows[11].verdict.startswith("not reached; 3 of 96 answers differ in 10020 mixed")


def test_failures_have_the_shortest_command_and_what_they_block():
    found = {finding.item: finding for finding in findings(ITEMS, FACTS)}
    assert set(found) == {"attention", "model-captured"}
    command = found["attention"].reproduction
    assert command.startswith("CUDA_LAUNCH_BLOCKING=1 python -m pytest")
    assert command.endswith("'tests/gpu/test_cuda_attention.py::test_x[0-a|b]'")
    captured = found["model-captured"]
    assert captured.reproduction == "CUDA_LAUNCH_BLOCKING=1 python benchmarks/gpu/smoke.py captured"
    assert {"graphs-states", "job-0.6b", "ttft-8b"} <= set(captured.blocks)
    assert "greedy-first" not in captured.blocks


def test_a_crash_inside_a_selection_names_the_test_that_ran():
    crash = end("sampling", "hung", code=-6, last_test="tests/gpu/test_cuda_sampling.py::test_a")
    (found,) = findings(ITEMS, facts_of([crash]))
    assert found.reproduction.endswith(" -v tests/gpu/test_cuda_sampling.py::test_a")
    killed = {"event": "start", "item": "sampling", "token": "t"}
    (found,) = findings(ITEMS, facts_of([killed, killed]))
    assert found.outcome.startswith("interrupted")


def test_the_report_says_everything_in_both_forms(tmp_path):
    write(tmp_path, ITEMS, FACTS, {}, is_toy=False)
    found = json.loads((tmp_path / "report.json").read_text())
    assert found == json.loads(json.dumps(as_json(ITEMS, FACTS, {}, is_toy=False)))
    assert found["not_run"]["job-0.6b"] == "blocked: model-captured crashed"
    assert found["environment"] == ENVIRONMENT
    text = (tmp_path / "report.md").read_text()
    assert text == as_markdown(ITEMS, FACTS, {}, is_toy=False)
    for wanted in ("NVIDIA H200", "Segmentation fault", "| graphs-states | blocked", "It blocks: "):
        assert wanted in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]
    lacking = {**ENVIRONMENT, "missing_modules": ["grpc_health", "yaml"]}
    text = as_markdown(ITEMS, facts_of([end("environment", result=lacking)]), {}, is_toy=False)
    assert "--python-version 3.12 grpcio-health-checking PyYAML`" in text
    assert "not known" in as_markdown(ITEMS, facts_of([]), {}, is_toy=False)


def test_outcomes_of_checks():
    assert outcome_of_check("sampling on CUDA", ITEMS, FACTS) == ""
    assert outcome_of_check("a whole job", ITEMS, FACTS).startswith("NVIDIA H200, 2027-01-15: ")
    found = outcome_of_check("kernels of paged attention", ITEMS, FACTS)
    assert "111 tests passed; attention failed, 2 tests: `CUDA_LAUNCH_BLOCKING=1 " in found
    assert "not run: graphs-states, graphs-tokens" in outcome_of_check(
        "captured decodes", ITEMS, FACTS
    )


def test_the_page_is_filled_and_what_did_not_run_stays():
    page = filled_page(PAGE, ITEMS, FACTS, {"12": {"expected": 1.5}})
    before, after = (text.splitlines() for text in (PAGE, page))
    assert len(before) == len(after)
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    checks = [new.split("|")[1].strip() for _, new in changed if "NVIDIA H200" in new]
    wanted = {item.check for item in ITEMS if item.check and item.name in FACTS.ends}
    assert set(checks) == wanted
    assert {len(new) for _, new in changed if not new.startswith("|")} == set()
    (attention,) = [new for _, new in changed if new.startswith("| kernels of paged")]
    # A bar inside a cell would begin another one.
    assert "[0-a\\|b]" in attention
    assert "| 12 | fp8 KV" in page
    assert "1.5 | 1.8 | 106% | reached" in page
    (sampling,) = [line for line in before if line.startswith("| sampling on CUDA")]
    assert sampling in after
    assert filled_page(page, ITEMS, FACTS, {"12": {"expected": 1.5}}) == page
    # Later states without figures leave those that are there.
    assert "| 106% | reached" in filled_page(page, ITEMS, facts_of(RECORDS[:3]), {})


def test_a_page_without_markers_is_an_error():
    with pytest.raises(ValueError, match="first hour: plan"):
        between_markers("text", "plan", "x")
