"""``kvproof explain --html``: strips per class, candidates, the film of a small pool."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from kvproof.spec import cli
from kvproof.spec.deployments import catalogue
from kvproof.spec.explain import answer as answers
from kvproof.spec.explain import scenario
from kvproof.spec.explain.scenario import Question
from kvproof.spec.report import explained


@pytest.fixture(scope="module")
def found():
    """A deployment with replicated states on eight ranks: 24,576 of 30,000 tokens can be hit."""
    return answers.explain(catalogue.find("kimi-k3-tp8-dcp8"), Question(30_000, 30_100, 30_000, 12_288))


def test_the_page_says_which_group_ends_the_hit_where_and_by_which_rule(found):
    text = explained.render(found)
    assert f"the joint hit is {found.joint:,} of 30,100 tokens" in text
    for one in found.classes:
        assert one.name in text
        for reason in one.candidates:
            assert reason.rule in text
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|https?://", text)
    assert text == explained.render(found)


def test_a_strip_covers_all_candidates_of_its_class(found):
    root = ElementTree.fromstring(explained.strips(found.classes, 30_100, found.joint))
    titles = [title.text or "" for title in root.iter("title")]
    for one in found.classes:
        counts = [title for title in titles if title.startswith(f"{one.name}, ")]
        assert any(f"{found.joint:,}" in title and ": hit, " in title for title in counts)
        boundaries = range(one.unit, 30_101, one.unit)
        covered: list[int] = []
        for title in counts:
            first, _, last = title.removeprefix(f"{one.name}, ").partition(":")[0].replace(",", "").partition(" to ")
            covered += range(int(first), int(last or first) + 1, one.unit)
        assert covered == list(boundaries)


def test_a_small_pool_is_shown_block_by_block_and_a_large_one_is_not(found):
    assert found.run is not None
    assert found.config.num_blocks <= scenario.MOST_SHOWN
    inside = re.search(r'id="film-data">(.*?)</script>', explained.render(found), re.DOTALL)
    assert inside is not None
    data = json.loads(inside[1])
    assert (data["violation"], data["mark"], data["wrong"]) == (len(found.run.moments), "the lookup", False)
    assert len(data["order"]) >= found.config.num_blocks - 1
    large = answers.explain(catalogue.find("gemma-4-31b"), Question(4_000, 4_000, 4_000, 2_048))
    assert large.config.num_blocks > scenario.MOST_SHOWN
    assert large.run is not None
    assert large.run.moments == ()
    assert "film-data" not in explained.render(large)


def test_the_command_writes_the_page(tmp_path, capsys):
    file = tmp_path / "why.html"
    asked = ["explain", "--deployment", "kimi-k3-tp8-dcp8", "--prompt", "30000", "--html", str(file)]
    assert cli.main(asked) == 0
    assert capsys.readouterr().out == f"{file}\n"
    page = file.read_text()
    assert "What the host tier adds" in page
    # All that the terminal has of the host: what was stored, the lookups, the host's candidates, where a load lands.
    for said in (
        "Host tier: eager, 96 blocks",
        "<td>tail of the prompt (T27)</td>",
        "The host holds MLA: 12,288, 24,576, 29,184; KDA 1-3: 29,184.",
        "Candidates on the host, device cache gone",
        "Where the load lands (T29), device cache gone",
        "<td>the state at 29,184</td>",
    ):
        assert said in page, said
    assert page.count('<svg class="strips"') == 2


def test_rules_and_what_they_mean_are_apart_as_text(found):
    page = explained.render(found)
    assert re.search(r"</span> hit:</dt> <dd>", page)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "give --prompt N as well"),
        (["--prompt", "100", "--json"], "leave --json out"),
        (["--prompt", "100", "--html", "/nowhere/x.html"], "does not exist"),
    ],
)
def test_a_page_that_cannot_be_is_refused(tmp_path, capsys, more, said):
    asked = ["explain", "--deployment", "gemma-4-31b", "--html", str(tmp_path / "x.html"), *more]
    assert cli.main(asked) == 1
    assert said in capsys.readouterr().err
