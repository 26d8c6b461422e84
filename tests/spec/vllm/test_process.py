"""The process of a release: requests and answers, and every way in which it can fail, with small children of our own."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from pathlib import Path

import pytest

from kvproof.spec import distribution
from kvproof.spec.vllm.child import main
from kvproof.spec.vllm.process import (
    CHILD,
    ReleaseCrashed,
    ReleaseHung,
    ReleaseLacks,
    ReleaseProcess,
    ReleaseRaised,
    ReleaseUnusable,
    environment,
    lacks,
    missing_packages,
    place,
    raised_at,
    raising,
)
from kvproof.spec.vllm.releases import Release

HEAD = """
import json, os, signal, sys, time
def answer(**what):
    sys.stdout.write(json.dumps(what) + chr(10)); sys.stdout.flush()
for text in sys.stdin:
    request = json.loads(text)
    if request["do"] == "hello":
        HELLO
        continue
"""
HELLO = 'answer(version="1.2.3", missing=[])'


@pytest.fixture
def child(tmp_path):
    """Makes a process whose child answers hello and then runs the given lines for every other request."""
    made: list[ReleaseProcess] = []

    def make(body: str, hello: str = HELLO, seconds: float = 30.0) -> ReleaseProcess:
        file = tmp_path / "child.py"
        file.write_text(HEAD.replace("HELLO", hello) + textwrap.indent(textwrap.dedent(body), "    "))
        made.append(ReleaseProcess(Release("1.2.3", tmp_path, "checkout", "here"), seconds=seconds, child=file))
        return made[-1]

    yield make
    for process in made:
        process.close()


LINES = """
if request["do"] == "run":
    for n in range(request["script"][0]):
        answer(line="line %d" % n)
    answer(end={"steps": 1})
elif request["do"] == "rows":
    for one in request["appends"]:
        answer(rows=one)
else:
    answer(pid=os.getpid(), path=os.environ["PYTHONPATH"], seed=os.environ["PYTHONHASHSEED"])
