"""The configurations of a real scheduler: legal, varied, described, and the same for the same seed."""

import msgspec
import pytest

from kvproof.core.config import VLLM_0_33_0
from kvproof.spec.exits import UserError
from kvproof.spec.traces import format as trace_format
from kvproof.spec.traces import project
from kvproof.spec.vllm import scopes, scopes_random

RANDOM = tuple(scopes_random.scope(seed) for seed in range(60))


@pytest.mark.parametrize("scope", [*scopes.ALL, *RANDOM], ids=lambda scope: scope.name)
def test_a_scope_is_a_header_that_the_reader_and_the_model_take(scope):
    engine = trace_format.Engine("vllm", "any", "scheduler")
    header = trace_format.Header("kv-trace", 1, engine, scope.config)
    again = msgspec.json.decode(msgspec.json.encode(scope.header()), type=trace_format.Config)
    assert again == scope.config
    assert project.uncovered(header) is None
    config = project.model_config(header, VLLM_0_33_0)
    assert project.resolved_differences(config, scope.config) == []


def test_every_scope_says_what_it_covers_and_what_it_leaves_out():
    assert len({scope.name for scope in scopes.ALL}) == len(scopes.ALL)
    assert all(scope.covers and scope.leaves_out for scope in scopes.ALL)
    assert len(scopes.LEFT_OUT) > 3


def test_the_scopes_together_have_every_setting():
    configs = [scope.config for scope in scopes.ALL]
    kinds = {group.kind for config in configs for group in config.groups}
    assert kinds == {"full_attention", "sliding_window", "chunked_local", "mamba"}
    assert {config.dcp_world_size for config in configs} >= {1, 2, 4, 8}
    assert {None if config.host is None else config.host.mode for config in configs} == {None, "eager", "lazy"}
    assert {config.host.workers for config in configs if config.host is not None} == {1, 2}
    assert {config.host.events for config in configs if config.host is not None} == {False, True}
    assert {config.scheduler.policy for config in configs if config.scheduler} == {"fcfs", "priority"}
    assert {config.scheduler.runner for config in configs if config.scheduler} == {"v1", "v2"}
    assert {config.scheduler.concurrent_batches for config in configs if config.scheduler} == {1, 2}
    assert {config.fine_grained_hits for config in configs} == {False, True}
    assert {config.use_eagle for config in configs} == {False, True}
    assert any(config.num_draft_tokens and not config.use_eagle for config in configs)
    assert any(config.retention_interval is None for config in configs)
    assert any(config.retention_interval for config in configs)
    assert any(group.window and group.window % group.block_size for config in configs for group in config.groups)
    assert any(scheduler.long_prefill_token_threshold for config in configs if (scheduler := config.scheduler))
    assert any(scheduler.reserve_full_sequence for config in configs if (scheduler := config.scheduler))
    connectors = [tuple(one.divergent for one in config.connectors or ()) for config in configs]
    assert {(False,), (True,), (True, False)} <= set(connectors)


def test_a_quick_run_has_fewer_scopes_with_a_host_a_recurrent_group_and_a_connector():
    quick = scopes.chosen(True)
    assert 4 <= len(quick) < len(scopes.ALL)
    assert {scope.config.host.mode for scope in quick if scope.config.host is not None} == {"eager", "lazy"}
    assert any(scope.config.connectors for scope in quick)


def test_random_scopes_vary_and_are_named_by_their_seed():
    assert scopes.by_name("random-7") == scopes_random.scope(7)
    assert len({msgspec.json.encode(scope.config.groups) for scope in RANDOM}) > 25
    assert {len(scope.config.groups) for scope in RANDOM} >= {1, 2, 3}


def test_an_unknown_scope_is_named_with_the_nearest():
    with pytest.raises(UserError, match="did you mean fa4-m4-n2"):
        scopes.by_name("fa4-m4-n3")
