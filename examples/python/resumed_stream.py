"""A streamed chat with the OpenAI library that goes on when its connection or frontend breaks."""

# pip install openai
# python resumed_stream.py BASE_URL MODEL   (such as http://127.0.0.1:8000/v1 pagewire-builtin)

import sys
import time
from collections.abc import Iterator

import httpx
from openai import APIConnectionError, APIError, APIStatusError, OpenAI, Stream
from openai.types.chat import ChatCompletionChunk

GOES_ON = {"x-pagewire-on-disconnect": "continue"}
PATIENCE_SECONDS = 30
LOST = "unavailable"
"""Code of the error that ends the streams of a frontend that is stopped."""


def resumed(client: OpenAI, **request: object) -> Iterator[ChatCompletionChunk]:
    """Yield the chunks of a streamed chat, each once."""
    create = client.chat.completions.with_raw_response.create
    raw = create(stream=True, extra_headers=GOES_ON, **request)  # type: ignore[call-overload]
    name, stream, received = raw.headers["x-pagewire-stream"], raw.parse(), 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            for chunk in stream:
                received += 1
                deadline = time.monotonic() + PATIENCE_SECONDS
                yield chunk
            return
        except (httpx.TransportError, APIError) as error:
            if not _is_lost(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
        stream = _rest(client, name, received)


def _rest(client: OpenAI, name: str, received: int) -> Iterator[ChatCompletionChunk]:
    """Yield the chunks behind those that were received."""
    yield from client.get(
        f"/streams/{name}?from={received}",
        cast_to=ChatCompletionChunk,
        stream=True,
        stream_cls=Stream[ChatCompletionChunk],
    )


def _is_lost(error: httpx.TransportError | APIError) -> bool:
    """Whether a connection or a server is gone; other errors are the answer."""
    if isinstance(error, APIStatusError):
        return error.status_code == 503
    return isinstance(error, httpx.TransportError | APIConnectionError) or error.code == LOST


def main() -> None:
    """Print an answer as it comes."""
    client = OpenAI(base_url=sys.argv[1], api_key="none")
    turns = [{"role": "user", "content": "Tell me a story about a fox."}]
    for chunk in resumed(client, model=sys.argv[2], messages=turns, max_tokens=64):
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
