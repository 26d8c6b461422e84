"""The test that is made of a counterexample says what becomes of it; text of a file is no code, no markup and no command."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from attrs import evolve

from kvproof.spec import cli, counterexample, faults
from kvproof.spec.report import departure, forms, lines
from kvproof.spec.report.rerun import run_again
from tests.spec.report.found import found, taken_at_its_word
from tests.spec.report.test_rerun import gone, refused, with_implementation


def test_a_profile_fault_that_the_profile_has_not_is_told():
    example = found("M-TAIL-5")
    sound = evolve(example, profile=departure.without_fault(example).profile)
    [note] = [note for note in run_again(sound).notes if "nothing is planted" in note]
    assert note == "M-TAIL-5 is finish_tail = prompt of the profile, which the file has as registered: nothing is planted."
    text = forms.render("as-test", sound)
    assert "To see that, set" not in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"law": "ZZ-1"}, "Without the fault it cannot be run, so that the test fails: no law 'ZZ-1'"),
        ({"law": "ZZ-1", "fault": ""}, "Here it cannot be run, so that the test fails: no law 'ZZ-1'"),
        ({"fault": "M-NONE-1"}, "Without the fault it passes."),
        ({"law": "PC-1"}, "Without the fault it passes."),
        (
            {"settings": evolve(found("M-LRU-1").settings, num_blocks=0)},
            "Without the fault it cannot be run, so that the test fails: the configuration is refused",
        ),
    ],
)
def test_a_test_says_what_becomes_of_it_where_the_law_is_not_seen_to_break(changes, said):
    text = forms.render("as-test", evolve(found("M-LRU-1"), **changes))
    assert said in text.replace("\n", " ")
    # With the fault planted it would not fail either.
    assert "faults.by_id" not in text
    if "passes" in said:
        run(text)
    else:
        with pytest.raises(counterexample.CounterexampleError):
            run(text)


def run(text: str) -> None:
    """Run the only test of a pasted file."""
    names: dict[str, Any] = {}
    exec(text, names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test()


def test_the_test_of_a_refused_configuration_says_that_it_is_refused_with_the_fault():
    text = forms.render("as-test", refused())
    assert "With the fault planted it ends in an error" in text
    run(text)
    with faults.planted(faults.by_id("M-SCR-1")), pytest.raises(counterexample.CounterexampleError):
        run(text)


def test_a_test_has_the_evidence_of_here():
    example = evolve(found("M-LRU-1"), message="all is lost", sentence="Nothing is kept.")
    text = forms.render("as-test", example)
    assert text.startswith('"""PC-8: the free queue is not in eviction order.')
    assert "def test_pc_8_the_free_queue_is_not_in_eviction_order" in text
    assert forms.render("as-test", gone()).startswith('"""PC-8: not seen here.')


@pytest.mark.parametrize("name", ["law", "fault", "engine", "scope", "kvproof", "python"])
@pytest.mark.parametrize("value", ['x"""\nprint("1")\n"""', "a\nb", "a\x1b[2J", "a\u2028b"])
def test_a_name_of_several_lines_is_refused(name, value):
    with pytest.raises(counterexample.CounterexampleError, match=f"{name}: .* is needed, and not"):
        counterexample.loads(counterexample.dumps(evolve(found("M-LRU-1"), **{name: value})))


@pytest.mark.parametrize("scope", ["a'] + [print('x')] + ['", 'a"""', "`x`", "a](b)"])
def test_text_of_a_file_is_no_code_and_no_markup(scope):
    example = with_implementation(found("M-LRU-1"), scope=scope)
    ast.parse(forms.render("as-test", example))
    ast.parse(forms.render("as-test", evolve(example, engine=counterexample.TENSORS)))
    call = lines.reproduce(example)
    parsed = ast.parse(call, mode="eval").body
    assert isinstance(parsed, ast.Call)
    [named] = [word.value for word in parsed.keywords if word.arg == "scopes"]
    assert ast.literal_eval(named) == [scope]
    for form in ("markdown", "reviewer"):
        text = forms.render(form, evolve(found("M-LRU-1"), scope=scope, message="see [here](http://x)"))
        assert [line for line in text.splitlines() if "](" in line and not line.startswith("    ")] == []


def test_the_markdown_of_many_groups_is_short():
    example = found("M-SCR-1")
    many = evolve(example, settings=evolve(example.settings, groups=example.settings.groups * 40))
    text = forms.render("markdown", many)
    assert len(text.splitlines()) < 60
    assert "more groups." in text


@pytest.mark.parametrize("message", ["\\<img src=x>", "a|b", "[c]: http://x", "[a](http://x)"])
def test_no_text_of_a_file_is_markup(message):
    shown = counterexample.Implementation(f"mine\n# {message}", tuple(counterexample.Shown(message) for _ in range(8)))
    profile = evolve(found("M-LRU-1").profile, name=message, short_runs="align")
    example = evolve(
        found("M-LRU-1"),
        fault="",
        message=message,
        values=((message, 1),),
        sentence=message,
        profile=profile,
        implementation=shown,
    )
    for form in ("markdown", "reviewer"):
        text = forms.render(form, example)
        # Between backticks nothing is markup.
        plain = [re.sub(r"`[^`]*`", "", line) for line in text.splitlines() if not line.startswith("    ")]
        assert [line for line in plain if re.search(r"(?<!\\)(?:\\\\)*<img", line)] == []
        assert [line for line in plain if "](" in line or "[c]:" in line] == []
        assert [line for line in plain if line.startswith("# ") and "mine" not in line] == plain[:1]


def test_control_characters_reach_no_terminal(tmp_path, capsys):
    odd = "a\x07\x1b]0;x\x07\u202eb"
    file = tmp_path / "odd.json"
    for example in (
        evolve(found("M-LRU-1"), message=odd, fault=""),
        evolve(with_implementation(found("M-LRU-1")), message=odd),
        evolve(found("M-LRU-1"), sentence=odd, law="ZZ-1"),
    ):
        if example.implementation is not None:
            example = evolve(example, implementation=evolve(example.implementation, adapter=odd))
        file.write_text(counterexample.dumps(example))
        for options in ([], ["--replay"], ["--markdown"], ["--reviewer"], ["--as-test"]):
            cli.main(["report", str(file), *options])
            said = capsys.readouterr()
            assert not {"\x07", "\x1b", "\u202e"} & set(said.out + said.err), options


def test_a_law_of_the_configuration_alone_breaks_at_no_run():
    example = evolve(found("M-LRU-1"), law="TB-12", position=-1)
    assert lines.of_configuration(example)
    assert lines.place(example) == "the configuration, before any action"
    assert not lines.of_configuration(found("M-LRU-1"))
    assert not lines.of_configuration(found("M-LEAK-3"))
    assert taken_at_its_word(example).mark == "✗ TB-12 does not hold of this configuration"


def test_a_picture_without_a_world_takes_no_other_form_away(tmp_path, capsys):
    file = tmp_path / "refused.json"
    file.write_text(counterexample.dumps(refused()))
    assert cli.main(["report", str(file), "--svg", "--markdown", "--out", str(tmp_path / "out")]) == 0
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["refused.md"]
    assert capsys.readouterr().err.startswith("--svg is left out: there is no world to show: the configuration is refused: ")
    assert cli.main(["report", str(file), "--svg"]) == 1
    assert capsys.readouterr().err.count("no world to show") == 1
