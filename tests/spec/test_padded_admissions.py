"""Requests admitted with one token left and drafts behind it (T36, C-58): every law holds on random runs of such admissions."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import step as door
from kvproof.core.config import SOUND, Config, Group, Profile, configure
from kvproof.core.world import Request, Status
from kvproof.spec import laws, macros
from kvproof.spec.judge import Judge
from tests.spec.stories import Run, answer

FULL, MAMBA = "full_attention", "mamba_align"


def small(*groups: Group, **settings: Any) -> Config:
    """A model of at most 28 tokens and three running requests, with blocks enough."""
    return configure(groups, max_model_len=28, num_blocks=40, max_running=3, **settings)


CONFIGS: dict[str, Config] = {
    "fine": small(Group(FULL, 4), Group(MAMBA, 4, speculative_blocks=2), hash_block_size=2, num_draft_tokens=2),
    "three drafts": small(Group(FULL, 2), Group(MAMBA, 4, speculative_blocks=3), num_draft_tokens=3),
    "two ranks": small(Group(FULL, 2), Group(MAMBA, 2, speculative_blocks=1), dcp_size=2, num_draft_tokens=1),
    "sparse": small(
        Group(FULL, 4),
        Group(MAMBA, 4, speculative_blocks=2),
        Group(MAMBA, 4, speculative_blocks=2),
        retention=0,
        num_draft_tokens=2,
    ),
    "eagle": small(
        Group(FULL, 4), Group(MAMBA, 4, speculative_blocks=1), hash_block_size=2, use_eagle=True, num_draft_tokens=1
    ),
    "two steps": small(Group(FULL, 4), Group(MAMBA, 4, speculative_blocks=1), num_draft_tokens=1, max_steps_in_flight=2),
}


PROMPTS = (
    (1,),
    (0, 1, 1, 0, 0, 1, 0, 1, 1),
    (0, 1, 1, 0, 1, 1, 0, 1, 0) * 2,
    (0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1),
)


def same_block(config: Config, start: int, drafts: int) -> bool:
    """Tell whether drafts behind one token end in the state block of that token, in every Mamba-align group (C-58)."""
    sizes = [config.groups[group].block_size for group in config.snapshots]
    return config.profile.padded_admission == "any" or all(start // size == (start + drafts) // size for size in sizes)


class Padding:
    """A random scheduler whose admissions with one token left get as many drafts as the drafter gives at most."""

    def __init__(self, config: Config, seed: int) -> None:
        self.run, self.random, self.judge = Run(config), random.Random(seed), Judge(laws.ALL)
        self.padded = self.submitted = 0

    def do(self, action: act.Action) -> None:
        """Play one action and judge it."""
        moment = self.run.do(action)
        found = [violation for violation in self.judge.moment(moment, len(self.run.actions)) if not violation.bent]
        assert not found, (action, found)

    def play(self, steps: int) -> None:
        """Submit, plan, execute, deliver, preempt and finish at random."""
        for _ in range(steps):
            if self.submitted < 9 and self.random.random() < 0.5:
                prompt = self.random.choice(PROMPTS)
                self.do(act.Submit(self.submitted, prompt))
                self.submitted += 1
            self.plan()
            world = self.run.world
            for part in world.config.parts:
                self.do(act.Execute(part))
            if len(world.steps) >= world.config.max_steps_in_flight or self.random.random() < 0.5:
                self.deliver()

    def plan(self) -> None:
        """Plan running requests, then admit until one is refused."""
        self.do(act.BeginStep())
        for request in self.run.world.requests:
            if request.status is Status.RUNNING:
                if not request.in_flight and self.random.random() < 0.1:
                    self.do(act.Preempt(request.request))
                    continue
                drafts = self.random.randint(0, self.run.world.config.num_draft_tokens)
                self.allocate(request, request.computed, drafts)
        for request in self.run.world.requests:
            waits = request.status is not Status.RUNNING and not request.stale
            full = sum(other.status is Status.RUNNING for other in self.run.world.requests) == 3
            if waits and not full and not self.run.world.plan.preempted:
                local = answer(self.run.do(act.Lookup(request.request))).local
                self.allocate(request, local, self.run.world.config.num_draft_tokens, local)
        for action in (act.Drain(), act.BuildMetadata(), act.Dispatch()):
            self.do(action)

    def allocate(self, request: Request, start: int, drafts: int, local: int = 0) -> None:
        """Plan what is left of a request, with drafts if that is one token."""
        world = self.run.world
        live = next(other for other in world.requests if other.request == request.request)
        left = live.num_tokens - start
        fits = left == 1 and start + 1 + drafts < world.config.max_model_len
        guesses = tuple(self.random.randint(0, 1) for _ in range(drafts if fits else 0))
        if request.status is not Status.RUNNING and not same_block(world.config, start, len(guesses)):
            guesses = ()
        amount = left + len(guesses) if guesses else door.clip(world, live, start, left)
        if amount > 0:
            self.padded += bool(guesses) and request.status is not Status.RUNNING
            self.do(act.Allocate(request.request, amount, local=local, drafts=guesses))

    def deliver(self) -> None:
        """Process the outputs of the oldest step; now and then a request ends."""
        for step in self.run.world.steps[:1]:
            for entry in step.scheduled:
                live = next((other for other in self.run.world.requests if other.request == entry.request), None)
                tokens: tuple[int, ...] = ()
                if live is not None and entry.samples:
                    kept = entry.drafts[: self.random.randint(0, len(entry.drafts))]
                    tokens = (*kept, self.random.randint(0, 1))[: self.run.world.config.max_model_len - live.num_tokens]
                self.do(act.Output(entry.request, tokens))
                if live is not None and (live.num_tokens + len(tokens) >= 26 or self.random.random() < 0.15):
                    self.do(act.Finish(entry.request))


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_admissions_break_no_law(name: str) -> None:
    """Under ``sound`` no law is violated, and such admissions do occur."""
    padded = 0
    for seed in range(12):
        padding = Padding(CONFIGS[name], seed)
        padding.play(25)
        padded += padding.padded
    assert padded > 10


def padded_and_rejected(profile: Profile) -> set[str]:
    """One token is admitted with two drafts over two blocks, both are rejected, one token follows: the laws broken."""
    config = configure(
        (Group(FULL, 4), Group(MAMBA, 2, speculative_blocks=2)), num_draft_tokens=2, num_blocks=16, profile=profile
    )
    run, judge = Run(config), Judge(laws.ALL)
    broken: set[str] = set()
    story = (
        *(act.Submit(0, (1,)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 3, drafts=(5, 6)), *macros.run([(0, (2,))])),
        *(act.BeginStep(), act.Allocate(0, 1), *macros.run([(0, (3,))])),
        *(act.BeginStep(), act.Allocate(0, 1), *macros.run([(0, (4,))])),
    )
    for action in story:
        broken |= {violation.law for violation in judge.moment(run.do(action), len(run.actions))}
    return broken


def test_drafts_of_an_admission_end_in_the_block_of_its_token() -> None:
    """C-58: otherwise the next chunk falls back into a null column (`padded_admission = any`); `sound` refuses them."""
    assert {"TB-7", "COW-1"} <= padded_and_rejected(evolve(SOUND, padded_admission="any"))
    with pytest.raises(AssertionError, match="3\\.6"):
        padded_and_rejected(SOUND)
