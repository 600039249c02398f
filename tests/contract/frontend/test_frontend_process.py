"""The frontend as a process: what it imports, how it starts, and how it ends."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from contract.frontend_peers import ScriptedScheduler, listening, served


def start(checkpoint, *flags, scheduler="127.0.0.1:1"):
    command = [sys.executable, "-m", "pagewire_frontend", "--exit-with-parent"]
    command += ["--scheduler", scheduler, "--model", f"tiny={checkpoint}", *flags]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def listening_event(process):
    event = json.loads(process.stdout.readline())
    assert event["pagewire"] == "listening"
    return event


def finish(process):
    # Not communicate: it closes standard input, which is what the death of a parent looks like.
    process.wait(timeout=20)
    with process:
        return process.returncode, process.stdout.read(), process.stderr.read()


def test_no_torch_and_no_transformers_are_loaded(checkpoint):
    code = (
        "import sys, pagewire_frontend.serve as s, pagewire_frontend.models.model_registry as r\n"
        f"r.load_model(r.ModelSpec('m', {str(checkpoint)!r}))\n"
        "bad = [m for m in ('torch', 'transformers', 'safetensors') if m in sys.modules]\n"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_ends_it_with_zero(checkpoint):
    process = start(checkpoint, "--port", "0", "--grpc-port", "0")
    url = f"http://{listening_event(process)['http']}"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/health", timeout=10)
    assert caught.value.code == 503
    caught.value.close()
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0


def test_it_dies_with_its_parent(checkpoint):
    process = start(checkpoint, "--port", "0", "--grpc-port", "0")
    listening_event(process)
    process.stdin.close()
    assert finish(process)[0] != 0


def test_grpc_on_a_unix_socket_and_no_http(checkpoint, tmp_path):
    address = f"unix:{tmp_path}/f.sock"
    process = start(checkpoint, "--no-http", "--grpc-listen", address)
    event = listening_event(process)
    assert (event["grpc"], event["http"]) == (address, None)
    process.terminate()
    assert finish(process)[0] == 0


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_taken_port_is_one_line(checkpoint, flag):
    other = "--grpc-port" if flag == "--port" else "--port"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = finish(start(checkpoint, flag, str(port), other, "0"))
    assert code == 1
    assert json.loads(out)["pagewire"] == "failed"
    assert flag in json.loads(out)["message"]
    assert "Traceback" not in err


def test_a_missing_model_is_one_line(tmp_path):
    code, out, err = finish(start(tmp_path / "nope"))
    assert code == 1
    assert "there is no folder" in json.loads(out)["message"]
    assert "Traceback" not in err


async def test_ready_is_said_once_a_request_would_be_answered(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port:
        process = start(
            checkpoint, "--port", "0", "--grpc-port", "0", scheduler=f"127.0.0.1:{port}"
        )
        lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(2)]
        process.terminate()
        assert (await asyncio.to_thread(finish, process))[0] == 0
    assert [json.loads(line)["pagewire"] for line in lines] == ["listening", "ready"]
