"""Scripts: the same for the same seed, read back from JSON, and with everything in them that a scheduler is to see."""

import itertools
import json
from collections import Counter

import pytest

from kvproof.spec.exits import UserError
from kvproof.spec.vllm import scopes, scripts


def generated(count=12):
    return [
        (scope, scripts.generate(scope.config, f"{seed}/{scope.name}", 40, scope.ample))
        for scope in scopes.ALL
        for seed in range(count)
    ]


def test_the_same_seed_gives_the_same_script_and_another_one_another():
    config = scopes.by_name("fa4-m4-n2").config
    assert scripts.generate(config, "3", 40) == scripts.generate(config, "3", 40)
    assert scripts.generate(config, "3", 40) != scripts.generate(config, "4", 40)


def test_a_script_is_read_back_from_json():
    for _, script in generated(2):
        assert scripts.checked(json.loads(json.dumps(scripts.as_json(script)))) == script


def test_the_exact_forms_are_read_as_well():
    script: scripts.Script = (("submit", [1, 2], 3, 0, "a"), ("step",), ("update", {"a": [5]}, {"a": []}), ("abort", "a"))
    assert scripts.checked(json.loads(json.dumps(scripts.as_json(script)))) == script


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"step": 1}, "a script is a list"),
        ([["stop"]], "operation 0 of the script"),
        ([["step"], ["submit", [], 1, 0]], "operation 1 of the script, submit"),
        ([["submit", [1], -1, 0]], "submit"),
        ([["update", {"r0": ["x"]}, {}]], "update"),
        ([["reset", 1, False]], "reset"),
        ([[]], "operation 0"),
    ],
)
def test_what_is_no_script_is_refused_with_its_place(data, message):
    with pytest.raises(UserError, match=message):
        scripts.checked(data)


def test_every_kind_of_operation_occurs():
    seen = Counter(op[0] for _, script in generated() for op in script)
    assert set(seen) == set(scripts.FORMS)


def test_prompts_fit_and_repeat_and_branch():
    identical = longer = branched = 0
    for scope, script in generated():
        prompts = [tuple(op[1]) for op in script if op[0] == "submit"]
        assert all(0 < len(prompt) < scope.config.max_model_len for prompt in prompts)
        for at, prompt in enumerate(prompts):
            earlier = prompts[:at]
            identical += prompt in earlier
            longer += any(len(one) < len(prompt) and prompt[: len(one)] == one for one in earlier)
            branched += any(one[0] == prompt[0] and one[: len(prompt)] != prompt[: len(one)] for one in earlier)
    assert min(identical, longer, branched) > 50


def test_identical_prompts_come_back_after_a_device_reset_with_nothing_between():
    experiments = 0
    for _, script in generated():
        for at, op in enumerate(script):
            if op == ("reset", False, False) and at > 1 and script[at - 1] == ("settle",):
                sent = [one[1] for one in script[:at] if one[0] == "submit"]
                behind = script[at + 1]
                experiments += behind[0] == "submit" and behind[1] in sent
    assert experiments > 20


def test_prompts_end_beside_boundaries():
    scope = scopes.by_name("fa16-m16-h4")
    lengths = Counter(
        len(op[1]) % 16 for seed in range(60) for op in scripts.generate(scope.config, str(seed), 40) if op[0] == "submit"
    )
    assert len(lengths) == 16
    assert lengths[0] + lengths[1] + lengths[15] > sum(lengths.values()) // 4


def test_siblings_are_submitted_before_one_step():
    assert any(a[0] == b[0] == "submit" for _, script in generated(2) for a, b in itertools.pairwise(script))


def test_a_reset_preempts_running_requests_only_without_transfers():
    for scope, script in generated():
        if scope.config.host is not None or scope.config.connectors:
            assert not any(op[0] == "reset" and op[1] for op in script)
