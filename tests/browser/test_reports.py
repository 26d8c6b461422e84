"""The HTML report of a counterexample as a reader uses it: mouse, keyboard, themes, a reader of names and roles."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kvproof.spec.report import files as run_files
from kvproof.spec.report import film as films
from kvproof.spec.report import lines, page
from tests.spec.report.found import FAULTS, found, taken_at_its_word

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    program = shutil.which("chromium")
    assert program is not None, "apt-get install chromium"
    driving = pytest.importorskip("playwright.sync_api", reason="make browser installs it")
    with driving.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    for fault in FAULTS:
        (folder / f"{fault}.html").write_text(page.render(found(fault), "found.json"))
    return {fault: folder / f"{fault}.html" for fault in FAULTS}


@pytest.fixture
def opened(browser: Browser, files: dict[str, Path]) -> Iterator[Opening]:
    opening = Opening(browser, files)
    yield opening
    opening.context.close()
    assert opening.errors == []


class Opening:
    """Opens reports in a window of a laptop's size, keeps what the console says, and lets nothing be fetched."""

    def __init__(self, browser: Browser, files: dict[str, Path]) -> None:
        self.files = files
        self.errors: list[str] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
        self.page = self.context.new_page()
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: None if asked.url.startswith("file:") else self.errors.append(asked.url))

    def __call__(self, fault: str) -> Page:
        self.page.goto(self.files[fault].as_uri())
        return self.page


def now(opened: Page) -> str:
    return str(opened.locator("#now").inner_text())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_report_opens_at_the_violation(opened, fault):
    example = found(fault)
    shown = opened(fault)
    assert shown.locator("h1").inner_text().endswith(f"{example.law} does not hold")
    assert example.sentence in shown.locator("header").inner_text()
    if example.position >= 0:
        assert f"Action {example.position} " in now(shown)
        assert f"breaks {example.law}" in now(shown)
    film = films.shoot(example)
    assert shown.locator("#film thead th").count() == len(film.moments) + 2
    assert shown.locator("#film tbody tr").count() == sum(1 for _ in film.frames[0].blocks())


@pytest.mark.parametrize("fault", FAULTS)
def test_the_keyboard_alone_steps_through_every_action(opened, fault):
    example = found(fault)
    shown = opened(fault)
    shown.keyboard.press("Home")
    assert now(shown).startswith("The beginning")
    for position, action in enumerate(example.actions):
        shown.keyboard.press("ArrowRight")
        assert now(shown).startswith(f"Action {position} ")
        assert lines.action_text(action) in now(shown)
    following = films.shoot(example).moments[len(example.actions) :]
    for number, moment in enumerate(following, 1):
        shown.keyboard.press("ArrowRight")
        assert now(shown).startswith(f"What follows, +{number} ")
        assert lines.action_text(moment.action) in now(shown)
    last = now(shown)
    shown.keyboard.press("ArrowRight")  # nothing lies behind the last one
    assert now(shown) == last
    shown.keyboard.press("Home")
    shown.keyboard.press("v")
    assert f"{example.law}" in now(shown)
    assert "✗" in now(shown)
    shown.keyboard.press("ArrowLeft")
    assert "✗" not in now(shown)


def test_buttons_are_reached_by_tab_and_pressed_by_enter(opened):
    shown = opened("M-HO-3")
    shown.keyboard.press("Home")
    names = []
    for _ in range(9):
        shown.keyboard.press("Tab")
        names.append(shown.evaluate("document.activeElement.id"))
    assert [name for name in ("theme", "play", "forward", "last", "jump", "slider") if name in names] == [
        "theme", "play", "forward", "last", "jump", "slider",
    ]  # fmt: skip
    shown.locator("#forward").focus()
    shown.keyboard.press("Enter")
    assert now(shown).startswith("Action 0 ")


def test_the_blocks_of_a_step_are_those_of_the_film(opened):
    shown = opened("M-HO-3")
    film = films.shoot(found("M-HO-3"))
    tables = shown.locator("#pools section")
    assert tables.count() == 2
    for section, blocks in ((tables.nth(0), film.frames[-1].device), (tables.nth(1), film.frames[-1].host)):
        rows = [row.locator("td").all_inner_texts() for row in section.locator("table tr").all()[1:]]
        refs = {row[0].split()[0]: row[1] for row in rows}
        assert refs == {block.name: str(block.refs) for block in blocks}


