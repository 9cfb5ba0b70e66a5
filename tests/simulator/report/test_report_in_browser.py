"""The page as a real browser shows it: every picture is drawn, light and dark, and nothing is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulator.report.browser import Browser, browser_in
from tests.simulator.report.test_report import page_of, pictures_of, run

pytestmark = pytest.mark.live

# Runs in a copy of the page, when all pictures are drawn: what a reader would do, written into the document.
_READER = """
<script>
(async () => {
  const root = document.documentElement;
  const turn = () => new Promise((resolve) => setTimeout(resolve, 50));
  const drawn = async () => { while (!root.dataset.drawn) await turn(); delete root.dataset.drawn; };
  const ink = () => document.querySelector(".js-plotly-plot .xtick text").style.fill;
  await drawn();
  const told = { wider: root.scrollWidth - root.clientWidth, before: ink(), labels: [] };
  document.getElementById("theme").click();
  await drawn();
  told.after = ink();
  for (const choice of document.querySelectorAll("select")) {
    const figure = choice.closest("section").querySelector(".figure");
    for (const option of [...choice.options].reverse()) {
      delete figure.dataset.drawn;
      choice.value = option.value;
      choice.dispatchEvent(new Event("change"));
      while (!figure.dataset.drawn) await turn();
      told.labels.push(figure.dataset.drawn);
    }
  }
  const shown = document.createElement("pre");
  shown.id = "reader";
  shown.textContent = Object.entries(told).map(([name, value]) => `${name}=${value}`).join("\\n");
  document.body.append(shown);
})();
</script>
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return browser_in(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(run("fifo", count=200), run("urgent", count=200))


def told_by_reader(document: str) -> dict[str, str]:
    found = re.search(r'<pre id="reader">(.*?)</pre>', document, re.DOTALL)
    assert found is not None, "the reader did not come to the end: a picture was not drawn"
    return dict(line.split("=", 1) for line in found[1].splitlines())


def test_every_picture_is_drawn_and_nothing_is_asked_for(browser: Browser, page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    seen = browser.look_at(tmp_path / "report.html")
    figures = re.findall(
        r'<div class="figure[^"]*" data-panel="([\w-]+)"([^>]*)>(.*?)</section>', seen.document, re.DOTALL
    )
    assert [name for name, _, _ in figures] == list(pictures_of(page))
    assert len(figures) == 12
    for name, attributes, drawing in figures:
        assert "data-drawn" in attributes, name
        assert 'class="main-svg"' in drawing, name
        # A line, a bar, a box, a point or a field of a map: something is there beside the axes.
        assert re.search(r'class="(?:js-line|point|box|hm|heatmaplayer|scatterlayer)', drawing), name
    assert seen.requests == ()


def test_the_theme_and_every_choice_work(browser: Browser, page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page.replace("</body>", f"{_READER}</body>"), encoding="utf-8")
    shown = told_by_reader(browser.look_at(tmp_path / "report.html").document)
    assert shown["before"] != shown["after"]
    labels = [
        str(picture["label"]) for pictures in pictures_of(page).values() if len(pictures) > 1 for picture in pictures
    ]
    assert len(labels) > 8
    assert sorted(shown["labels"].split(",")) == sorted(",".join(labels).split(","))


def test_dark_is_dark_and_a_narrow_window_does_not_scroll_sideways(browser: Browser, page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page.replace("</body>", f"{_READER}</body>"), encoding="utf-8")
    light = told_by_reader(browser.look_at(tmp_path / "report.html", width=500).document)
    dark = told_by_reader(
        browser.look_at(
            tmp_path / "report.html", width=500, options=("--blink-settings=preferredColorScheme=0",)
        ).document
    )
    assert light["wider"] == dark["wider"] == "0"
    assert (light["before"], light["after"]) == (dark["after"], dark["before"])


def test_a_page_that_asks_for_something_is_noticed(browser: Browser, tmp_path: Path) -> None:
    asking = '<html><img src="http://picture.invalid/x.png"><script>fetch("http://fetch.invalid/y")</script></html>'
    (tmp_path / "asking.html").write_text(asking, encoding="utf-8")
    assert set(browser.look_at(tmp_path / "asking.html").requests) == {
        "http://picture.invalid/x.png",
        "http://fetch.invalid/y",
    }
