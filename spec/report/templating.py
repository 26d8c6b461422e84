"""The templates of the HTML pages, and the style sheets and scripts that stand in them."""

from __future__ import annotations

from functools import cache

import jinja2

from kvproof.spec.report.legible import legible

LOADER = jinja2.PackageLoader("kvproof.spec.report", "templates")


@cache
def environment() -> jinja2.Environment:
    """Return where templates are made: values are escaped, and one that is missing is an error."""
    return jinja2.Environment(
        loader=LOADER,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(name: str, **values: object) -> str:
    """Return a page, without control characters wherever a value comes from."""
    return legible(environment().get_template(name).render(**values))


def source(name: str) -> str:
    """Return a style sheet or script. It is our own text, and stands in a page as it is."""
    return LOADER.get_source(environment(), name)[0]
