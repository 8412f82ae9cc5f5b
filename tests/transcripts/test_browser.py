"""The HTML page in a real browser: nothing of a log runs, nothing is loaded, and a long session opens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.lanes import need
from tests.transcripts.markup_log import markup_log
from turnlog import SessionEvent
from turnlog.testing.scripts import LogScript
from turnlog.transcripts import Conversation, page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MARKUP = [
    "<img src=x onerror=window.__x=1>",
    "<script>window.__x=1</script>",
    "[a](javascript:window.__x=1)",
    "</script><svg onload=window.__x=1>",
    '"><b onmouseover=window.__x=1>',
    "</style><script>window.__x=1</script>",
    "</title><script>window.__x=1</script>",
    "--><script>window.__x=1</script>",
    "<iframe src=javascript:parent.__x=1>",
    "<style>body{display:none}</style>",
    "&lt;script&gt;window.__x=1&lt;/script&gt;",
    "' onfocus=window.__x=1 autofocus x='",
    "<base href=http://evil.invalid/>",
    "<meta http-equiv=refresh content=0;url=http://evil.invalid>",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium once."""
    need(CHROMIUM is not None, "chromium is missing: tools/services.sh installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def write(path: Path, events: list[SessionEvent], **options: Any) -> str:
    """Write a page and return its address."""
    html = "".join(page(Conversation.of(events), **{"session_id": "s", **options}))
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("said", MARKUP)
def test_markup_in_a_log_injects_nothing(browser: Browser, tmp_path: Path, said: str) -> None:
    """Text that looks like code stands on the page as text: no element, no request, no script comes of it."""
    url = write(tmp_path / "page.html", markup_log(said), session_id=said, facts=[said], notice=said)
    view = browser.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    view.on("request", lambda request: requests.append(request.url))
    view.on("console", lambda message: complaints.append(message.text))
    view.goto(url)
    view.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    for place in view.query_selector_all("article, summary, pre"):
        place.dispatch_event("mouseover")
        place.dispatch_event("focus")
    assert view.evaluate("window.__x") is None
    assert (
        view.evaluate("document.querySelectorAll('script, img, svg, b, iframe, base, form, input').length")
        == 0
    )
    assert view.evaluate("document.querySelectorAll('style').length") == 1
    assert view.evaluate("getComputedStyle(document.body).display") != "none"
    assert requests == [url]
    assert complaints == []
    assert view.inner_text("main").count(said) > 10
    view.close()


def test_policy_stops_what_escaping_would_miss(browser: Browser, tmp_path: Path) -> None:
    """With code written into the page by hand, the content security policy alone keeps it from running."""
    path = tmp_path / "page.html"
    url = write(path, LogScript().turn().events)
    code = "<script>window.__x=1</script><img src=x onerror=window.__x=2><style>main{display:none}</style>"
    path.write_text(path.read_text().replace("<main>", f"<main>{code}"))
    view = browser.new_page()
    view.goto(url)
    assert view.evaluate("window.__x") is None
    assert view.evaluate("getComputedStyle(document.querySelector('main')).display") != "none"
    view.close()


def test_long_session_opens(browser: Browser, tmp_path: Path) -> None:
    """A session of 10,000 events is one page that opens and goes to its last turn."""
    script = LogScript()
    while len(script.events) < 10_000:
        script.turn("Which tests fail? " * 5, calls=["c-1", "c-2"])
    url = write(tmp_path / "page.html", script.events)
    view = browser.new_page()
    view.goto(url)
    turns = view.locator("section").count()
    assert turns == sum(event.type == "turn/start" for event in script.events)
    timing = view.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
    print(f"10,000 events, {path_size(tmp_path)} bytes: open after {timing['loadEventEnd']:.0f} ms")
    view.click("nav li:last-child a")
    last = view.locator(f"#t{turns - 1}").bounding_box()
    assert last is not None
    assert 0 <= last["y"] < 720, "the last turn is on the screen"
    view.close()


def path_size(folder: Path) -> int:
    """Return the bytes of the page in a folder."""
    return (folder / "page.html").stat().st_size


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, tmp_path: Path, width: int) -> None:
    """Long words and long lines wrap: a page is never wider than the screen, on a phone either."""
    events = LogScript().turn("x" * 3000, calls=["c" * 200]).events
    url = write(tmp_path / "page.html", [*events, *markup_shifted(len(events))])
    view = browser.new_page(viewport={"width": width, "height": 800})
    view.goto(url)
    view.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    view.close()


def markup_shifted(first_seq: int) -> list[SessionEvent]:
    """Return a turn whose texts have no place to break."""
    script = LogScript(first_seq, turn=1).start().step()
    script.user("https://example.invalid/" + "a" * 500).assistant("b" * 500)
    return script.end_step().end().events


def test_colours_follow_the_reader(browser: Browser, tmp_path: Path) -> None:
    """Light and dark are the reader's choice, and text stands out against its ground in both."""
    url = write(tmp_path / "page.html", LogScript().turn(calls=["c-1"]).events)
    for scheme in ("light", "dark"):
        view = browser.new_page(color_scheme=scheme)
        view.goto(url)
        for selector in ("body", ".user .body", ".who", ".state", "details.call"):
            assert contrast(view, selector) >= 4.5, (scheme, selector)
        view.close()


CONTRAST = """selector => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let place = document.querySelector(selector);
  const ink = light(numbers(getComputedStyle(place).color));
  let ground;
  for (; place; place = place.parentElement) {
    const found = numbers(getComputedStyle(place).backgroundColor);
    if (found.length === 3 || found[3] > 0) { ground = light(found); break; }
  }
  return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
}"""


def contrast(view: Any, selector: str) -> float:
    """Return the contrast of an element's text with what is behind it, as WCAG counts it."""
    return float(view.evaluate(CONTRAST, selector))


def test_paper_shows_what_is_folded(browser: Browser, tmp_path: Path) -> None:
    """Printed, tool calls and reasoning are open, the timeline is gone, and the ground is white."""
    url = write(tmp_path / "page.html", LogScript().turn(calls=["c-1"]).events)
    view = browser.new_page(color_scheme="dark")
    view.goto(url)
    assert view.evaluate("document.querySelector('details.call pre').checkVisibility()") is False
    view.emulate_media(media="print")
    assert view.locator("details.call pre").first.bounding_box() is not None
    assert view.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.pdf()[:4] == b"%PDF"
    view.close()
