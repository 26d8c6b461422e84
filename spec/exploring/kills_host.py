"""The shortest counterexamples to faults that need a host tier, each in the scope where it was found soonest.

Each length is the shortest in its scope. Only scopes that the fault's laws make likely were asked: another one may be shorter.
Lengths of the walk (``faults.lengths``) are smaller where its scopes have more in one step: longer prompts, other connectors.
"""

from __future__ import annotations

from kvproof.spec.exploring.kill import Kill

KILLS: dict[str, Kill] = {
    "M-GEO-1": Kill("fa1-m2+1-w1-n2-eagle-host", "LV-5", 4),
    "M-STAB-1": Kill("fa1-m2-n2-host", "HO-8", 38),
    "M-HO-3": Kill("fa1-m2-n2-host", "HO-3", 36),
    "M-HO-4": Kill("fa1-m2+1-w1-n2-eagle-host", "HO-4", 6),
    "M-META-1": Kill("fa1-m2-n2-host", "IP-1", 6),
    "M-META-2": Kill("fa1-m2-n2-host", "IP-2", 41),
    "M-META-3": Kill("fa1-m2-n2-host", "IP-3", 21),
    "M-META-4": Kill("fa1-m2-n2-host", "IP-4", 6),
    "M-DUP-1": Kill("fa1-m2-n2-host", "HO-6", 38),
    "M-STALE-1": Kill("fa1-m2+1-w1-n2-eagle-host", "HO-10", 35),
    "M-FLUSH-1": Kill("fa1-host", "LV-5", 4),
    "M-REG-1": Kill("fa1-m2+1-w1-n2-eagle-host", "LV-6", 30),
    "M-CPU-1": Kill("fa1-m2-n2-host", "CP-7", 34),
    "M-EARLY-1": Kill("fa1-m2+1-w1-n2-eagle-host", "CP-2", 6),
    "M-RACE-1": Kill("fa1-host", "CC-5", 36),
    "M-LAZY-2": Kill("fa1-m2-n2-lazy", "CP-10", 6),
    "M-CNT-3": Kill("fa1-m2+1-w1-n2-eagle-host", "HO-5", 19),
    "M-ACK-1": Kill("fa1-m2-n2-lazy", "CP-9", 28),
    "M-LEAK-1": Kill("fa1-host", "LV-2", 21),
    "M-LEAK-3": Kill("fa1-m2+1-w1-n2-eagle-host", "LV-4", 8),
    "M-RST-1": Kill("fa1-host", "CP-11", 21),
    "M-RST-2": Kill("fa1-host", "CP-12", 9),
    "M-CNT-1": Kill("fa1-m2-n2-host", "HO-5", 32),
    "M-CNT-6": Kill("fa1-host", "CN-5", 9),
    "M-CNT-7": Kill("fa1-m2-n2-host", "CN-6", 50),
    "M-FLUSH-2": Kill("fa1-host", "LV-7", 8),
    "M-LOAD-1": Kill("fa1-m2-n2-host", "LD-1", 67),
    "M-LOAD-5": Kill("fa1-host-ahead", "LD-7", 31),
    "M-LOAD-6": Kill("fa1-host-ahead", "LV-3", 26),
    "M-LAZY-1": Kill("fa1-m2-n2-lazy", "HB-8", 34),
    "M-PIN-1": Kill("fa1-host-ahead", "CP-5", 22),
    "M-LEAK-2": Kill("fa1-host", "CP-4", 44),
    "M-EARLY-2": Kill("fa1-host-ahead", "LD-6", 22),
    "M-TAIL-2": Kill("fa1-m2-n2-lazy", "CC-6", 52),
    "M-ZERO-1": Kill("fa1-m2-n2-lazy", "LD-8", 37),
    "M-CNT-4": Kill("fa1-host", "CN-3", 45),
    "M-CNT-5": Kill("fa1-host", "CN-4", 58),
    "M-PUB-48": Kill("fa1-m2+1-w1-n2-eagle-host", "LV-6", 30),
    "M-PUB-52": Kill("fa1-m2+1-w1-n2-eagle-host", "LV-6", 30),
    "M-PUB-70": Kill("fa1-m2+1-w1-n2-eagle-host", "PC-1", 31),
    "M-PUB-96": Kill("fa1-host", "CP-1", 48),
    "M-PUB-110": Kill("fa1-m2-n2-host", "HO-10", 37),
    "M-PUB-126": Kill("fa1-host", "LV-2", 50),
    "M-PUB-128": Kill("fa1-host", "CP-1", 58),
    "M-PUB-129": Kill("fa1-m2-n2-lazy", "LD-7", 41),
    "M-PUB-134": Kill("fa1-host-ahead", "CC-1", 30),
    "M-PUB-146": Kill("fa1-host", "CC-1", 69),
    "M-PUB-158": Kill("fa1-m2-n2-host", "IP-2", 8),
    "M-PUB-174": Kill("fa1-host", "CP-4", 47),
}

