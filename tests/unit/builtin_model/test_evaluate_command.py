"""The command that examines a server: its exit status follows the answers; it hides no error."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import evaluate
import pytest
from builtin_recipe.evaluation.endpoint import messages
from builtin_recipe.evaluation.exam import CELLS, chosen_cells, draw_questions

from support.processes.processes import free_port

NUM_ASKED = 6
SKILLS = "copy,json"
# A cell that is only reported.
UNBOUND = "values of 2 to 4 keys in 20 lines"


def story_for(question):
    return " ".join(["the"] * question.min_words)


class Handler(BaseHTTPRequestHandler):
    """A server that knows the right answers; `server.mode` says what it does with them."""

    def do_GET(self):
        self.reply(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert request["temperature"] == 0.0
        answer = self.server.answers[json.dumps(request["messages"])]
        if self.server.mode == "broken":
            return self.reply(500, {"error": {"message": "out of order"}})
        text = {"right": answer, "wrong": "no", "cut": answer}[self.server.mode]
        reason = "length" if self.server.mode == "cut" else "stop"
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": reason, "message": message}
        return self.reply(200, {"id": "1", "object": "chat.completion", "choices": [choice]})

    def reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the usual 5 the kernel drops some of 32 connections at a time


@pytest.fixture(scope="module")
def server():
    with Server(("127.0.0.1", 0), Handler) as running:
        running.answers = {
            json.dumps(messages(one)): one.wanted if one.topic is None else story_for(one)
            for one in draw_questions(CELLS, 6)
        }
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def examined(server, capsys):
    """Examine the server in a mode; return the exit status and what was printed."""

    def examine_server(mode, *options):
        server.mode = mode
        url = f"http://127.0.0.1:{server.server_port}/v1"
        status = evaluate.main(["--url", url, "--limit", str(NUM_ASKED), *options])
        return status, capsys.readouterr()

    return examine_server


def test_right_answers_end_with_status_0(examined):
    status, printed = examined("right")
    assert status == 0
    assert "no cell is below its floor" in printed.out
    lines = {line[:42].strip(): line for line in printed.out.splitlines()}
    assert f"{6 * len(CELLS)} of   {6 * len(CELLS)}  1.000" in lines["total"]
    assert "- " in lines[UNBOUND]


@pytest.mark.parametrize("mode", ["wrong", "cut"])
def test_wrong_and_cut_answers_end_with_status_1(examined, mode):
    status, printed = examined(mode, "--skills", SKILLS, "--wrong", "1")
    assert status == 1
    num_cells = sum(cell.floor is not None for cell in chosen_cells(SKILLS.split(",")))
    assert f"cells below their floor: {num_cells}" in printed.out
    assert printed.out.count("<- below its floor: trained, held out") == num_cells
    assert printed.out.count("[json, held out]") == 1
    assert ("[cut]" in printed.out) == (mode == "cut")


def test_no_floor_no_failure(examined):
    assert examined("wrong", "--skills", UNBOUND)[0] == 0


def test_failed_requests_are_wrong_counted_and_named(examined):
    status, printed = examined("broken", "--skills", SKILLS)
    assert status == 2
    num_asked = 2 * NUM_ASKED * len(chosen_cells(SKILLS.split(",")))
    assert f"{num_asked} requests failed: InternalServerError: HTTP 500: " in printed.out
    assert "out of order" in printed.out
    assert printed.err == "evaluate.py: not one request was answered\n"


def test_a_stored_result_is_compared_per_cell(examined, tmp_path):
    path = tmp_path / "result.json"
    assert examined("right", "--skills", SKILLS, "--json", str(path))[0] == 0
    assert json.loads(path.read_text())["cells"][0]["trained"]["share"] == 1.0
    options = ("--skills", "count,json", "--compare", str(path))
    status, printed = examined("right", *options)
    assert status == 1
    assert "is not in the stored result" in printed.out
    options = ("--skills", "json", "--compare", str(path))
    assert examined("right", *options)[0] == 0
    status, printed = examined("wrong", *options)
    assert status == 1
    assert "<- differs" in printed.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--skills", "dancing"], "no skill dancing; there are: copy, "),
        (["--model", "other"], "serves m, not other"),
        (["--compare", "/nowhere.json"], "/nowhere.json"),
    ],
)
def test_usage_errors_are_one_line_and_status_2(examined, options, message):
    status, printed = examined("right", *options)
    assert status == 2
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_no_server_is_one_line_and_status_2(capsys):
    assert evaluate.main(["--limit", "1", "--url", f"http://127.0.0.1:{free_port()}/v1"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("evaluate.py: no answer from http://127.0.0.1:")
    assert printed.err.count("\n") == 1
    assert evaluate.main(["--limit", "1", "--url", "127.0.0.1:8000"]) == 2
    assert "is no URL" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        evaluate.main(["--limit", "0"])
    assert ended.value.code == 2


def test_questions_of_the_command_line_are_asked(examined, server):
    asked = [{"role": "user", "content": "Hello?"}]
    server.answers[json.dumps(asked)] = "Hello!"
    status, printed = examined("right", "--ask", "Hello?")
    assert (status, printed.out) == (0, "> Hello?\nHello!\n\n")


def test_the_table_goes_between_the_markers(tmp_path):
    card = tmp_path / "README.md"
    card.write_text(f"before\n{evaluate.START}\nold\n{evaluate.END}\nafter\n")
    evaluate.write_table("new", card)
    assert card.read_text() == f"before\n{evaluate.START}\nnew\n{evaluate.END}\nafter\n"
