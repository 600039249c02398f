"""Asks a frontend for one chat completion: ask.py URL MODEL. The pod of `helm test` runs it.

API_KEYS, if set, is text as of --api-key-file; the first key in the clear is used.
"""

import json
import os
import re
import ssl
import sys
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 240
NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}=(.*[^=].*)")


def first_key(lines: str) -> str:
    """Return the first key that is no digest and may generate. Exits where there is none."""
    for line in lines.splitlines():
        text, *words = line.split() or ["#"]
        scopes = [word for word in words if word.startswith("scope=")]
        if text.startswith("#") or (scopes and "scope=generate" not in scopes):
            continue
        named = NAMED.fullmatch(text)
        key = named[1] if named else text
        if not key.startswith(("sha256:", "scrypt:")):
            return key
    sys.exit("apiKeys holds no key in the clear: name one in helmTest.apiKeySecret")


def main(url: str, model: str) -> None:
    """Print the answer. Exits with 1 where there is none."""
    headers = {"content-type": "application/json"}
    if "API_KEYS" in os.environ:
        headers["authorization"] = "Bearer " + first_key(os.environ["API_KEYS"])
    body = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]}
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", data, headers)
    try:
        # The certificate is for the names of clients, and not for that of the Service.
        context = ssl._create_unverified_context()
        opened = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context)
        with opened as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.code}: {error.read().decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"{url} does not answer: {error}")
    usage = answer["usage"]["completion_tokens"]
    if not usage:
        sys.exit(f"an answer without a token: {answer}")
    print(f"{model}: {usage} tokens: {answer['choices'][0]['message']['content']!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
