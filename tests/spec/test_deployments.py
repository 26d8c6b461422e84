"""The shipped deployments: every number has a source, sizes are those of the published reports, bad files are refused."""

from __future__ import annotations

import json
import tomllib

import msgspec
import pytest

from kvproof.core import kinds
from kvproof.spec.cli import main
from kvproof.spec.deployments import arithmetic, catalogue, model, page, read, schema
from kvproof.spec.deployments.read import DeploymentError
from kvproof.spec.exits import ExitCode
from tests.tidy.sources import ROOT

NAMES = catalogue.names()

# name -> E per entry of the file, S, H, gate, L, row entries; as in public reports or computed from them
TABLE = {
    "deepseek-r1-tp8-dcp8": ((512,), 512, 512, False, 163_840, (320,)),
    "gemma-4-31b": ((32, 16), 32, 16, False, 262_144, (8192, 16_384)),
    "glm-5.3-flash-tp4-dcp4": ((9216, 2304), 9216, 2304, True, 1_048_576, (114, 459)),
    "gpt-oss-120b": ((16, 16), 16, 16, False, 131_072, (8192, 8192)),
    "kimi-k3-tp16-dcp16": ((12_288, 768), 12_288, 768, True, 1_000_000, (82, 1310)),
    "kimi-k3-tp8-dcp8": ((12_288, 1536), 12_288, 1536, True, 1_048_576, (86, 683)),
    "llama-4-scout": ((16, 16), 16, 16, False, 10_485_760, (655_360, 655_360)),
    "nemotron-3-super": ((8320, 8320), 8320, 8320, False, 262_144, (32, 32)),
    "nemotron-nano-9b-v2": ((672, 672), 672, 672, False, 131_072, (196, 196)),
    "qwen3-next-80b": ((544, 544), 544, 544, False, 262_144, (484, 482)),
    "qwen3.5-4b": ((528, 528), 528, 528, False, 262_144, (504, 497)),
    "qwen3.5-4b-tp8-dcp2": ((544, 272), 544, 272, True, 262_144, (488, 964)),
    "qwen3.6-35b-a3b": ((1056, 1056), 1056, 1056, False, 262_144, (252, 249)),
    "qwen3.8-27b": ((784, 784), 784, 784, False, 262_144, (336, 335)),
    "qwen3.8-27b-dflash7": ((448, 448), 448, 448, False, 262_144, (586, 593)),
    "unit-divergent": ((16, 16), 16, 16, False, 8192, (512, 512)),
    "unit-offload": ((32, 16), 32, 16, True, 8192, (256, 512)),
    "unit-row-width": ((128, 16), 128, 16, True, 1_048_576, (8192, 65_536)),
    "unit-simplecpu": ((64, 64), 64, 64, True, 8192, (128, 128)),
}

MINE = page.as_markdown(()).split("```toml\n")[1].split("```")[0]


def changed(old: str, new: str) -> bytes:
    """The example of the page with one thing changed."""
    assert old in MINE
    return MINE.replace(old, new, 1).encode()


# --- what ships ---------------------------------------------------------------------------------------------------


def test_the_table_is_about_every_shipped_deployment():
    assert set(NAMES) == set(TABLE)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_and_rows_are_those_of_the_reports(name):
    spans, scheduler, unit, gate, length, rows = TABLE[name]
    deployment = catalogue.find(name)
    config = model.configure(deployment, 2, deployment.settings.step_tokens.value)
    firsts = [sum(group.count.value for group in deployment.groups[:entry]) for entry in range(len(deployment.groups))]
    assert tuple(config.sizes[g] for g in firsts) == spans
    assert (config.scheduler_block_size, config.hash_block_size, config.fine_grained) == (scheduler, unit, gate)
    assert config.max_model_len == length
    assert tuple(config.row_capacity[g] for g in firsts) == rows
    assert len(config.groups) == len(model.group_names(deployment))


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_number_says_where_it_comes_from(name):
    deployment = catalogue.find(name)
    assert deployment.name == name
    found = list(schema.values(deployment))
    assert len(found) > 6
    for path, value in found:
        assert value.sources or value.computed or value.assumed, path
        assert value.assumed != schema.WITHOUT_SOURCE, path


@pytest.mark.parametrize("name", NAMES)
def test_a_number_of_a_file_whose_repository_is_not_known_ships_as_assumed(name):
    deployment = catalogue.find(name)
    for source in deployment.sources.values():
        assert "not known" not in source.says


