"""What the child needs before any code of a release is there: stand-ins, and bags that ask the release's classes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import sys
import types

import pytest

from kvproof.spec.vllm.child import configuration, stand_ins
from kvproof.spec.vllm.child.configuration import Part


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(stand_ins, "HEAVY", ("kvproof_heavy", "attrs"))
    monkeypatch.setattr(stand_ins, "_SERVED", set())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield stand_ins.install()
    for name in [name for name in sys.modules if name.startswith("kvproof_heavy")]:
        del sys.modules[name]


def test_only_packages_that_are_absent_are_replaced(installed):
    assert installed == ["kvproof_heavy"]
    assert not isinstance(importlib.import_module("attrs"), stand_ins._Module)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("kvproof_other")
    assert stand_ins.used() == []


def test_a_stand_in_can_be_what_a_release_makes_of_it(installed):
    module = importlib.import_module("kvproof_heavy.deep.part")
    assert stand_ins.used() == ["kvproof_heavy", "kvproof_heavy.deep", "kvproof_heavy.deep.part"]

    def body(namespace):
        namespace["own"] = 1

    # as in a class statement with a keyword
    Derived = types.new_class("Derived", (module.Base,), {"total": False}, body)

    def plain():
        return 7

    assert isinstance(Derived(1, two=2), module.Base)
    assert module.decorator(plain)() == 7
    assert module.decorator(name="x")(plain)() == 7
    assert module.Generic[int] is module.Generic
    assert module.One | None
    assert module.One.Inner.VALUE is not None
    assert Derived().anything(1, 2).more is not None
    with pytest.raises(AttributeError):
        module.__version__  # noqa: B018 (absent: releases ask with a default)


def test_a_stand_in_has_a_version_for_those_who_ask(installed):
    importlib.import_module("kvproof_heavy")
    assert importlib.metadata.version("kvproof-heavy") == "999.0.0"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("kvproof-other")


@dataclasses.dataclass
class Release:
    """Like a configuration class of a release."""

    required: int
    plain: int = 3
    made: list[int] = dataclasses.field(default_factory=lambda: [1])
    blank: object = None

    @property
    def doubled(self) -> int:
        return self.plain * 2

    @functools.cached_property
    def kept(self) -> int:
        return self.plain + 1

    def plus(self, more: int) -> int:
        return self.plain + more

    @staticmethod
    def four() -> int:
        return 4


def test_a_bag_answers_what_is_set_and_asks_the_class_for_the_rest():
    bag = Part(Release, plain=10)
    assert (bag.plain, bag.doubled, bag.kept, bag.plus(5), bag.four(), bag.made, bag.blank) == (10, 20, 11, 15, 4, [1], None)
    assert Part(Release).plain == 3
    with pytest.raises(AttributeError, match="Release has no default for 'required'"):
        bag.required  # noqa: B018
    with pytest.raises(AttributeError, match="no default for 'unknown'"):
        bag.unknown  # noqa: B018
    with pytest.raises(AttributeError):
        Part(None).anything  # noqa: B018


def test_a_constructor_gets_only_what_it_takes():
    assert configuration.accepted(Release, plain=1, other=2, required=3) == {"plain": 1, "required": 3}
