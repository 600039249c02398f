"""A frontend that is out of descriptors or memory answers 503, in every place that may meet it."""

import asyncio
import errno
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from pagewire_frontend.http.body.json_reader import JsonReader
from pagewire_frontend.http.kept_streams import local_streams
from pagewire_frontend.http.kept_streams.ids import StreamNotFoundError
from pagewire_frontend.http.kept_streams.local_streams import JournalLimits, LocalStreams
from pagewire_frontend.http.server.errors import install_handlers
from pagewire_frontend.models.chat_template import ChatTemplate
from pagewire_frontend.prompts import template_link, template_renderer
from pagewire_frontend.prompts.generation_request import ChatPrompt
from pagewire_frontend.prompts.template_renderer import TemplateRenderer
from pagewire_frontend.prompts.text_budget import TextBudget
from pagewire_shared.errors import InternalError, UnavailableError
from pagewire_shared.exhaustion import ExhaustedError

NO_FILE = OSError(errno.EMFILE, "Too many open files")
OTHER = OSError(errno.ENOENT, "No such file or directory")


async def answer_of(error: Exception) -> httpx.Response:
    app = FastAPI()
    install_handlers(app)

    @app.get("/")
    async def fail() -> None:
        raise error

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.get("/")


@pytest.mark.parametrize("error", [NO_FILE, MemoryError(), RuntimeError("can't start new thread")])
async def test_a_request_may_be_repeated_elsewhere(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await answer_of(error)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "out of resources" in answer.json()["error"]["message"]
    assert [one for one in caplog.records if one.exc_info] == []
    assert "out of resources" in caplog.text


@pytest.mark.parametrize("error", [OTHER, RuntimeError("x"), ValueError("x")])
async def test_other_faults_stay_faults(error: Exception) -> None:
    assert (await answer_of(error)).status_code == 500


class Model:
    name = "m"
    chat_template = ChatTemplate("{{ messages[0].content }}", {})

    class Formats:
        harmony = None

    formats = Formats


PROMPT = ChatPrompt([{"role": "user", "content": "Hello"}])


@pytest.fixture
async def renderer() -> AsyncIterator[TemplateRenderer]:
    made = TemplateRenderer(TextBudget(2**20))
    yield made
    made.close()


@pytest.mark.parametrize(("error", "kind"), [(NO_FILE, ExhaustedError), (OTHER, InternalError)])
async def test_templates_are_rendered_again_later(
    renderer: TemplateRenderer,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[Exception],
) -> None:
    def no_pair() -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("socket.socketpair", no_pair)
        with pytest.raises(kind):
            await renderer.render(Model, PROMPT, None)  # type: ignore[arg-type]
    assert await renderer.render(Model, PROMPT, None) == "Hello"  # type: ignore[arg-type]


async def test_a_renderer_that_has_ended_is_replaced_though_no_thread_can_wait_for_it(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await renderer.render(Model, PROMPT, None) == "Hello"  # type: ignore[arg-type]
    link = renderer._idle[0]

    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", no_thread)
        link.kill()
    assert await renderer.render(Model, PROMPT, None) == "Hello"  # type: ignore[arg-type]


async def test_a_renderer_that_cannot_begin_is_no_fault_of_the_messages(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_link, "MODULE", "no.such.module")
    with pytest.raises(UnavailableError, match="before they have begun"):
        await renderer.render(Model, PROMPT, None)  # type: ignore[arg-type]
    assert len(renderer._links) == 0
    assert template_renderer.NUM_ATTEMPTS > 1


async def test_the_parser_of_large_bodies_is_started_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = JsonReader(2**20)

    def no_process(*_: object, **__: object) -> None:
        raise NO_FILE

    try:
        with monkeypatch.context() as patched:
            patched.setattr("subprocess.Popen", no_process)
            with pytest.raises(ExhaustedError):
                await reader.read(None, [b" " * 2**20, b"{}"], dict)
        assert await reader.read(None, [b" " * 2**20, b"{}"], dict) == {}
    finally:
        reader.close()


@pytest.mark.parametrize("tenant", ["own", None])
async def test_a_kept_stream_is_left_to_others(tenant: str | None) -> None:
    streams = LocalStreams("0" * 8, JournalLimits(retention_seconds=0.3, max_bytes=2**20))
    may_fail = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await may_fail.wait()
        raise NO_FILE

    kept = streams.keep(events(), lambda: None, tenant)
    reading = streams.reading(kept, 0)
    may_fail.set()
    frames = [frame async for ready in reading.frames for frame in ready]
    assert len(frames) == 2
    assert frames[1].startswith(b"data: "), "the error has no number: more events may come"
    assert (len(streams), streams.num_bytes) == (0, 0)
    with pytest.raises(UnavailableError):  # others of the group are asked then
        await streams.read(kept.stream_id, tenant, 1)
    with pytest.raises(StreamNotFoundError):
        await streams.read(kept.stream_id, "other", 1)
    await asyncio.sleep(0.4)
    with pytest.raises(StreamNotFoundError):
        await streams.read(kept.stream_id, tenant, 1)
    streams.close()


async def test_few_streams_are_remembered_as_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_streams, "MAX_GIVEN_UP", 2)
    streams = LocalStreams("0" * 8, JournalLimits(retention_seconds=60.0, max_bytes=2**20))

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise NO_FILE

    names = []
    for _ in range(3):
        kept = streams.keep(events(), lambda: None, "own")
        names.append(kept.stream_id)
        async for _ready in streams.reading(kept, 0).frames:
            pass
    with pytest.raises(StreamNotFoundError):
        await streams.read(names[0], "own", 1)
    for name in names[1:]:
        with pytest.raises(UnavailableError):
            await streams.read(name, "own", 1)
    streams.close()