def test_every_sourced_field_of_a_file_is_found():
    """``values`` reaches every place where the file gives a source."""
    for name in NAMES:
        raw = catalogue.source(name).decode()
        written = raw.count("{ value = ")
        assert written == len(list(schema.values(catalogue.find(name)))), name


def test_nothing_that_ships_is_beyond_the_model():
    assert [deployment.name for deployment in catalogue.everything() if model.lacks(deployment)] == []


def test_the_page_is_the_written_one():
    assert (ROOT / "docs/deployments.md").read_text(encoding="utf-8") == page.as_markdown(catalogue.everything())


# --- the arithmetic behind the block sizes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state", "token", "block"),
    [
        ("kimi-k3-tp8-dcp8", 814_080, 576, 1536),
        ("kimi-k3-tp16-dcp16", 439_296, 576, 768),
        ("qwen3.5-4b", 2_146_304, 4096, 528),
        ("qwen3.5-4b-tp8-dcp2", 268_288, 1024, 272),
        ("qwen3.8-27b", 3_207_168, 4096, 784),
        ("qwen3.6-35b-a3b", 2_146_304, 2048, 1056),
        ("qwen3-next-80b", 1_097_728, 2048, 544),
        ("glm-5.3-flash-tp4-dcp4", 1_122_304, 512, 2304),
        ("nemotron-nano-9b-v2", 2_695_168, 4096, 672),
        ("nemotron-3-super", 4_255_744, 512, 8320),
    ],
)
def test_state_and_token_bytes_give_the_block_size(name, state, token, block):
    deployment = catalogue.find(name)
    assert deployment.arithmetic is not None
    assert deployment.settings.tensor_parallel is not None
    tp = deployment.settings.tensor_parallel.value
    drafts = deployment.settings.num_draft_tokens.value if deployment.settings.num_draft_tokens else 0
    assert arithmetic.state_bytes(deployment.arithmetic.state, tp, drafts) == state
    assert arithmetic.token_bytes(deployment.arithmetic.token, tp) == token
    assert arithmetic.block_size(deployment.arithmetic, tp, drafts) == block


def test_kimi_k3_needs_no_larger_block_for_7_drafts():
    found = catalogue.find("kimi-k3-tp8-dcp8").arithmetic
    assert found is not None
    assert arithmetic.state_bytes(found.state, 8, 7) == 878_592
    assert arithmetic.block_size(found, 8, 7) == 1536


@pytest.mark.parametrize(
    ("layers", "groups"),
    [
        ((24, 69), (1, 3)),
        ((8, 24), (1, 3)),
        ((11, 34), (1, 4)),
        ((12, 34), (1, 3)),
        ((4, 27), (1, 7)),
        ((8, 40), (1, 5)),
        ((13, 12), (1, 1)),
        ((10, 50), (1, 5)),
        ((61,), (1,)),
    ],
)
def test_layers_are_cut_into_groups(layers, groups):
    assert arithmetic.group_counts(layers) == groups


def test_a_wrong_block_size_or_group_count_is_found():
    raw = catalogue.source("qwen3.5-4b").decode()
    with pytest.raises(DeploymentError, match=r"groups\[0\].block_size is 544, the arithmetic gives 528"):
        read.read_bytes(raw.replace("value = 528", "value = 544").encode(), "x.toml")
    with pytest.raises(DeploymentError, match=r"groups\[1\].count is 4, \(8, 24\) layers make 3 groups"):
        read.read_bytes(raw.replace("count = { value = 3", "count = { value = 4").encode(), "x.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tensor_parallel = { value = 1,", "tensor_parallel = { value = 0,", "settings.tensor_parallel is 0: a deployment has"),
        ("unit = { value = 16,", "unit = { value = 0,", "arithmetic.unit is 0: give the tokens"),
        ("kv_bytes = { value = 2,", "kv_bytes = { value = 0,", "arithmetic.token takes 0 bytes: give the sizes"),
        ("layers = { value = 8,", "layers = { value = 0,", r"groups\[0\].layers is 0: leave layers out"),
    ],
)
def test_a_zero_in_the_arithmetic_is_named(old, new, message):
    raw = catalogue.source("qwen3.5-4b").decode()
    assert old in raw
    with pytest.raises(DeploymentError, match=message):
        read.read_bytes(raw.replace(old, new).encode(), "x.toml")


# --- files of one's own -------------------------------------------------------------------------------------------


