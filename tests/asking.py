"""Questions for tests of `explain`: small deployments, short calls, and the reason given for one boundary."""

from __future__ import annotations

import json
from typing import Any

from kvproof.spec.deployments import catalogue, read
from kvproof.spec.deployments.schema import Deployment
from kvproof.spec.explain import answer
from kvproof.spec.explain.answer import Answer
from kvproof.spec.explain.rules import Reason
from kvproof.spec.explain.scenario import Question

K3 = ["explain", "--deployment", "kimi-k3-tp8-dcp8", "--prompt", "44449", "--resend", "44609", "--step-tokens", "12288"]
"""The worked example of the page."""


def deployment(*groups: dict[str, Any], **settings: Any) -> Deployment:
    """A deployment for a test: groups as in a file (one group each by default), settings with defaults."""
    given = {"dcp_size": 1, "max_model_len": 4000, "retention": "dense", "step_tokens": 64, **settings}
    raw = {
        "format": "kvproof-deployment",
        "version": 1,
        "name": "trial",
        "title": "trial",
        "status": "test",
        "about": "trial",
        "settings": given,
        "groups": [{"count": 1, "name": group["kind"], **group} for group in groups],
    }
    return read.read_bytes(json.dumps(raw).encode(), "trial.json")


def connector(divergent: bool) -> dict[str, Any]:
    return {"name": "Mock", "divergent": {"value": divergent, "assumed": "x"}}


def ask(of: Deployment | str, prompt: int, resend: int | None = None, **more: Any) -> Answer:
    """Ask with the deployment's step budget; ``more`` are fields of the question, ``blocks`` and ``closed``."""
    known = catalogue.find(of) if isinstance(of, str) else of
    second = prompt if resend is None else resend
    options = {name: more.pop(name) for name in ("blocks", "closed") if name in more}
    fields = {"shared": min(prompt, second), "step_tokens": known.settings.step_tokens.value, **more}
    return answer.explain(known, Question(prompt, second, **fields), **options)


def reason(found: Answer, name: str, boundary: int) -> Reason:
    (of_class,) = (item for item in found.classes if item.name == name)
    assert boundary % of_class.unit == 0
    return of_class.candidates[boundary // of_class.unit - 1]


FA = {"kind": "full_attention", "block_size": 16}
MAMBA = {"kind": "mamba_align", "block_size": 16}
SWA = {"kind": "sliding_window", "block_size": 16, "window": 33, "sharded": False}
