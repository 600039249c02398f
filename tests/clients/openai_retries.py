"""The openai package before a server that is overloaded at first: openai_retries.py URL."""

import sys

import openai
from caught import caught


def main(url: str) -> None:
    """Ask three times: without a retry, with one, and streamed with one."""
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    error = caught(openai.RateLimitError, client.completions.create, model="tiny", prompt="x")
    assert (error.status_code, error.code) == (429, "rate_limit_exceeded")
    assert error.type == "rate_limit_error"
    assert error.response.headers["retry-after-ms"] == "300"
    assert error.response.headers["retry-after"] == "1"
    patient = client.with_options(max_retries=1)
    assert patient.completions.create(model="tiny", prompt="x").choices[0].text == "ok"
    stream = patient.completions.create(model="tiny", prompt="x", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "ok"
    print(openai.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
