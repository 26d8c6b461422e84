"""Random inputs of a real scheduler: a script of submits, steps, outputs, completions, aborts and resets per seed.

An operation is a list of JSON values. It is *total*: what does not apply when its turn comes is skipped by the process that
runs the script and leaves no line, so any part of a script is a script (which shrinking uses).

    ["submit", tokens, max_tokens, priority]   requests are named r0, r1, ... in order of submission
    ["step"]                                   one scheduling pass
    ["update", n]                              output of the oldest step; n decides sampled tokens and accepted drafts
    ["complete_store", acks]                   so many workers report the oldest running store
    ["complete_load"]                          the oldest running load is reported
    ["abort", k]                               the (k modulo live)-th live request
    ["reset", preempt_running, host]           forget the prefix cache of the device; of the host, too, if asked
    ["settle"]                                 go on until nothing is live or under way

Every seed draws its own *habits*: how prompts are made from earlier ones, how late completions come, how often something is
aborted or reset. Runs with different habits find different things (swarm testing).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, Literal

import msgspec
from attrs import define, field, frozen
from msgspec import Meta

from kvproof.spec.exits import UserError
from kvproof.spec.traces.format import Config

Op = tuple[Any, ...]
Script = tuple[Op, ...]

TokenIds = Annotated[list[Annotated[int, Meta(ge=0, le=1 << 31)]], Meta(min_length=1, max_length=1 << 20)]
Number = Annotated[int, Meta(ge=0, le=1 << 31)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]

FORMS: dict[str, tuple[Any, ...]] = {
    "submit": (
        tuple[Literal["submit"], TokenIds, Number, int],
        tuple[Literal["submit"], TokenIds, Number, int, Name],
    ),
    "step": (tuple[Literal["step"]],),
    "update": (
        tuple[Literal["update"], Number],
        tuple[Literal["update"], dict[str, list[int]], dict[str, list[int]]],
    ),
    "complete_store": (
        tuple[Literal["complete_store"], Annotated[int, Meta(ge=1, le=4096)]],
        tuple[Literal["complete_store"], Annotated[int, Meta(ge=1, le=4096)], Number],
    ),
    "complete_load": (tuple[Literal["complete_load"]], tuple[Literal["complete_load"], Name]),
    "abort": (tuple[Literal["abort"], Number | Name],),
    "reset": (tuple[Literal["reset"], bool, bool],),
    "settle": (tuple[Literal["settle"]],),
}
"""Operation -> its forms; the longer ones reproduce a recording exactly."""

SETTLE_STEPS = 10
"""Steps that a settle is counted as when a script is planned; how many it takes is the release's answer."""


def checked(data: object) -> Script:
    """Return a script from JSON values. Raises UserError that names the operation which is none."""
    if not isinstance(data, list | tuple):
        raise UserError(f"a script is a list of operations, not {type(data).__name__}")
    return tuple(_checked(op, at) for at, op in enumerate(data))


def _checked(op: object, at: int) -> Op:
    name = op[0] if isinstance(op, list | tuple) and op else None
    forms = FORMS.get(name) if isinstance(name, str) else None
    if forms is None:
        raise UserError(f"operation {at} of the script, {op!r}, is none of {', '.join(FORMS)}")
    why = ""
    for form in forms:
        try:
            return tuple(msgspec.convert(op, form))
        except msgspec.ValidationError as error:
            why = str(error)
    raise UserError(f"operation {at} of the script, {name}: {why}; see docs/conform.md for the forms")


def as_json(script: Script) -> list[list[Any]]:
    """Return a script as JSON values."""
    return [list(op) for op in script]


def planned_steps(script: Script) -> int:
    """Return about how many scheduler steps a script takes."""
    return sum(SETTLE_STEPS if op[0] == "settle" else op[0] == "step" for op in script)


# --- habits ----------------------------------------------------------------------------------------------------------


