"""The forms of a counterexample by name, each made of it and of the file where its JSON form lies."""

from __future__ import annotations

from collections.abc import Callable

from kvproof.spec.counterexample import Counterexample


def _html(example: Counterexample, file: str | None) -> str:
    from kvproof.spec.report import page  # jinja2 takes longer to load than most commands need

    return page.render(example, file)


def _markdown(example: Counterexample, file: str | None) -> str:
    from kvproof.spec.report import markdown

    return markdown.render(example, file)


def _reviewer(example: Counterexample, file: str | None) -> str:
    from kvproof.spec.report import reviewer

    return reviewer.render(example, file)


def _svg(example: Counterexample, file: str | None) -> str:
    from kvproof.spec.report import picture

    return picture.render(example)


def _test(example: Counterexample, file: str | None) -> str:
    from kvproof.spec.report import as_test

    return as_test.render(example)


FORMS: dict[str, Callable[[Counterexample, str | None], str]] = {
    "html": _html,
    "markdown": _markdown,
    "reviewer": _reviewer,
    "svg": _svg,
    "as-test": _test,
}
"""Raise CounterexampleError for what cannot be run again, FilmError where there is no world to show."""
