"""How an answer is shown, and what is said where none can be given."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from kvproof.spec.cli import main
from kvproof.spec.deployments import catalogue, model
from kvproof.spec.deployments.read import DeploymentError
from kvproof.spec.exits import ExitCode
from kvproof.spec.explain import answer, rules, scenario, words
from kvproof.spec.explain.rules import Reason
from kvproof.spec.explain.scenario import Question, ScenarioError
from tests.asking import K3, ask, deployment
from tests.tidy.sources import ROOT

# --- what cannot be asked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --deployment NAME or --config FILE"),
        (["--deployment", "unit-offload", "--config", "x.toml"], "give --deployment NAME or --config FILE"),
        (["--deployment", "nope"], "no shipped deployment is called 'nope'; `kvproof explain --list` names them all"),
        (["--config", "none.toml"], "none.toml: cannot be read: no such file"),
        (["--deployment", "unit-offload", "--resend", "5"], "give --prompt N as well"),
        (["--deployment", "unit-offload", "--evict", "0@16"], "give --prompt N as well"),
        (["--deployment", "unit-offload", "--write", "x"], "--write belongs to --list"),
        (["--deployment", "unit-offload", "--prompt", "8192"], "--prompt 8,192: a prompt has 1 to 8,191 tokens here"),
        (["--deployment", "unit-offload", "--prompt", "5", "--resend", "9999"], "--resend 9,999: a prompt has 1 to 8,191"),
        (["--deployment", "unit-offload", "--prompt", "5", "--between", "9999"], "--between 9,999: a prompt has at most 8,191"),
        (["--deployment", "unit-offload", "--prompt", "50", "--shared", "51"], "the prompts can share 0 to 50 tokens"),
        (["--deployment", "unit-offload", "--prompt", "50", "--evict", "16"], "write GROUP@TOKENS, for example Mamba@16"),
        (["--deployment", "unit-offload", "--prompt", "50", "--evict", "KDA@16"], "groups: attention, Mamba"),
        (["--deployment", "unit-offload", "--prompt", "50", "--evict", "Mamba@x"], "write GROUP@TOKENS"),
        (["--deployment", "unit-offload", "--prompt", "50", "--evict", "Mamba@²"], "write GROUP@TOKENS"),
        (
            ["--deployment", "unit-offload", "--prompt", "50", "--evict", "Mamba@64"],
            "boundary 64 does not lie in the first prompt",
        ),
        (["--deployment", "unit-offload", "--prompt", "50", "--evict", "Mamba@16"], "group 1 has no key at 16"),
        (
            ["--deployment", "unit-offload", "--prompt", "500", "--blocks", "4"],
            "a pool of 4 blocks is too small for the chunk 0 to",
        ),
        (["--deployment", "unit-offload", "--retention", "some"], "write dense, sparse or a number of tokens"),
        (
            ["--deployment", "unit-offload", "--retention", "7"],
            "retention 7 is neither dense (None), 0 (sparse) nor a multiple",
        ),
        (["--deployment", "unit-offload", "--prompt", "0"], "0 is not in the range"),
        (["--deployment", "unit-offload", "--prompt", "9", "--gate", "open"], "'open' is not one of"),
        (["--deployment", "llama-4-scout", "--prompt", "1000000"], "take 250,033 blocks and at most 40,000 are explained"),
        (["--deployment", "llama-4-scout", "--prompt", "3000000"], "6,000,000 tokens in all: at most 4,000,000 are explained"),
    ],
)
def test_a_question_that_cannot_be_asked_ends_with_1(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", *arguments]) == ExitCode.ERROR
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Internal error" not in captured.err
    assert captured.out == ""


def test_a_model_without_a_cached_group_hits_nothing():
    with pytest.raises(DeploymentError, match="no group is cached"):
        ask(deployment({"kind": "scratch", "block_size": 16}), 50)


def test_a_group_number_out_of_range_is_refused():
    with pytest.raises(ScenarioError, match="there is no group 2, they are numbered 0 to 1"):
        ask("unit-offload", 50, evicted=((2, 16),))


# --- how it is shown ----------------------------------------------------------------------------------------------


def test_geometry_alone(capsys):
    assert main(["explain", "--deployment", "unit-row-width"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "8,192      32,768" in out
    assert "65,536     262,144" in out
    assert "--prompt N --resend M asks what a second prompt hits" in out
    assert main(["explain", "--deployment", "unit-row-width", "--json"]) == ExitCode.HOLDS
    assert [row["entries"] for row in json.loads(capsys.readouterr().out)["geometry"]["groups"]] == [8192, 65_536]


def test_the_sources_are_shown_on_demand(capsys):
    assert main(["explain", "--deployment", "kimi-k3-tp8-dcp8", "--sources"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "https://github.com/local-inference-lab/vllm/pull/401" in out
    assert "no step budget was published" in out
    assert "kvproof explain --deployment kimi-k3-tp8-dcp8 --prompt 44449 --resend 44609 --gate closed" in out
    assert main([*K3, "--sources"]) == ExitCode.HOLDS
    assert "Where the numbers come from" in capsys.readouterr().out


def test_drafts_windows_and_evictions_are_named(capsys):
    assert main(["explain", "--deployment", "glm-5.3-flash-tp4-dcp4"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "MLA (draft)" in out
    assert "SlidingWindowSpec" not in out
    more = ["--between", "200", "--blocks", "300", "--evict", "window@96"]
    assert main(["explain", "--deployment", "gpt-oss-120b", "--prompt", "100", *more]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "SlidingWindowSpec" in out
    assert "Then an unrelated prompt of 200 tokens runs and takes blocks." in out
    assert "Then the block with the key of 96 in window loses its keys." in out


@pytest.mark.parametrize(
    ("rows", "total", "line"),
    [
        ([rules.SHORTER, rules.HIT, rules.NOT_SHARED, rules.CAP], 40, "...o...H...n...c"),
        ([rules.NO_SNAPSHOT] * 31 + [rules.HIT], 32, "s" * 15 + "H"),
        ([rules.RETENTION], 160, "r..............."),
    ],
)
def test_a_bar_has_a_letter_per_part(rows, total, line):
    unit = 10 if total != 32 else 1
    of_class = answer.ClassAnswer((0,), "x", "full_attention", unit, 0, tuple(Reason(rule, "") for rule in rows))
    assert words.bar(of_class, total, 16) == line


def test_long_lists_say_how_much_is_left_out(capsys):
    arguments = ["explain", "--deployment", "unit-offload", "--prompt", "1500", "--step-tokens", "32"]
    assert main(arguments) == ExitCode.HOLDS
    assert "more lines; --json has every boundary" in capsys.readouterr().out


def test_neighbours_with_one_rule_are_put_together_and_long_lists_are_cut():
    pattern = [Reason(rules.NO_SNAPSHOT, "a"), Reason(rules.NO_SNAPSHOT, "b"), Reason(rules.RETENTION, "c")]
    found = answer.ClassAnswer((0,), "x", "mamba_align", 10, 0, (*(pattern * 10), Reason(rules.HIT, "h"), *(pattern * 4)))
    every = words.stretches(found)
    assert every[0] == words.Stretch(10, 20, 2, rules.NO_SNAPSHOT, "for example at 20: b")
    assert every[1] == words.Stretch(30, 30, 1, rules.RETENTION, "c")
    assert sum(stretch.count for stretch in every) == len(found.candidates)
    cut = words.interesting(found, 9)
    assert sum(1 for item in cut if not isinstance(item, int)) == 9
    assert sum(item for item in cut if isinstance(item, int)) == len(every) - 9
    shown = [item for item in cut if not isinstance(item, int)]
    assert shown[0] == every[0]
    assert any(stretch.rule == rules.HIT for stretch in shown)
    assert shown[-1] == every[-1]
    assert words.interesting(found, 100) == every


def test_a_single_line_is_never_left_out():
    kinds = [rules.NO_SNAPSHOT, rules.RETENTION]
    for length in range(1, 40):
        found = answer.ClassAnswer(
            (0,), "x", "mamba_align", 10, 0, tuple(Reason(kinds[index % 2], "") for index in range(length))
        )
        for hit in range(length):
            with_hit = evolve(
                found,
                candidates=tuple(evolve(why, rule=rules.HIT) if at == hit else why for at, why in enumerate(found.candidates)),
            )
            every = words.stretches(with_hit)
            cut = words.interesting(with_hit, 9)
            assert 1 not in cut
            assert sum(item if isinstance(item, int) else 1 for item in cut) == len(every)
    assert [words.cut(number, 14) for number in (3, 14, 15, 16)] == [3, 14, 15, 14]


def test_one_is_no_plural(capsys):
    assert (words.count(1, "token"), words.count(0, "token"), words.count(1000, "token")) == (
        "1 token",
        "0 tokens",
        "1,000 tokens",
    )
    assert main(["explain", "--deployment", "unit-offload", "--prompt", "50", "--resend", "1"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "Second prompt: 1 token, the first 1 as before" in out
    assert "one letter: 1 token\n" in out
    assert "joint hit 0 of 1 token (0.0 %), 1 is computed again" in out
    assert "1 tokens" not in out


def test_classes_are_named_after_their_groups():
    assert answer.class_name(("a", "b"), (1,)) == "b"
    assert answer.class_name(("a", "k 1", "k 2", "k 3"), (1, 2, 3)) == "k 1-3"
    assert answer.class_name(("full", "draft"), (0, 1)) == "full to draft"


def test_a_pool_that_is_larger_than_needed_is_not_made():
    known = catalogue.find("unit-offload")
    question = Question(50, 50, 50, 64)
    config = model.configure(known, 2, 64)
    assert answer.explain(known, question, blocks=1 << 22).config.num_blocks == scenario.blocks_wanted(config, question)


# --- the page ------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_real_output(capsys):
    text = (ROOT / "docs/explain.md").read_text(encoding="utf-8")
    examples = text.split("```\n$ kvproof ")[1:]
    assert len(examples) == 2
    for example in examples:
        command, _, shown = example.partition("\n")
        assert main(command.split()) == ExitCode.HOLDS
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert shown.split("\n```")[0].splitlines() == lines


def test_every_command_of_the_page_runs(capsys):
    text = (ROOT / "docs/explain.md").read_text(encoding="utf-8")
    commands = [line.split("#")[0].split()[1:] for line in text.splitlines() if line.startswith("kvproof explain")]
    assert len(commands) >= 8
    for command in commands:
        if "mine.toml" not in command:
            assert main(command) == ExitCode.HOLDS, command
    capsys.readouterr()


def test_every_rule_of_the_page_is_one_and_has_its_letter():
    text = (ROOT / "docs/explain.md").read_text(encoding="utf-8")
    for rule, meaning in rules.MEANINGS.items():
        assert f"| {rule} | `{words.SIGNS[rule]}` | {meaning} |" in text
    assert set(words.SIGNS) == set(rules.MEANINGS)
    assert set(words.SIGN_WORDS) == {*words.SIGNS.values(), words.NOTHING}


# --- small words -------------------------------------------------------------------------------------------------


def test_connectors_and_another_retention_are_shown(capsys):
    k3 = ["explain", "--deployment", "kimi-k3-tp8-dcp8"]
    assert main([*k3, "--retention", "dense", "--sources"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "connector   supports_divergent_local_hybrid_hits" in out
    assert "retention   retention_interval                         dense" in out
    assert "asked with --retention" in out
    shared = ["--prompt", "30000", "--shared", "20000", "--step-tokens", "12288"]
    for retention, hit in (("dense", 12_288), ("sparse", 0), ("12288", 12_288)):
        assert main([*k3, *shared, "--retention", retention, "--json"]) == ExitCode.HOLDS
        found = json.loads(capsys.readouterr().out)
        assert found["joint_hit"] == hit
        assert found["cause"].startswith(f"{hit:,} because")


@pytest.mark.parametrize(
    ("prompt", "resend", "share"), [(4097, 4097, "over 99.9 %"), (17, 8000, "0.2 %"), (17, 17, "94.1 %"), (15, 15, "0.0 %")]
)
def test_a_part_is_never_rounded_to_all(prompt, resend, share):
    assert words.share(ask("gpt-oss-120b", prompt, resend)) == share


def test_the_same_prompt_is_called_so(capsys):
    assert main(["explain", "--deployment", "unit-offload", "--prompt", "96"]) == ExitCode.HOLDS
    assert "Second prompt: 96 tokens, the same" in capsys.readouterr().out


# --- remarks --------------------------------------------------------------------------------------------------------


def test_a_third_prompt_is_promised_the_junction_only_where_chunks_are_clipped(capsys):
    assert main(["explain", "--deployment", "unit-offload", "--prompt", "96", "--shared", "70"]) == ExitCode.HOLDS
    assert "Junction 64: some group had that much." in capsys.readouterr().out
    evict = ["--evict", "Mamba@64"]
    assert main(["explain", "--deployment", "unit-divergent", "--prompt", "64", "--resend", "96", *evict]) == ExitCode.HOLDS
    assert "Junction" not in capsys.readouterr().out


def test_a_divergent_hit_is_explained(capsys, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(catalogue.source("unit-divergent").decode().replace("value = false", "value = true"))
    assert main(["explain", "--config", str(file), "--prompt", "64", "--resend", "96", "--evict", "1@64"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "The lookup reports 64, the depth of full attention" in out
    assert "joint hit 48 of 96" in out
