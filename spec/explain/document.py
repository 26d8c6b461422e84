"""An answer as plain data, for `--json`."""

from __future__ import annotations

from typing import Any

from attrs import asdict

from kvproof.spec.deployments import schema
from kvproof.spec.deployments.schema import Deployment
from kvproof.spec.explain import host_words, words
from kvproof.spec.explain.answer import Answer, ClassAnswer
from kvproof.spec.explain.divergence import Divergence
from kvproof.spec.explain.hosts import HostAnswer, HostLookup


def of_deployment(deployment: Deployment) -> dict[str, Any]:
    """Return a deployment with the source of every number and its known facts."""
    return {
        "name": deployment.name,
        "title": deployment.title,
        "status": deployment.status,
        "about": deployment.about,
        "values": [
            {
                "path": path,
                "value": value.value,
                "basis": value.basis,
                "sources": [deployment.sources[key].url for key in value.sources],
                "computed": value.computed,
                "assumed": value.assumed,
            }
            for path, value in schema.values(deployment)
        ],
        "sources": {key: {"url": source.url, "says": source.says} for key, source in deployment.sources.items()},
        "facts": [
            {
                "says": fact.says,
                "prompt": fact.prompt,
                "resend": fact.resend,
                "shared": fact.shared,
                "step_tokens": fact.step_tokens,
                "gate": fact.gate,
                "hit": fact.hit,
                "sources": [deployment.sources[key].url for key in fact.sources],
                "assumed": fact.assumed,
            }
            for fact in deployment.facts
        ],
    }


def of_answer(
    answer: Answer, closed: Answer | None, host: HostAnswer | None = None, cost: Divergence | None = None
) -> dict[str, Any]:
    """Return an answer with every candidate; ``closed`` is the same question with the gate closed, if it was asked."""
    config, question = answer.config, answer.question
    return {
        "deployment": of_deployment(answer.deployment),
        "geometry": of_geometry(answer),
        "question": asdict(question) | {"blocks": config.num_blocks},
        "chunks": [asdict(chunk) for chunk in answer.chunks],
        "classes": [_class(found) for found in answer.classes],
        "fixed_point": [asdict(lowering) for lowering in answer.lowerings],
        "joint_hit": answer.joint,
        "cause": words.cause(answer),
        "lookup": {"local": answer.local, "diverged": answer.diverged, "junction": answer.junction},
        "recomputed": question.resend - answer.joint,
        "divergent_hits": None if cost is None else asdict(cost) | {"tokens": cost.tokens, "why": host_words.divergence(cost)},
        "host": None if host is None else of_host(answer, host),
        "gate_closed": None if closed is None else {"joint_hit": closed.joint, "why": words.why_closed(answer, closed)},
    }


def of_host(answer: Answer, host: HostAnswer) -> dict[str, Any]:
    """Return what was stored, what the host holds, and each lookup with every candidate and copy."""
    return {
        "mode": host.mode,
        "blocks": host.blocks,
        "hits_end_at_multiples_of": host.alignment,
        "lazy_target": host.target or None,
        "stored": [
            {
                "when": host_words.when(stored),
                "by": stored.how,
                "group": answer.rows[stored.key[1]].name,
                "boundary": stored.boundary,
                "device_block": stored.device,
                "host_block": stored.host,
            }
            for stored in host.stored
        ],
        "why_nothing_stored": None if host.stored else host_words.nothing_stored(answer, host),
        "holds": [{"name": name, "boundaries": list(boundaries)} for name, boundaries in host.holds],
        "keys_of_other_tokens": host.others,
        "lookups": [_lookup(answer, lookup) for lookup in host.lookups],
    }


def _lookup(answer: Answer, lookup: HostLookup) -> dict[str, Any]:
    asked, fits = lookup.asked, lookup.asked.resumes >= 0
    return {
        "device_cache": asked.device,
        "local": asked.local,
        "asked_behind": asked.behind,
        "offered": asked.offered,
        "accepted": {"local": asked.accepted.local, "external": asked.accepted.external},
        "branch": asked.accepted.branch,
        "branch_text": host_words.branch(lookup),
        "resumes_at": asked.resumes if fits else None,
        "computed_again": answer.question.resend - asked.resumes if fits else None,
        "cause": host_words.cause(answer, lookup),
        "classes": [_class(found) for found in lookup.found.classes],
        "fixed_point": [asdict(lowering) for lowering in lookup.found.lowerings],
        "load": [asdict(copy) | {"group": answer.rows[copy.group].name} for copy in lookup.landings],
    }


def of_geometry(answer: Answer) -> dict[str, Any]:
    """Return sizes, gate and group rows; each size with the engine's name for it."""
    return {
        "sizes": [asdict(size) for size in words.sizes(answer)],
        "fine_grained_hits": answer.config.fine_grained,
        "gate": [asdict(condition) for condition in answer.conditions],
        "groups": [asdict(row) for row in answer.rows],
    }


def _class(found: ClassAnswer) -> dict[str, Any]:
    return {
        "name": found.name,
        "groups": list(found.groups),
        "kind": found.kind,
        "unit": found.unit,
        "hit": found.hit,
        "candidates": [
            {"boundary": (index + 1) * found.unit, "rule": reason.rule, "text": reason.text}
            for index, reason in enumerate(found.candidates)
        ],
    }
