"""Where an implementation does something else than the model: no violation by itself, laws decide."""

from __future__ import annotations

from attrs import define, field, frozen


@frozen(slots=True)
class Difference:
    """What the model predicted and what the implementation showed, in the model's ids."""

    what: str
    predicted: object
    observed: object


@define(slots=True)
class Noting:
    """Collects the differences of one action."""

    found: list[Difference] = field(factory=list)

    def differs(self, what: str, predicted: object, observed: object) -> bool:
        """Note and tell whether two values differ."""
        if predicted is observed or predicted == observed:
            return False
        self.found.append(Difference(what, predicted, observed))
        return True
