"""The console in a real browser, against the real server: ask, answer, heat map; a planted drift; weights.

FOVEOLA_SCREENSHOTS=FOLDER keeps the pictures of the page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from foveola.serve.keys import new_key
from tests.serve.process import ROOT, Process

playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright (extra dev)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="the browser test needs chromium (apt install chromium)"),
]
PATIENCE_MS = 60_000  # only reached when something is broken
SURFACE = ROOT / "examples" / "surface.png"

# Drops or pastes a file: a small picture where its name says so, else text.
GIVE = """async ([way, name]) => {
    const canvas = new OffscreenCanvas(32, 24), held = new DataTransfer(), more = { bubbles: true, cancelable: true };
    canvas.getContext("2d").fillRect(4, 4, 9, 9);
    const picture = name.endsWith("png");
    const content = picture ? await canvas.convertToBlob() : "words";
    held.items.add(new File([content], name, { type: picture ? "image/png" : "text/plain" }));
    document.querySelector("#stage").dispatchEvent(way === "drop"
        ? new DragEvent("drop", { ...more, dataTransfer: held })
        : new ClipboardEvent("paste", { ...more, clipboardData: held }));
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and an admin's key of a running server."""
    folder = tmp_path_factory.mktemp("console")
    key, digest = new_key()
    keys = folder / "keys.toml"
    keys.write_text(f'[[key]]\nname = "night-shift"\nsha256 = "{digest}"\nroles = ["ask", "admin"]\n')
    with Process("-m", "tests.serve.console_server", str(folder), str(keys)) as process, process.ready() as client:
        yield str(client.base_url), key


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as player:
        # A made camera, which shows a green field with a clock, stands in for the device's.
        camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", *camera])
        yield browser
        browser.close()


class Visit:
    """One page of one visitor, who sees everything that went wrong."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(locale="en-GB", viewport={"width": 1200, "height": 900}, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{address}/console")

    def _said(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.wrong.append(said.text)

    def enter(self, key: str) -> None:
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_label("API key").press("Enter")
        self.page.locator(".card").first.wait_for()

    def ask(self) -> None:
        """With the keyboard alone, but for the file."""
        self.page.set_input_files("#file", SURFACE)
        self.page.locator("#picture").wait_for()
        self.page.locator("#question").press("Control+Enter")
        self.page.locator("#feedback").wait_for()

    def keep(self, name: str) -> None:
        if folder := os.environ.get("FOVEOLA_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / name, full_page=True)


@pytest.fixture(params=["light", "dark"])
def visit(browser: Any, server: tuple[str, str], request: pytest.FixtureRequest) -> Iterator[Visit]:
    visit = Visit(browser, server[0], color_scheme=request.param)
    yield visit
    visit.context.close()


def test_ask_answer_heat_map_and_the_camera_that_drifted(
    visit: Visit, server: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    page, (address, key) = visit.page, server
    page.locator("#drift-note").get_by_text("needs an API key").wait_for()
    visit.enter(key)
    assert "camera-left" in page.get_by_role("alert").first.inner_text()
    assert page.locator(".card.raised h3").all_inner_texts() == ["camera-left"]
    for kind in ("frame", "maps"):
        assert page.locator(f".timeline .{kind}").first.evaluate("image => image.naturalWidth") > 100
    assert "words masked left-3 hits 2" in " ".join(page.locator("#guard-log td").all_inner_texts())
    visit.ask()
    assert page.locator("#answer").inner_text()
    assert "visual tokens" in page.locator("#cost-words").inner_text()
    bars = page.locator("#stages i").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert len(bars) == 8
    assert bars[-1] == max(bars) > 2 * min(bars)
    painted = page.locator("#heat").evaluate(
        "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
        ".data.filter((_, n) => n % 4 === 3 && _ > 100).length"
    )
    assert painted > 50
    page.get_by_role("button", name="✓ Right").click()
    page.get_by_text("right of").wait_for()
    page.locator("#figures").get_by_text("too few to judge by").wait_for()
    visit.keep(f"console-{request.node.callspec.params['visit']}.png")
    assert visit.wrong == []
    assert all(url.startswith((address, "data:", "blob:")) for url in visit.asked)


def test_language_is_remembered_and_an_alarm_acknowledged(browser: Any, server: tuple[str, str]) -> None:
    address, key = server
    visit = Visit(browser, address)
    visit.enter(key)
    visit.page.get_by_role("button", name="中文").click()
    visit.page.get_by_role("heading", name="提问").wait_for()
    visit.page.reload()
    visit.page.get_by_role("heading", name="提问").wait_for()
    visit.page.locator(".card").first.wait_for()  # the key is remembered as long as the tab is open
    visit.keep("console-zh.png")
    visit.page.get_by_role("button", name="我已查看").click()
    visit.page.locator(".card.raised").wait_for(state="detached")
    assert httpx.get(f"{address}/v1/drift", headers={"X-API-Key": key}).json()["cameras"]["camera-left"]["raised"] == []
    assert visit.wrong == []
    visit.context.close()


def test_nothing_is_rolled_back_without_a_confirmation(browser: Any, server: tuple[str, str]) -> None:
    address, key = server
    visit = Visit(browser, address)
    visit.enter(key)
    sent = lambda: [url for url in visit.asked if url.endswith("/rollback")]  # noqa: E731
    visit.page.get_by_role("button", name="Roll back…").click()
    visit.page.keyboard.press("Enter")  # the safe choice has the focus
    visit.page.locator("#confirm").wait_for(state="hidden")
    assert sent() == []
    visit.page.get_by_role("button", name="Roll back…").click()
    visit.page.get_by_role("button", name="Do it").click()
    visit.page.locator("#patch-told.error").wait_for()  # nothing was patched, and the server says so
    assert len(sent()) == 1
    broken = {"name": "new.safetensors", "mimeType": "application/octet-stream", "buffer": b"no weights"}
    visit.page.set_input_files("#weights", broken)
    visit.page.get_by_role("button", name="Replace…").click()
    assert "visual of foveola-tiny is replaced by new.safetensors" in visit.page.locator("#confirm-words").inner_text()
    visit.page.get_by_role("button", name="Do it").click()
    told = visit.page.locator("#patch-told.error").get_by_text("weights.safetensors")
    told.wait_for()  # the form arrived whole, and what it holds is refused
    visit.context.close()


def test_a_picture_is_dropped_or_pasted_and_what_is_none_is_told(browser: Any, server: tuple[str, str]) -> None:
    visit = Visit(browser, server[0])
    visit.page.locator("#version").get_by_text("foveola-tiny").wait_for()
    visit.page.evaluate(GIVE, ["drop", "a.txt"])
    visit.page.get_by_text("This is no picture").wait_for()
    for way in ("drop", "paste"):
        visit.page.evaluate(GIVE, [way, f"{way}.png"])
        visit.page.get_by_alt_text(f"{way}.png").wait_for()
    assert visit.page.locator("#answer-error").inner_text() == ""
    visit.context.close()


def test_a_moment_of_the_camera_is_asked_about(browser: Any, server: tuple[str, str]) -> None:
    address, key = server
    visit = Visit(browser, address, permissions=["camera"])
    visit.enter(key)
    page = visit.page
    page.get_by_role("button", name="Use the camera").click()
    page.get_by_label("Camera", exact=True).fill("台 7")
    page.get_by_role("button", name="Ask about this moment").click()
    page.locator("#feedback").wait_for()
    assert page.locator("#heat").is_visible()
    page.locator(".card h3").get_by_text("台 7").wait_for()  # its drift is watched under the name that was given
    page.get_by_role("button", name="Camera off").click()
    page.get_by_alt_text("camera.jpg").wait_for()
    assert visit.wrong == []
    visit.context.close()


def test_the_split_of_versions_is_shown(browser: Any, server: tuple[str, str]) -> None:
    """Prometheus' replies are played here: tests/observe/test_scraped.py asks the real one."""
    address, key = server
    visit = Visit(browser, address)
    there = httpx.get(f"{address}/console/there.json").json() | {"split": True}
    nothing = {"refused_per_s": 0, "p95_s": None, "accuracy": None, "samples": None}
    old = {"model_version": "0a", "share": 0.9, "requests_per_s": 4.5, **nothing}
    split = {"versions": [old, {"model_version": "0b", "share": 0.1, "requests_per_s": 0.5, **nothing}]}
    visit.page.route("**/console/there.json", lambda route: route.fulfill(json=there))
    visit.page.route("**/v1/split", lambda route: route.fulfill(json=split))
    visit.enter(key)
    visit.page.locator("#split").get_by_text("90 %").wait_for()
    assert visit.page.locator("#split tr").nth(2).locator("td").all_inner_texts()[:3] == ["0b", "10 %", "0.50"]
    visit.context.close()


def test_reviews_are_listed_as_they_were_said(browser: Any, server: tuple[str, str]) -> None:
    """The bridge's replies are played here: its own tests ask the real one."""
    address, key = server
    visit = Visit(browser, address)
    there = httpx.get(f"{address}/console/there.json").json() | {"bridge": True}
    said = "<b>stop</b> line 3"
    queue = {"reviews": [{"id": "1", "payload": {"text": said}}], "counts": {"open": 7, "claimed": 1}}
    visit.page.route("**/console/there.json", lambda route: route.fulfill(json=there))
    visit.page.route("**/v1/bridge/reviews?limit=5", lambda route: route.fulfill(json=queue))
    visit.enter(key)
    visit.page.get_by_text("7 wait, 1 are held").wait_for()
    assert visit.page.locator("#reviews li").all_inner_texts() == [said]
    assert visit.page.get_by_role("link", name="Open the review page").get_attribute("href") == "review"
    visit.context.close()


def test_an_answer_cannot_become_markup(browser: Any, server: tuple[str, str]) -> None:
    address, key = server
    visit = Visit(browser, address)
    events = 'event: delta\ndata: {"delta": "<img src=x onerror=document.title=1>"}\n\n'
    reply = {"status": 200, "content_type": "text/event-stream", "body": events}
    visit.page.route("**/v1/vlm/invoke?stream=1", lambda route: route.fulfill(**reply))
    visit.enter(key)
    visit.page.locator("#question").press("Control+Enter")
    visit.page.get_by_text("The answer broke off").wait_for()
    assert visit.page.locator("#answer").inner_text().startswith("<img")
    assert visit.page.locator("#answer *").count() == 0
    assert visit.page.title() == "Foveola"
    visit.context.close()