def test_the_life_of_a_block_leads_to_its_steps(opened):
    shown = opened("M-HO-3")
    assert shown.locator("h3", has_text="Block 2").is_visible()
    life = shown.locator("ol.life").first
    assert "forward writes it: unwritten → g1 state r0@2" in life.inner_text()
    life.locator("button").nth(2).click()
    assert "Execute('forward')" in now(shown)
    assert shown.locator("#film td.now").count() == shown.locator("#film tbody tr").count()


def test_the_theme_is_the_readers_and_can_be_switched(opened, browser):
    shown = opened("M-LRU-1")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert shown.evaluate(paper) == "rgb(255, 255, 255)"
    shown.keyboard.press("t")
    assert shown.evaluate(paper) == "rgb(13, 17, 23)"
    shown.get_by_role("button", name=re.compile("Theme")).click()
    assert shown.evaluate(paper) == "rgb(255, 255, 255)"
    dark = browser.new_context(color_scheme="dark")
    other = dark.new_page()
    other.goto(opened.files["M-LRU-1"].as_uri())
    assert other.evaluate(paper) == "rgb(13, 17, 23)"
    dark.close()


def test_words_are_readable_in_both_themes(opened):
    """Every text has at least the contrast 4.5 to what is behind it (WCAG AA)."""
    shown = opened("M-HO-3")
    for _ in range(2):
        assert shown.evaluate(CONTRAST) == []
        shown.keyboard.press("t")


