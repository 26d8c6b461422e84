"""A small connector for runs about what a release does with connectors: it claims tokens at once and moves nothing."""

from __future__ import annotations

from typing import Any

from configuration import module

_base: Any = module("distributed.kv_transfer.kv_connector.v1.base")


class Nothing(_base.KVConnectorMetadata):  # type: ignore[misc]
    """What such a connector tells its workers."""


class TestConnector(_base.KVConnectorBase_V1, _base.SupportsHMA):  # type: ignore[misc]
    """Claims up to ``tokens`` external tokens behind a local hit; ``divergent``: it says that it can use a divergent one.

    A claim never covers the last token of a request and ends at a multiple of the scheduler block size.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        wanted = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.tokens = int(wanted["tokens"])
        self.divergent = bool(wanted["divergent"])
        self.unit = int(wanted["unit"])

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        """What the configuration says."""
        return self.divergent

    @property
    def requires_kv_delivery(self) -> bool:
        """Nothing is delivered."""
        return False

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Return the claim; it is there at once."""
        end = min(num_computed_tokens + self.tokens, request.num_tokens - 1)
        return max(end // self.unit * self.unit - num_computed_tokens, 0), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing to remember."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Return the empty message."""
        return Nothing()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Let the blocks be freed."""
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Let the blocks be freed."""
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Worker side: nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Worker side: nothing."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Worker side: nothing."""

    def wait_for_save(self) -> None:
        """Worker side: nothing."""