def test_the_example_of_the_page_is_read_and_its_bare_values_count_as_assumed(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    deployment = read.read(file)
    values = dict(schema.values(deployment))
    assert values["settings.dcp_size"].basis == "published"
    assert values["settings.max_model_len"].assumed == schema.WITHOUT_SOURCE
    assert model.group_names(deployment) == ("attention", "Mamba 1", "Mamba 2")
    config = model.configure(deployment, 2, 64)
    assert (config.sizes, config.hash_block_size, config.fine_grained) == ((256, 64, 64), 64, True)


def test_bare_values_may_stand_everywhere():
    more = """connectors = [{ name = "x", divergent = false }]
retention = "dense"
[arithmetic]
unit = 16
[arithmetic.state]
kind = "linear"
value_heads = 4
key_heads = 4
head_dim = 16
conv_kernel = 4
state_bytes = 4
[arithmetic.token]
kind = "heads"
kv_heads = 1
head_dim = 16
kv_bytes = 2
"""
    text = MINE.replace("retention = 0 ", "# ").replace("block_size = 64", "block_size = 96")
    text = text.replace("[[groups]]", more + "[[groups]]", 1)
    values = dict(schema.values(read.read_bytes(text.encode(), "x.toml")))
    bare = {path: value.value for path, value in values.items() if value.assumed == schema.WITHOUT_SOURCE}
    assert bare["settings.connectors[0].divergent"] is False
    assert bare["settings.retention"] == "dense"
    assert bare["arithmetic.state.head_dim"] == 16
    assert bare["arithmetic.unit"] == 16
    assert len(bare) == 16


def test_json_is_read_as_well():
    as_json = json.dumps(tomllib.loads(MINE)).encode()
    assert read.read_bytes(as_json, "x.json") == read.read_bytes(MINE.encode(), "x.toml")


def test_a_deployment_survives_its_own_encoding():
    for deployment in catalogue.everything():
        assert read.read_bytes(msgspec.json.encode(deployment), "x.json") == deployment


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "My model on four ranks"\n', "", "missing required field `title`"),
        ('name = "attention"', 'nme = "attention"', r"groups\[0\]: no field 'nme' \(did you mean name\?\); known: name, kind"),
        ("block_size = 64 ", 'block_size = "64" ', r"groups\[0\].block_size: Expected `int`, got `str`;"),
        ("block_size = 64 ", "block_size = -1 ", r"groups\[0\].block_size: Expected `int` >= 0;"),
        ("block_size = 64 ", "block_size = 1.5 ", r"groups\[0\].block_size: Expected `int`, got `float`;"),
        ("value = 4,", 'value = "4",', r"settings.dcp_size.value: Expected `int`, got `str`;"),
        (
            "[[groups]]",
            'host = { mode = "lasy" }\n[[groups]]',
            r"settings.host.mode: 'lasy' is not one of eager, lazy \(did you mean lazy\?\);",
        ),
        (
            "retention = 0 ",
            'retention = "dens" #',
            r"settings.retention: 'dens' is not one of a number, dense \(did you mean dense\?\);",
        ),
        ('status = "example"', 'status = "exact"', r"status: 'exact' is not one of real, example, test"),
        ("max_model_len = 131072", "max_model_len = true", r"Expected `int`, got `bool`"),
        ("version = 1", "version = 2", "version: 2 is not 1, which is all that is known; docs/deployments.md has the format"),
        ('name = "mine"', 'name = "My Model"', "Expected `str` matching regex"),
        ('from = ["pr"]', 'from = ["px"]', "settings.dcp_size: no source 'px' in"),
        ('from = ["pr"]', 'assumed = "x"', "sources.pr is used by no number: remove it"),
        ('{ value = 4, from = ["pr"] }', "{ value = 4 }", "settings.dcp_size: say where the value comes from"),
        ('from = ["pr"]', 'from = ["pr"], assumed = "x"', "it is assumed and has a source as well"),
        ("count = 1", "count = 0", r"groups\[0\].count is 0: leave the group out"),
        ("count = 1", "count = 99", "101 groups: at most 64"),
        ("[settings]", "[settings", "is no TOML"),
        ("https://", "http://", "matching regex"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(old, new, message):
    with pytest.raises(DeploymentError, match=message) as caught:
        read.read_bytes(changed(old, new), "mine.toml")
    assert str(caught.value).startswith("mine.toml: ")
    assert caught.value.file == "mine.toml"


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"\xff\xfe", "x.toml", "is not UTF-8 text"),
        (b"{", "x.json", "is no JSON"),
        (b"[" * 100_000, "x.json", "nested too deeply"),
        (b"3", "x.json", "Expected `object`, got `int`"),
        (b"#" * (read.MAX_BYTES + 1), "x.toml", "is longer than"),
    ],
)
def test_what_is_no_deployment_file_is_refused(data, name, message):
    with pytest.raises(DeploymentError, match=message):
        read.read_bytes(data, name)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DeploymentError, match="cannot be read: no such file or directory"):
        read.read(tmp_path / "none.toml")
    with pytest.raises(DeploymentError, match="cannot be read: is a directory"):
        read.read(tmp_path)


