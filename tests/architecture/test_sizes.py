"""Files and functions stay short; what may be longer says why in exceptions.toml."""

from support.source_tree import exceptions, functions, python_files, relative

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50


def long_files() -> dict[str, int]:
    lines = {relative(path): len(path.read_text().splitlines()) for path in python_files()}
    return {place: count for place, count in lines.items() if count > MAX_FILE_LINES}


def long_functions() -> dict[str, int]:
    return {
        f"{relative(path)}::{function.name}": function.num_lines
        for path in python_files()
        for function in functions(path.read_text())
        if function.num_lines > MAX_FUNCTION_LINES
    }


def test_files_are_short() -> None:
    allowed = exceptions()["file_length"]
    assert {k: v for k, v in long_files().items() if k not in allowed} == {}


def test_functions_are_short() -> None:
    allowed = exceptions()["function_length"]
    assert {k: v for k, v in long_functions().items() if k not in allowed} == {}


def test_no_exception_is_stale() -> None:
    assert set(exceptions()["file_length"]) - set(long_files()) == set()
    assert set(exceptions()["function_length"]) - set(long_functions()) == set()


def test_every_exception_has_a_reason() -> None:
    for table in exceptions().values():
        assert all(len(reason.split()) >= 4 for reason in table.values()), table


def test_counting_leaves_docstrings_out() -> None:
    source = (
        'class A:\n    async def f(self):\n        """One.\n\n        Two."""\n        return 1\n'
    )
    assert [(f.name, f.num_lines) for f in functions(source)] == [("A.f", 2)]
