from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from collections import Counter
from importlib import resources

import pytest

from kvproof.spec.exits import UserError
from kvproof.spec.traces import archive
from kvproof.spec.traces.read import Recording


@pytest.fixture(scope="module")
def everything() -> list[tuple[archive.Entry, Recording]]:
    return list(archive.recordings())


def test_all_recordings_are_read(everything):
    assert len(everything) == 487
    assert sum(len(recording.operations) for _, recording in everything) == 40464
    assert Counter(recording.header.engine.level for _, recording in everything) == {"manager": 406, "scheduler": 81}


def test_the_index_says_what_is_in_the_archive(everything):
    with resources.files("kvproof.spec").joinpath("data/recordings.zip").open("rb") as file, zipfile.ZipFile(file) as zipped:
        assert zipped.namelist() == [entry.file for entry in archive.entries()]
        assert {info.compress_type for info in zipped.infolist()} == {zipfile.ZIP_STORED}
        assert zipped.testzip() is None
    for entry, recording in everything:
        config = recording.config
        assert entry.level == recording.header.engine.level
        assert entry.ops == len(recording.operations)
        assert entry.config["groups"][0].split(":")[:2] == [config.groups[0].kind, str(config.groups[0].block_size)]
        for name in ("dcp_world_size", "group_block_sizes", "hash_block_size", "num_device_blocks", "seed", "use_eagle"):
            assert entry.config[name] == getattr(config, name)
        assert (entry.config["host"] is None) == (config.host is None)


def test_full_states_equal_what_the_deltas_add_up_to(everything):
    """A lookup changes nothing, so where a line with a full state is one, that state is the sum of the deltas before it."""
    compared = 0
    for _, recording in everything:
        before = None
        for operation, state in recording.states():
            if operation.op == "lookup" and operation.is_full:
                assert state == before, f"{recording.name}:{operation.line}"
                compared += 1
            before = state
    assert compared > 100


def test_references_and_free_queues_agree_on_every_state(everything):
    """docs/trace-format.md, section 3, last paragraph: counted from the owners that each rebuilt state names."""
    states = 0
    for _, recording in everything:
        blocks = set(range(1, recording.config.num_device_blocks))
        for operation, state in recording.states():
            place = f"{recording.name}:{operation.line}"
            owners = Counter(block for row in state.requests.values() for table in row["tables"] for block in table)
            owners.update(end for copy in state.step["copies"] for end in copy)
            owners.update(block for _, held in state.step["deferred_frees"] for block in held)
            transfers = state.transfers or {}
            for part in ("loads", "abandoned_loads", "stores", "abandoned_stores"):
                owners.update(block for row in transfers.get(part, {}).values() for block in row["device"])
            owners.update(block for row in transfers.get("finish_queue", ()) for block in row["device"])
            del owners[0]
            assert state.device["ref"] == owners, place
            free = state.device["free"]
            assert len(free) == len(set(free)), place
            assert set(free) == blocks - set(owners), place
            states += 1
    assert states == 40464


def test_prefix_ids_are_those_of_the_tokens(everything):
    """The first key of every prompt that is cached from its start: SHA-256 over the decimal token ids."""
    checked = 0
    for _, recording in everything[:60]:
        known: set[str] = set()
        for operation, state in recording.states():
            if operation.op == "submit":
                tokens = operation.args.tokens
                known |= {
                    hashlib.sha256(",".join(map(str, tokens[:n])).encode()).hexdigest()[:12] for n in range(1, len(tokens) + 1)
                }
            if operation.op == "allocate" and operation.index < 6:
                assert {row[3] for row in state.device["keys"]} <= known
                checked += len(state.device["keys"])
    assert checked > 50


def test_packing_the_unpacked_members_gives_the_same_bytes(tmp_path):
    rows = []
    for entry in archive.entries():
        path = tmp_path / "in" / entry.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read_member(entry.file))
        rows.append({name: getattr(entry, name) for name in entry.__struct_fields__} | {"op_counts": {}})
    source = {"engine": {"name": "vllm", "version": "0.33.0"}, "traces": rows}
    (tmp_path / "in/index.json").write_text(json.dumps(source))
    assert archive.pack(tmp_path / "in", tmp_path / "a.zip", tmp_path / "a.json") == 487
    data = resources.files("kvproof.spec") / "data"
    assert (tmp_path / "a.zip").read_bytes() == (data / "recordings.zip").read_bytes()
    assert (tmp_path / "a.json").read_bytes() == (data / "recordings-index.json").read_bytes()


def test_the_selection_of_a_check_shows_every_situation():
    """All 247 of managers without a host tier, few of the others, and no situation, mode, kind or setting left out."""
    chosen = archive.selection()
    plain = [entry for entry in archive.entries() if entry.level == "manager" and entry.config["host"] is None]
    assert len(plain) == 247
    assert {entry.name for entry in plain} <= {entry.name for entry in chosen}
    others = [entry for entry in chosen if entry not in plain]
    assert len(others) < 60
    for level in ("manager", "scheduler"):
        for mode in ("eager", "lazy"):
            every = [e for e in archive.entries() if e.level == level and (e.config["host"] or {}).get("mode") == mode]
            few = [entry for entry in others if entry in every]
            assert {name for entry in few for name in entry.features} == {name for entry in every for name in entry.features}
    hosts = [entry.config["host"] for entry in others if entry.level == "manager"]
    for mode in ("eager", "lazy"):
        assert {(host["events"], host["workers"]) for host in hosts if host["mode"] == mode} == {
            (events, workers) for events in (False, True) for workers in (1, 2)
        }
    kinds = {group.split(":")[0] for entry in others for group in entry.config["groups"]}
    assert kinds == {"full_attention", "mamba", "sliding_window", "chunked_local"}


def test_names():
    entry = archive.find("d_cow_dcp2")
    assert entry.file == "manager/d_cow_dcp2.ndjson.gz"
    assert archive.find(entry.file) is entry
    assert len({entry.name for entry in archive.entries()}) == 487
    assert archive.unpack("d_cow_dcp2") == gzip.decompress(archive.read_member(entry.file)).decode()
    with pytest.raises(archive.UnknownRecording, match="'d_nothing'") as caught:
        archive.open_recording("d_nothing")
    assert isinstance(caught.value, UserError)
