"""The store side's record of each request in eager mode: cursors, and the store events that hold blocks of it (3.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core.offload.state import Track

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.offload.state import Host


def find(host: Host, request: int) -> Track | None:
    """Return the record of a request, None if the store side does not know it."""
    for track in host.tracks:
        if track.request == request:
            return track
    return None


def begin(config: Config, host: Host, request: int) -> Host:
    """Begin the record of a request with its first admission (T29); in lazy mode there are none (T33)."""
    if config.offload is None or config.offload.mode == "lazy" or find(host, request) is not None:
        return host
    return evolve(host, tracks=(*host.tracks, Track(request, (0,) * len(config.groups))))


def replace(host: Host, track: Track) -> Host:
    """Return the host side with one record replaced."""
    return evolve(host, tracks=tuple(track if other.request == track.request else other for other in host.tracks))


def clear_cursors(host: Host, requests: Iterable[int]) -> Host:
    """Start the scan of preempted requests anew: their blocks are gone, the events that hold some stay (T26, T0(6))."""
    gone = set(requests)
    return evolve(
        host,
        tracks=tuple(
            evolve(track, cursors=(0,) * len(track.cursors), told=()) if track.request in gone else track
            for track in host.tracks
        ),
    )


def link(host: Host, requests: Iterable[int], event: int) -> Host:
    """Note that a store event holds blocks of these requests, once each (T24, T26)."""
    owners = set(requests)
    return evolve(
        host,
        tracks=tuple(
            evolve(track, events=(*track.events, event)) if track.request in owners else track for track in host.tracks
        ),
    )


def end(host: Host, request: int) -> Host:
    """Let a finished request go: at once, or when the last event that holds blocks of it is complete (T27)."""
    return evolve(
        host,
        tracks=tuple(
            evolve(track, finished=True) if track.request == request else track
            for track in host.tracks
            if track.request != request or track.events
        ),
    )


def unlink(host: Host, event: int) -> Host:
    """Forget a completed store event, and every finished request that waited for it alone (T28, LV-4)."""
    left = (evolve(track, events=tuple(other for other in track.events if other != event)) for track in host.tracks)
    return evolve(host, tracks=tuple(track for track in left if not is_done(track)))


def is_done(track: Track) -> bool:
    """Tell whether nothing is owed to a request any more: it is finished and no store event holds blocks of it (LV-4)."""
    return track.finished and not track.events
