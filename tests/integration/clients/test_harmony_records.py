"""The records that the tests of harmony compare with are what openai-harmony makes today."""

import subprocess
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
RECORDED = TESTS / "unit" / "frontend" / "message" / "harmony.json"


def test_the_library_makes_the_same_records(clients_python: str, tmp_path: Path) -> None:
    made = tmp_path / "harmony.json"
    script = TESTS / "clients" / "harmony_record.py"
    subprocess.run([clients_python, str(script), str(made)], check=True, timeout=100)
    assert made.read_text() == RECORDED.read_text()
