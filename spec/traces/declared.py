"""Every difference between a recording and the model that is bridged and not reported: name and reason (docs/replay.md).

The driver counts how often each was met. Nothing else is passed over.
"""

from __future__ import annotations

IN_FLIGHT = "in_flight"
PREEMPT = "preempt"
ZEROED = "zeroed"
EVENTS = "events"
COPIES = "copies"
DRAFTS = "drafts"
STEP_LIMIT = "step limit"

DECLARED: dict[str, str] = {
    IN_FLIGHT: "a manager-level driver counts outputs as processed at end_step, the model when the sampled tokens arrive (T36)",
    PREEMPT: "a preemption before the first allocation of a step stands behind begin_step; for the model it happens between "
    "plans, as in a cache reset (T31)",
    ZEROED: "a manager driven directly leaves destinations of loads on the zero list, the model hands them out apart (T0 b)",
    EVENTS: "an engine's record with several keys or none is one event per key for the model (3.7)",
    COPIES: "when the bytes of a transfer move is not recorded: they do when the last worker reports it, or when a step waits",
    DRAFTS: "drafts are counted, not named: accepted ones are those of the output, rejected ones a token that is nowhere else",
    STEP_LIMIT: "a manager-level driver lets one token with its drafts pass max_step_tokens",
}