@frozen(slots=True)
class Habits:
    """How one script behaves; the numbers are probabilities or weights, drawn once per script.

    ``prompts``: weights of a fresh prompt, an identical one, a longer, a shorter and a branched one. ``store``, ``load``: how
    likely each kind of completion is delivered after a step; with ``held`` none is before everything settles. ``experiment``:
    settle, make the device forget or fill it with other prompts, and send something known again.
    """

    prompts: tuple[float, float, float, float, float]
    submit: float
    burst: float
    ahead: float
    store: float
    load: float
    held: bool
    abort: float
    reset: float
    experiment: float
    edges: float
    outputs: tuple[int, ...]
    priorities: int

    @classmethod
    def drawn(cls, draw: Random, ample: bool) -> Habits:
        """Draw the habits of one script; with ample pools more experiments and fewer disturbances."""
        completions = draw.choice(("prompt", "late", "mixed", "held"))
        rate = {"prompt": 0.95, "late": 0.25, "mixed": 0.5, "held": 0.0}[completions]
        calm = ample and draw.random() < 0.7
        return cls(
            prompts=draw.choice(
                ((4, 1, 1, 1, 1), (1, 4, 2, 1, 1), (1, 1, 4, 1, 1), (1, 1, 1, 3, 3), (2, 2, 2, 2, 2)),
            ),
            submit=draw.choice((0.25, 0.45, 0.7)),
            burst=draw.choice((0.0, 0.3, 0.6)),
            ahead=draw.choice((0.0, 0.3, 0.7)),
            store=rate,
            load=rate if completions != "mixed" else draw.choice((0.15, 0.9)),
            held=completions == "held",
            abort=0.0 if calm else draw.choice((0.0, 0.04, 0.15)),
            reset=0.0 if calm else draw.choice((0.0, 0.02, 0.08)),
            experiment=draw.choice((0.1, 0.2)) if calm else draw.choice((0.0, 0.04, 0.1)),
            edges=draw.choice((0.4, 0.8)),
            outputs=draw.choice(((1,), (1, 2, 3), (2, 6), (1, 4, 12))),
            priorities=draw.choice((1, 2, 5)),
        )


# --- generation ------------------------------------------------------------------------------------------------------