CONTRAST = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => {
    const part = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = (el) => {
    for (let at = el; at; at = at.parentElement) {
      const c = numbers(getComputedStyle(at).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const el of document.querySelectorAll("h1,h2,h3,p,td,th,li,button,summary,kbd,span,code,strong")) {
    if (!el.textContent.trim() || el.disabled || !el.getClientRects().length || el.classList.contains("hidden")) continue;
    const a = light(numbers(getComputedStyle(el).color)), b = light(behind(el));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(el.tagName + "." + el.className + " " + ratio.toFixed(2) + " " + el.textContent.slice(0, 20));
  }
  return [...new Set(found)];
}"""


def test_everything_that_can_be_pressed_has_a_name(opened):
    shown = opened("M-HO-3")
    unnamed = shown.evaluate(
        "() => [...document.querySelectorAll('button,input')].filter("
        "(el) => !(el.getAttribute('aria-label') || el.textContent.trim())).map((el) => el.id)"
    )
    assert unnamed == []
    assert shown.get_by_role("status").count() == 1
    assert shown.get_by_role("region", name="Blocks over time").count() == 1
    assert shown.get_by_role("slider", name="Step").count() == 1


def test_a_narrow_window_scrolls_tables_and_not_the_page(opened):
    shown = opened("M-HO-3")
    shown.set_viewport_size({"width": 900, "height": 700})
    assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_playing_goes_on_by_itself_and_stops_at_the_end(opened):
    shown = opened("M-LRU-1")
    shown.keyboard.press("Home")
    shown.keyboard.press("p")
    shown.locator("#now", has_text=f"Action {len(found('M-LRU-1').actions) - 1} ").wait_for(timeout=30_000)
    shown.locator("#play", has_text="Play").wait_for(timeout=30_000)


def test_without_a_script_the_actions_and_lives_are_there(browser, files):
    context = browser.new_context(java_script_enabled=False)
    shown = context.new_page()
    shown.goto(files["M-HO-3"].as_uri())
    assert shown.locator("#actions tr").count() > 10
    assert shown.locator("ol.life li").count() > 5
    context.close()


def test_a_long_report_opens_soon(browser, tmp_path):
    """Two hundred actions: the file is small, and the page is drawn before two seconds are over."""
    from tests.spec.report.test_forms import longer_than

    file = tmp_path / "long.html"
    file.write_text(page.render(longer_than(200), None))
    assert file.stat().st_size < 2_000_000
    context = browser.new_context()
    shown = context.new_page()
    shown.goto(file.as_uri())
    assert shown.locator("#film tbody tr").count() > 1
    assert shown.evaluate("performance.getEntriesByType('navigation')[0].domComplete") < 2_000
    context.close()


def test_a_run_that_goes_on_opens_where_something_is_left_open(opened, tmp_path):
    opened.files = {"goes on": tmp_path / "goes-on.html"}
    opened.files["goes on"].write_text(page.render(found("M-LEAK-3"), None))
    shown = opened("goes on")
    assert now(shown).startswith("What follows, +23 (the last is +23): CompleteStore(1)")
    assert "Left open: the store side still knows r0, which has finished" in now(shown)
    assert shown.locator("#follows li").all_inner_texts() == ["the store side still knows r0, which has finished"]
    assert shown.locator("#film th.violation").inner_text() == "+23"
    shown.locator("#actions tr", has_text="+11").first.wait_for()
    shown.keyboard.press("ArrowLeft")
    assert "Left open" not in now(shown)
    assert shown.locator("#actions tr.now td").first.inner_text() == "+22"
    # A life leads to what follows, too.
    shown.locator("ol.life button", has_text="+10").first.click()
    assert now(shown).startswith("What follows, +10 ")


def test_a_configuration_alone_shows_the_new_world(opened, tmp_path):
    bare = evolve(found("M-LRU-1"), actions=(), outcomes=(), position=-1)
    opened.files = {"bare": tmp_path / "bare.html"}
    opened.files["bare"].write_text(page.render(bare, None, taken_at_its_word(bare)))
    shown = opened("bare")
    assert now(shown).startswith("The beginning: there is no action")
    assert shown.locator("#film thead th").all_inner_texts() == ["block", "start"]
    assert "There are no actions: the configuration alone breaks the law." in shown.locator("main").inner_text()
    shown.keyboard.press("ArrowRight")
    assert now(shown).startswith("The beginning")


def test_a_cell_says_in_words_what_it_is_when_somebody_points_at_it(opened):
    shown = opened("M-HO-3")
    cell = shown.locator("#film tr[data-block=d2] td").last
    cell.hover()
    assert (cell.get_attribute("title") or "").startswith("block 2; 2 references; ")
    shown.locator("#film tr[data-block=d2] td").nth(1).click()
    assert now(shown).startswith("Action 0 ")


def test_a_long_report_of_a_large_pool_opens_soon_at_the_violation(browser, tmp_path):
    """Its size has a bound, and so has what the browser draws."""
    from tests.spec.report.test_window import large

    file = tmp_path / "large.html"
    file.write_text(page.render(large(1200, 1600), None))
    assert file.stat().st_size < 2_000_000
    context = browser.new_context()
    shown = context.new_page()
    shown.goto(file.as_uri())
    assert shown.locator("#film td").count() <= 24_000
    assert "breaks PC-8" in now(shown)
    shown.locator("ol.life button").last.click()
    assert "Finish(0)" in now(shown)
    assert "and 1359 more" in shown.locator("#pools").inner_text()
    context.close()


# --- the page of a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_run_is_light_or_dark_as_the_system_is_and_can_be_read(browser, tmp_path, scheme):
    from tests.spec.report.test_runs import explored

    run_files.write([found("M-LRU-1")], explored("M-LRU-1"), tmp_path, "explore.json")
    context = browser.new_context(color_scheme=scheme)
    shown = context.new_page()
    errors: list[str] = []
    shown.on("console", lambda said: errors.append(said.text))
    shown.goto((tmp_path / "index.html").as_uri())
    colours = "element => [getComputedStyle(element).color, getComputedStyle(document.body).backgroundColor]"
    for what in ("body", "a", ".soft"):
        text, paper = shown.locator(what).first.evaluate(colours)
        assert contrast(text, paper) >= 4.5, what
    dark = shown.locator("body").evaluate("element => getComputedStyle(element).backgroundColor")
    assert (luminance(dark) < 0.05) is (scheme == "dark")
    context.close()
    assert errors == []


def luminance(colour: str) -> float:
    """Return how bright a colour is, as the rules for readable pages count it."""
    parts = [int(part) / 255 for part in re.findall(r"[0-9]+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
