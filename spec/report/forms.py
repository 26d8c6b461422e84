"""The forms of a counterexample by name, each made of it, of the file where its JSON form lies, and of how it stands here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report.rerun import Rerun, run_again


def _html(example: Counterexample, file: str | None, seen: Rerun) -> str:
    from kvproof.spec.report import page  # jinja2 takes longer to load than most commands need

    return page.render(example, file, seen)


def _markdown(example: Counterexample, file: str | None, seen: Rerun) -> str:
    from kvproof.spec.report import markdown

    return markdown.render(example, seen)


def _reviewer(example: Counterexample, file: str | None, seen: Rerun) -> str:
    from kvproof.spec.report import reviewer

    return reviewer.render(example, file, seen)


def _svg(example: Counterexample, file: str | None, seen: Rerun) -> str:
    from kvproof.spec.report import picture

    return picture.render(example, seen)


def _test(example: Counterexample, file: str | None, seen: Rerun) -> str:
    from kvproof.spec.report import as_test

    return as_test.render(example, seen)


FORMS: dict[str, Callable[[Counterexample, str | None, Rerun], str]] = {
    "html": _html,
    "markdown": _markdown,
    "reviewer": _reviewer,
    "svg": _svg,
    "as-test": _test,
}
SUFFIXES = {"html": ".html", "markdown": ".md", "reviewer": ".reviewer.md", "svg": ".svg"}
"""How the file of a form ends beside the JSON form."""


def beside(form: str, example: Counterexample, file: Path) -> Path:
    """Return the file of a form beside the JSON form; that of a test is named as pytest finds it."""
    if form in SUFFIXES:
        return file.with_suffix(SUFFIXES[form])
    from kvproof.spec.report import as_test

    return file.with_name(f"test_{as_test.name_of(example)}.py")


def render(form: str, example: Counterexample, file: str | None = None, seen: Rerun | None = None) -> str:
    """Return a counterexample in a form. ``seen`` is how it stands, looked up if it is not given.

    Raises CounterexampleError for what cannot be run again, NoWorld where there is no world to show.
    """
    return FORMS[form](example, file, seen or run_again(example))