def test_a_fact_needs_one_origin():
    fact = '\n[[facts]]\nsays = "x"\nprompt = 1\nresend = 1\nhit = 0\n'
    with pytest.raises(DeploymentError, match=r"facts\[0\]: give from"):
        read.read_bytes((MINE + fact).encode(), "x.toml")
    with pytest.raises(DeploymentError, match=r"facts\[0\]: no source 'q'"):
        read.read_bytes((MINE + fact + 'from = ["q"]\n').encode(), "x.toml")


def test_what_the_model_refuses_is_a_deployment_error():
    deployment = read.read_bytes(changed("retention = 0", "retention = 100"), "mine.toml")
    with pytest.raises(
        DeploymentError, match=r"mine: retention 100 is neither dense \(None\), 0 \(sparse\) nor a multiple of S = 256"
    ):
        model.configure(deployment, 2, 64)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[groups]]", 'host = { mode = "eager", blocks = 0 }\n[[groups]]', "settings.host.blocks must be an integer in 1"),
        ('"mamba_align"', '"mamba"', r"no mamba groups \(did you mean mamba_align or mamba_stable\?\), only full_attention,"),
    ],
)
def test_what_the_model_refuses_is_named_as_in_the_file(old, new, message):
    deployment = read.read_bytes(MINE.replace(old, new, 1).encode(), "mine.toml")
    with pytest.raises(DeploymentError, match=message):
        model.configure(deployment, 2, 64)


def test_a_wrong_tag_and_a_field_of_a_union_are_named():
    raw = catalogue.source("qwen3.5-4b").decode()
    assert raw.count('kind = "linear"') == 1
    with pytest.raises(DeploymentError, match=r"arithmetic.state.kind: 'linea' is not one of linear, mamba2"):
        read.read_bytes(raw.replace('kind = "linear"', 'kind = "linea"').encode(), "x.toml")


def test_a_kind_that_the_model_does_not_have_is_named_and_listed():
    deployment = read.read_bytes(changed('"mamba_align"', '"ring"'), "mine.toml")
    lacking = f"no ring groups, only {', '.join(kinds.NAMES)}"
    assert model.lacks(deployment) == lacking
    with pytest.raises(DeploymentError, match="this version of the model has no ring groups"):
        model.configure(deployment, 2, 64)
    assert page.cells(deployment)[-1] == f"no: {lacking}"
    assert f"not yet: {lacking}" in page.as_markdown((deployment,))


# --- the list -----------------------------------------------------------------------------------------------------


def test_the_list_names_every_deployment(capsys):
    assert main(["explain", "--list"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert all(name in out for name in NAMES)
    assert "23 published, 1 assumed" in out


def test_the_list_shows_who_has_a_host_tier(capsys):
    assert main(["explain", "--list", "--json"]) == ExitCode.HOLDS
    hosts = {row["name"]: row["host"] for row in json.loads(capsys.readouterr().out) if row["host"] is not None}
    assert hosts == {name: page.host(catalogue.find(name)) for name in NAMES if catalogue.find(name).settings.host}
    assert hosts["unit-simplecpu"] == "eager, 8 blocks"
    assert hosts["kimi-k3-tp8-dcp8"] == "eager"
    assert main(["explain", "--list"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "host tier" in out
    assert sum("eager" in line for line in out.splitlines()) == len(hosts)


def test_the_list_as_json_and_as_markdown(capsys, tmp_path):
    target = tmp_path / "page.md"
    assert main(["explain", "--list", "--json", "--write", str(target)]) == ExitCode.HOLDS
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(NAMES)
    assert all(row["lacks"] is None for row in rows)
    assert target.read_text() == page.as_markdown(catalogue.everything())