@define(slots=True)
class _Writer:
    """Writes one script. ``known`` are the prompts so far; ``fresh`` numbers those that share nothing."""

    config: Config
    draw: Random
    habits: Habits
    ops: list[Op] = field(factory=list)
    known: list[tuple[int, ...]] = field(factory=list)
    fresh: int = 0
    steps: int = 0
    waiting: int = 0

    def write(self, steps: int) -> Script:
        """Write until so many steps are planned, and let everything settle at the end."""
        while self.steps < steps:
            if self.habits.experiment and self.draw.random() < self.habits.experiment and self.known:
                self.experiment()
            else:
                self.round()
        self.settle()
        return tuple(self.ops)

    def round(self) -> None:
        """Submit some requests, plan a step or two, process outputs, deliver completions; now and then abort or reset."""
        draw, habits = self.draw, self.habits
        if self.waiting == 0 or (self.waiting < self.config.max_running + 2 and draw.random() < habits.submit):
            self.submit(self.prompt())
            while draw.random() < habits.burst:
                self.submit(self.prompt())
        if draw.random() < habits.abort:
            self.ops.append(("abort", draw.randrange(8)))
        if draw.random() < habits.reset:
            # preempting the running ones is refused by the engine while transfers run, and it says so
            quiet = self.config.host is None and not self.config.connectors
            self.ops.append(("reset", quiet and draw.random() < 0.5, draw.random() < 0.3))
        self.step()
        if draw.random() < habits.ahead:
            self.step()
        if draw.random() < habits.abort:
            self.ops.append(("abort", draw.randrange(8)))
        self.update()
        if draw.random() < 0.2:
            self.update()
        self.completions()
        self.waiting = max(self.waiting - draw.choice((0, 0, 0, 1)), 0)

    def submit(self, tokens: tuple[int, ...]) -> None:
        """Submit a prompt and remember it."""
        room = self.config.max_model_len - len(tokens)
        most = max(min(self.draw.choice(self.habits.outputs), room), 1)
        self.ops.append(("submit", list(tokens), most, self.draw.randrange(self.habits.priorities)))
        self.known = [*self.known[-7:], tokens]
        self.waiting += 1

    def step(self) -> None:
        """Plan one step."""
        self.ops.append(("step",))
        self.steps += 1

    def update(self) -> None:
        """Process the output of the oldest step."""
        self.ops.append(("update", self.draw.randrange(1 << 16)))

    def completions(self) -> None:
        """Deliver completions, as late as the habits say; several at once now and then."""
        draw, habits = self.draw, self.habits
        if habits.held or self.config.host is None:
            return
        while draw.random() < habits.store:
            self.ops.append(("complete_store", draw.randint(1, self.config.host.workers)))
            if draw.random() < 0.6:
                break
        while draw.random() < habits.load:
            self.ops.append(("complete_load",))
            if draw.random() < 0.6:
                break

    def settle(self) -> None:
        """Let everything come to an end."""
        self.ops.append(("settle",))
        self.steps += SETTLE_STEPS
        self.waiting = 0

    def experiment(self) -> None:
        """Send something known again after all has settled, the device reset, or filled with other prompts, or as it is."""
        draw = self.draw
        self.settle()
        tokens = draw.choice(self.known)
        for _ in range(draw.choice((0, 0, 0, 1, 2))):
            self.submit(self.new(self.length()))
        if draw.random() < 0.5:
            if self.waiting:
                self.settle()
            self.ops.append(("reset", False, False))
        self.submit(tokens if draw.random() < 0.7 else self.derived(tokens, draw.choice((2, 3, 4))))
        if draw.random() < 0.3:
            self.submit(self.prompt())
        self.step()
        self.update()
        self.completions()

    # --- prompts ---

    def prompt(self) -> tuple[int, ...]:
        """Return a prompt: a fresh one or one made from an earlier one."""
        kind = self.draw.choices(range(5), self.habits.prompts)[0]
        if kind == 0 or not self.known:
            return self.new(self.length())
        return self.derived(self.draw.choice(self.known), kind)

    def derived(self, tokens: tuple[int, ...], kind: int) -> tuple[int, ...]:
        """Return the same prompt (1), a longer one (2), a shorter one (3), or one that branches off (4)."""
        draw = self.draw
        if kind == 1:
            return tokens
        length = self.length()
        if kind == 2:
            more = max(length - len(tokens), draw.choice((1, 2, self.config.hash_block_size)))
            return self.cut((*tokens, *self.new(more)))
        if kind == 3:
            return tokens[: max(min(length, len(tokens) - 1), 1)]
        at = max(min(self.edge(), len(tokens) - 1), 1)
        return self.cut((*tokens[:at], *self.new(max(length - at, 1))))

    def new(self, length: int) -> tuple[int, ...]:
        """Return tokens that nobody had at any place."""
        self.fresh += 1
        first = 1000 * self.fresh
        return self.cut(tuple(first + at for at in range(length)))

    def cut(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return as much of a prompt as a request may have beside one token of output."""
        return tokens[: max(self.config.max_model_len - 1, 1)]

    def length(self) -> int:
        """Return the length of a prompt in tokens: beside a boundary, or any."""
        most = self.config.max_model_len - 1
        if self.draw.random() < self.habits.edges:
            return max(min(self.edge() + self.draw.choice((-1, 0, 0, 1, 1, 2)), most), 1)
        return self.draw.randint(1, most)

    def edge(self) -> int:
        """Return a multiple of a hash, table or scheduler block."""
        config = self.config
        size = self.draw.choice((config.hash_block_size, *config.group_block_sizes, config.scheduler_block_size))
        return size * self.draw.randint(1, max((config.max_model_len - 1) // size, 1))


def generate(config: Config, seed: str, steps: int, ample: bool = False) -> Script:
    """Return the script of a seed for a configuration, about ``steps`` scheduler steps long.

    ``ample``: the pools hold everything, so experiments with identical prompts are frequent.
    """
    draw = Random(f"script/{seed}")
    return _Writer(config, draw, Habits.drawn(draw, ample)).write(steps)


def submits(script: Script) -> Sequence[int]:
    """Return the places of the submits of a script."""
    return [at for at, op in enumerate(script) if op[0] == "submit"]
