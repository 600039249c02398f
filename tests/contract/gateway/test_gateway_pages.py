"""The pages at / and /docs: their headers, their key, and the state that they show."""

import re

import pytest
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import ids_of
from playwright.async_api import async_playwright, expect

from support.pages.browser import launch_options, watch

HTML = {"accept": "text/html,*/*;q=0.8"}
KEYS = "team-a=sk-a\nteam-b=sk-b\nops=sk-ops admin\n"


def bearer(name):
    return {"authorization": f"Bearer sk-{name}"}


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(KEYS)
    return {"api_key_file": str(file)}


async def test_a_browser_gets_the_page_and_a_program_a_line(checkpoint, key_file):
    async with gateway(checkpoint, **key_file) as (client, _, _):
        page = await client.get("/", headers=HTML)
        line = await client.get("/")
        about = await client.get("/", headers={"accept": "application/json"})
        head = await client.head("/")
    assert page.headers["content-type"].startswith("text/html")
    assert re.fullmatch(r"Pagewire [\d.]+ is running; /docs describes its API\n", line.text)
    assert about.json()["is_key_required"] is True
    assert (head.status_code, head.text) == (200, "")
    assert {one.headers["vary"] for one in (page, line, about)} == {"accept"}


async def test_pages_load_only_files_of_this_server_and_no_inline_code(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        for path in ("/", "/docs"):
            page = await client.get(path, headers=HTML)
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "//" not in page.text
            assert not re.search(r"<script[^>]*>[^<]|<style| style=| on\w+=", page.text)
            files = re.findall(r'"(page/[^"]+)"', page.text)
            assert len(files) >= 4
            for name in files:
                file = await client.get(f"/{name}")
                assert file.status_code == 200, name
                assert file.headers["x-content-type-options"] == "nosniff"
                known = {"if-none-match": file.headers["etag"]}
                again = await client.get(f"/{name}", headers=known)
                assert (again.status_code, again.content) == (304, b"")
                assert again.headers["etag"] == file.headers["etag"]
        assert (await client.get("/page/__init__.py")).status_code == 404
        assert (await client.get("/page/..%2ffiles.py")).status_code == 404


async def test_state_counts_the_requests_that_a_key_may_see(checkpoint, key_file):
    async with gateway(checkpoint, **key_file) as (client, attach, _):
        assert (await client.get("/state")).status_code == 401
        body = {"prompt": "x"}
        call = post(client, "/v1/completions", body, headers=bearer("a"))
        submit = await attach.next("submit")
        states = {
            name: (await client.get("/state", headers=bearer(name))).json()
            for name in ("a", "b", "ops")
        }
        attach.say(submit, "y")
        await call
        after = (await client.get("/state", headers=bearer("ops"))).json()
    assert {name: state["num_open_requests"] for name, state in states.items()} == {
        "a": 1,
        "b": 0,
        "ops": 1,
    }
    assert after["num_open_requests"] == 0
    assert after["why_not_ready"] is None
    [model] = after["models"]
    assert (model["id"], model["is_ready"]) == ("tiny", True)
    assert model["num_workers"] >= 1


async def test_the_key_field_opens_the_chat_and_stop_ends_the_request(checkpoint, key_file):
    options = launch_options()
    async with (
        # The scripted scheduler is silent, and a browser may be slow.
        gateway(checkpoint, silence_seconds=60.0, **key_file) as (_, attach, frontend),
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(**options)
        context = await browser.new_context()
        seen = watch(context)
        page = await context.new_page()
        await page.goto(frontend.http_url)
        await expect(page.locator("#key")).to_be_visible()
        await expect(page.locator("#state")).to_have_text("Asking the server")
        assert f"{frontend.http_url}/state" not in seen.requests
        assert seen.complaints == []

        await give_key(page, "sk-wrong")
        await expect(page.locator("#state")).to_contain_text("the API key is not valid")
        await give_key(page, "sk-a")
        await expect(page.locator("#state")).to_contain_text("tiny")
        await page.fill("#prompt", "hello")
        await page.press("#prompt", "Enter")
        submit = await attach.next("submit")
        assert submit.tenant == "team-a"
        attach.tokens(submit, 0, ids_of("one "))
        answer = page.locator(".answer")
        await expect(answer.locator(".text")).to_have_text("one ")
        await page.click("#stop")
        assert (await attach.next("abort")).handle == submit.handle
        await expect(answer.locator(".end")).to_contain_text("stopped")

        stored = await page.evaluate("[localStorage.length, Object.values(sessionStorage)]")
        assert stored == [0, ["sk-a"]]
        await page.goto(f"{frontend.http_url}/docs#get-state")
        await page.locator("#get-state .try .main").click()
        await expect(page.locator("#get-state output pre").last).to_contain_text('"id": "tiny"')
        # The wrong key is all that a console may say.
        assert [text for text in seen.complaints if "401" not in text] == []
        await browser.close()


async def give_key(page, key):
    await page.fill("#key", key)
    await page.click("#key-form button")
