"""Takes the pictures of docs/start/page.md from a server with the built-in model.

pagewire serve &
cd tests && python -m support.pages.take_screenshots http://127.0.0.1:8000 ../docs/start/images
"""

import sys
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from support.pages.browser import launch_options


def ask(page: Page, text: str) -> None:
    """Send a message and wait for the whole answer."""
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")
    answer = page.locator(".answer").last
    expect(answer).to_have_attribute("aria-busy", "false")


def main(url: str, folder: Path) -> None:
    """Write chat.png, logprobs.png and docs.png."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**launch_options())
        for name, scheme in (("chat", "light"), ("logprobs", "dark"), ("docs", "light")):
            context = browser.new_context(
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": 1000, "height": 640},
            )
            page = context.new_page()
            page.goto(f"{url}/docs" if name == "docs" else f"{url}/")
            if name == "docs":
                page.locator("summary").nth(1).click()
            else:
                page.fill("#seed", "7")
                if name == "logprobs":
                    page.check("#logprobs")
                ask(page, "Copy this list: river, cloud, apple")
                ask(page, "Tell me a story about a fox.")
            if name == "logprobs":
                page.hover(".token >> nth=4")
            page.wait_for_timeout(200)
            page.screenshot(path=folder / f"{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