ELSEWHERE: dict[str, tuple[str, str]] = {
    "M-LOAD-8": (
        "fa4-m8-n2-host-ample",
        "LV-1 was not broken within 70 actions of fa1-m2-n2-lazy: a request has to hit what another one's load just registered",
    ),
    "M-TAIL-5": (
        "fa8-fa4-m4-h2-host",
        "not searched in the catalogue yet; LV-6 asks for a host that holds a whole prompt",
    ),
    "M-TAIL-6": (
        "fa8-fa4-m4-h2-host",
        "not searched in the catalogue yet; LV-6 asks for a host that holds a whole prompt",
    ),
    "M-TAIL-3": (
        "fa8-m8-h2-eagle-host",
        "LV-6 held for 38 actions of the EAGLE scope, and the host of fa1-m2-n2-host is too small for a whole prompt",
    ),
    "M-DUP-2": ("fa2-m4-n4-host", "not found among the first 40000 edges of fa1-m2-n2-host"),
    "M-CUR-1": ("fa2-n4-host-tiny", "LV-5 was not broken within 38 actions: the host is full too late"),
    "M-REPLAY-1": ("fa4-m4-n2-host-tiny", "not found among the first 40000 edges of fa1-m2-n2-host"),
    "M-CNT-2": (
        "fa4-m4-host",
        "a reset of the host with outcomes of handoffs that nobody read: the scope with states leaves ResetHost out",
    ),
    "M-LOAD-2": ("fa4-m4-n2-host", "not among the first 60000 edges of fa1-m2+1-w1-n2-eagle-host"),
    "M-LOAD-3": (
        "fa4-m4-n2-host-tiny",
        "not among the first 110000 edges of fa1-m2-n2-host: one request at a time finds nobody else's keys there",
    ),
    "M-LOAD-4": (
        "fa8-m8-h2-eagle-host",
        "not among the first 110000 edges of fa1-m2-n2-host, nor within the 70 actions of fa1-m2-n2-lazy",
    ),
    "M-LOAD-7": (
        "fa4-m4-n2-host-tiny",
        "not within the 66 actions of fa1-m2+1-w1-n2-eagle-host: loads of hits with leading nulls come last there",
    ),
    "M-MIS-1": (
        "fa4-x4-m4-n2-host",
        "a load behind a local hit inside a scheduler block: no scope reaches one among its first 40000 edges",
    ),
    "M-ORD-1": (
        "fa4-host",
        "a store has to run between the parts of its own step: fa1-host, where it may, submits stores with the next step",
    ),
    "M-PUB-44": (
        "fa8-m8-h2-eagle-host",
        "LV-6 held for 38 actions of the EAGLE scope, and the host of fa1-m2-n2-host is too small for a whole prompt",
    ),
    "M-PUB-45": (
        "fa8-m8-h2-eagle-host",
        "LV-6 held for 38 actions of the EAGLE scope, and the host of fa1-m2-n2-host is too small for a whole prompt",
    ),
    "M-PUB-69": (
        "fa2-m2+1-draft1-host",
        "TB-10 was not broken among the first 40000 edges of fa1-m2+1-w1-n2-eagle-host, whose bounds sample no token",
    ),
    "M-PUB-88": ("fa4-w4-ahead-lazy", "a load has to run into a step in flight: fa1-host-ahead holds loads back"),
    "M-PUB-114": ("fa4-m4+1-n2-ahead-host", "not searched in the catalogue yet: it needs draft tokens beside a host"),
    "M-PUB-136": (
        "fa4-m4-host",
        "not searched in the catalogue yet: it needs several groups beside another connector, or loads that fail in part",
    ),
    "M-PUB-137": ("fa4-m4-host", "not searched in the catalogue yet: it needs several groups beside another connector"),
}
"""What no scope of the catalogue was seen to reach: a scope of the walk (``engines.scopes``) that does, and why."""