"""


def test_requests_are_answered_by_one_process(child, tmp_path):
    with child(LINES) as process:
        assert process.pid is None
        assert process.start()["version"] == "1.2.3"
        first = process.geometry({})
        assert first == {"pid": process.pid, "path": str(tmp_path), "seed": "0"}
        assert process.rows({}, [[1], [2]]) == [{"rows": [1]}, {"rows": [2]}]
        assert [answer.get("line") for answer in process.run({}, [2])] == ["line 0", "line 1", None]
        assert process.geometry({}) == first
        assert process.hello["missing"] == []
    assert process.pid is None


def test_a_run_that_is_left_early_does_not_answer_the_next_request(child):
    process = child(LINES)
    for answer in process.run({}, [1000]):
        assert answer["line"] == "line 0"
        break
    assert "pid" in process.geometry({})


def test_a_hang_is_ended_and_the_next_request_starts_anew(child):
    process = child(
        """
        print("going to sleep", file=sys.stderr, flush=True)
        time.sleep(1000)
        """,
        seconds=1.0,
    )
    with pytest.raises(ReleaseHung, match="no answer to geometry within 1 s") as caught:
        process.geometry({})
    assert caught.value.said == ("going to sleep",)
    assert process.pid is None
    assert process.start()["version"] == "1.2.3"


def test_time_that_the_caller_takes_between_two_lines_does_not_count(child):
    process = child(LINES, seconds=1.0)
    lines = process.run({}, [3])
    next(lines)
    time.sleep(1.2)
    assert len(list(lines)) == 3


def has_ended(pid: int) -> bool:
    """Whether a killed process ends: the signal was sent to it, but it stays in the table until the kernel runs it."""
    state = Path(f"/proc/{pid}/stat")
    for _ in range(600):
        try:
            if state.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def test_a_hang_takes_what_the_child_started_with_it(child, tmp_path):
    process = child(
        """
        import subprocess
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        print(other.pid, file=sys.stderr, flush=True)
        time.sleep(1000)
        """,
        seconds=5.0,
    )
    with pytest.raises(ReleaseHung) as caught:
        process.geometry({})
    (pid,) = caught.value.said
    assert has_ended(int(pid))


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("sys.exit(7)", 7, "ended with status 7 during geometry"),
        ("os._exit(0)", 0, "ended with status 0"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, "ended by SIGSEGV"),
        ("raise ValueError('deep inside')", 1, "deep inside"),
    ],
)
def test_a_crash_is_told_with_its_status_and_last_words(child, body, code, words):
    process = child(body)
    with pytest.raises(ReleaseCrashed) as caught:
        process.geometry({})
    assert caught.value.code == code
    assert words in str(caught.value)
    assert process.pid is None
    assert process.start()["version"] == "1.2.3"


def test_a_crash_in_the_middle_of_a_run_leaves_the_lines_before_it(child):
    process = child('answer(line="a"); os._exit(3)')
    seen: list[str] = []
    with pytest.raises(ReleaseCrashed):
        seen.extend(answer["line"] for answer in process.run({}, []))
    lines = process.run({}, [])
    assert next(lines) == {"line": "a"}


@pytest.mark.parametrize(
    "what", ["print('hello from the engine')", "print([1])", "print(chr(0))", r"os.write(1, b'\xff\xfe\n')"]
)
def test_garbage_is_no_answer(child, what):
    process = child(f"{what}; sys.stdout.flush(); time.sleep(1000)")
    with pytest.raises(ReleaseUnusable, match="no JSON object"):
        process.geometry({})
    assert process.pid is None


def test_an_answer_to_a_run_that_is_neither_a_line_nor_the_end(child):
    process = child("answer(other=1)")
    with pytest.raises(ReleaseUnusable, match="neither a line nor the end"):
        list(process.run({}, []))


def test_an_exception_of_the_release_leaves_the_process_alive(child):
    process = child('answer(raised="KeyError: 3", traceback="...") if request["do"] == "geometry" else answer(rows=[])')
    process.start()
    pid = process.pid
    with pytest.raises(ReleaseRaised, match="KeyError: 3"):
        process.geometry({})
    assert process.rows({}, [1]) == [{"rows": []}]
    assert process.pid == pid


def test_what_the_release_does_not_have_is_said_and_leaves_the_process_alive(child):
    process = child('answer(unsupported="a window") if request["do"] == "geometry" else answer(rows=[])')
    with pytest.raises(ReleaseLacks, match="does not support a window") as caught:
        process.geometry({})
    assert caught.value.lacking == "a window"
    assert process.rows({}, [1]) == [{"rows": []}]


def test_missing_packages_are_named_with_the_line_that_brings_them(child):
    process = child("", hello='answer(version="1.2.3", missing=["yaml", "odd"])')
    with pytest.raises(
        ReleaseUnusable, match=r"yaml, odd\. Run: .*requirements/lock\.txt -e '\.\[vllm\]' && .* install odd$"
    ) as caught:
        process.start()
    assert caught.value.missing == ("yaml", "odd")
    assert process.pid is None


def test_an_installed_copy_names_itself_and_torch_for_the_cpu_comes_first(monkeypatch):
    monkeypatch.setattr(distribution, "source_folder", lambda: None)
    said = lacks(("torch", "zmq"))
    assert said.endswith("pip install 'kvproof[vllm]'")
    assert said.index("torch --index-url") < said.index("kvproof[vllm]")


def test_packages_that_are_missing_are_found_without_importing(monkeypatch):
    monkeypatch.setattr(main, "NEEDED", ("json", "no_such_package_at_all"))
    assert missing_packages() == ("no_such_package_at_all",)


def test_a_missing_package_that_ends_the_child_is_named_as_well(child):
    with pytest.raises(ReleaseUnusable, match="no_such_package_at_all"):
        child("", hello="import no_such_package_at_all.inner").start()


def test_a_module_that_the_release_itself_lacks_is_a_crash(child):
    with pytest.raises(ReleaseCrashed):
        child("", hello="raise ModuleNotFoundError(\"No module named 'vllm.v9'\")").start()


def test_only_the_last_words_are_kept(child):
    process = child('sys.stderr.write("".join("word %d" % n + chr(10) for n in range(1000))); sys.exit(1)')
    with pytest.raises(ReleaseCrashed) as caught:
        process.geometry({})
    assert len(caught.value.said) == 40
    assert caught.value.said[-1] == "word 999"


def test_settings_of_the_caller_do_not_reach_the_child(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PYTHONSTARTUP", "/x")
    monkeypatch.setenv("VLLM_USE_V1", "0")
    monkeypatch.setenv("HOME", "/there")
    found = environment(tmp_path)
    assert found["PYTHONPATH"] == str(tmp_path)
    assert found["HOME"] == "/there"
    assert "PYTHONSTARTUP" not in found
    assert "VLLM_USE_V1" not in found
    assert os.environ["PYTHONPATH"] == "/elsewhere"


def test_the_child_of_the_project_lies_beside_this_package():
    assert CHILD.name == "main.py"
    assert CHILD.parent.name == "child"


TRACE = """Traceback (most recent call last):
  File "{child}", line 9, in run
    driver.run()
  File "/some/where/vllm/0.1.0/vllm/v1/request.py", line 12, in append
    assert n
AssertionError
"""


def test_an_exception_is_named_with_its_place():
    assert place(TRACE) == "vllm/v1/request.py:12 in append"
    assert raised_at("AssertionError: ", TRACE) == "AssertionError (no message), at vllm/v1/request.py:12 in append"
    assert raised_at("ValueError: no", "") == "ValueError: no"
    own = TRACE.replace("/some/where/vllm/0.1.0/vllm/v1/request.py", str(CHILD))
    assert place(own) == "kvproof/spec/vllm/child/main.py:12 in append"
    failure = ReleaseRaised(version="1", doing="hello", text="AttributeError: x", traceback=TRACE)
    assert str(failure) == "vLLM 1 raised during hello: AttributeError: x, at vllm/v1/request.py:12 in append"


def test_what_raised_is_named_without_folder_and_line():
    assert raising("") == ("", "")
    assert raising(TRACE)[0] == "vllm/v1/request.py in append"
    assert raising(TRACE.replace("line 12", "line 77")) == raising(TRACE)
    own = TRACE.replace("/some/where/vllm/0.1.0/vllm/v1/request.py", str(CHILD))
    assert raising(own)[0] == "kvproof/spec/vllm/child/main.py in append"
    lines = [*TRACE.rstrip().splitlines()[:-1], '  File "/some/vllm/.venv/lib/site-packages/torch/a.py", line 3, in b']
    assert raising("\n".join([*lines, "    raise E", "E"]))[0] == "vllm/v1/request.py in append"


def test_the_statement_that_raised_is_told():
    trace = 'Traceback:\n  File "/x/vllm/v1/a.py", line 5, in schedule\n    assert n == m\n           ^^^^^^\nAssertionError\n'
    assert raising(trace) == ("vllm/v1/a.py in schedule", "assert n == m")
    assert raising(trace.replace("    assert n == m\n           ^^^^^^\n", "")) == ("vllm/v1/a.py in schedule", "")
