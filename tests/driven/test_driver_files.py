"""A driver file: an engine of one's own, driven without a change to labengine, and the check that ships for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import labengine
from labengine import events as ev
from labengine.config import ConfigError
from labengine.driven.conformance import main
from labengine.driven.drivable import drivable
from labengine.driven.drive import driven
from labengine.driven.inside.contract import broken_promises
from labengine.driven.inside.symptoms import Symptom, play, sampling
from labengine.finder.engines.scopes import file_scopes, wire_workload
from labengine.finder.engines.search import find_in_engine
from labengine.finder.random_search import RandomWorkloads
from labengine.session.saved.no_test import NoTestError

OWN = Path(__file__).with_name("own_engine.py")


def changed(folder: Path, old: str, new: str) -> str:
    """The path of the driver file with a change."""
    text = OWN.read_text()
    assert old in text
    path = folder / "changed_engine.py"
    path.write_text(text.replace(old, new))
    return str(path)


def test_the_check_passes_an_engine_that_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(OWN), "--workloads", "30"]) == 0
    assert "30 random workloads" in capsys.readouterr().out


# What the check says about a changed copy of own_engine.py: the text that is replaced, and what replaces it.
DRIVER_FAULTS: dict[str, tuple[str, ...]] = {
    "VERSION is 1: make it a text": ('VERSION = "1.0"', "VERSION = 1"),
    "CORE is of type": ("CORE = Core", "CORE = object()"),
    "PACKAGES is 'engine': make it a tuple": ("CORE = Core", "CORE = Core\nPACKAGES = 'engine'"),
    "PACKAGES has 'engin', which this file does not import": ("CORE = Core", "CORE = Core\nPACKAGES = ('engin',)"),
    "CORE has no is_idle: make it a property": ("def is_idle", "def idle"),
    "is_idle is of type method: make it a property": ("    @property\n    def is_idle", "    def is_idle"),
    "is_idle is 1: make it a property that returns True or False": ("return not (", "return 1 - bool("),
    "plan is None: make it {}": ("self.plan, self.token_at = {}, {}", "self.plan, self.token_at = {}, None"),
    "CORE has no reset: make it a method": ("def reset", "def reset_cache"),
    "add has too many positional arguments: declare add(": ("max_tokens, salt=None)", "max_tokens)"),
    "add has got an unexpected keyword argument 'priority'": ('("abort", "reset")', '("abort", "reset", "priority")'),
    "content_of('2') is [None, 7, 8, 9, 10, 11]: make it ['a', 7": ('("abort", "reset")', '("abort", "reset", "salt")'),
    "content_of('0') is [None, [7, 8": ("[None, *request.tokens[: request.num_prompt]]", "[None, request.tokens]"),
    "content_of('0') is [None, 7, 8, 9, 10, 11, 25]": ("tokens[: request.num_prompt]", "tokens"),
    "step() reports the calls ['schedule', 'update'] to after_call: make them []": ("if self.is_idle:", "if False:"),
    "with the policy 'priority', a request with priority 0 must be": (
        *('("abort", "reset")', '("abort", "reset", "priority")'),
        *("salt=None)", "salt=None, priority=0)"),
    ),
    "request 1 finds blocks [4] in the cache: state()['cached'] must have them": (
        "len(prompt) + max_tokens, 0,",
        "len(prompt) + max_tokens, 2 * (name == '1'),",
    ),
    "request 3 finds blocks of another salt": (
        *('("abort", "reset")', '("abort", "reset", "salt")'),
        *("[None, *request", "[[None, None, 'a', 'b', 'b'][int(name)], *request"),
        *("len(prompt) + max_tokens, 0,", "len(prompt) + max_tokens, 2 * (name == '3'),"),
        *('"cached": []', '"cached": [0, 1, 2, 3, 4]'),
    ),
    "blocks are still cached after reset(): forget them": ('"cached": []', '"cached": [0]'),
    "state() has no 'holds'": ('"cached": [],', '"tree": [],'),
    "step() of an idle engine returns None: make it False": ("return False", "return None"),
    "step() returns None: return True after a step": ("return bool(batch)", "return"),
    "step() reports the calls ['update']": ('self.after_call("schedule")', "pass"),
    "add() reports the calls []": ('self.after_call("add")', "pass"),
    "abort() reports the calls []": ('self.after_call("abort")', "pass"),
    "reset() reports the calls ['abort']": ('self.after_call("reset")', 'self.after_call("abort")'),
    "plan is {'0': (0, 1)} after a step up to position 4": ("(request.num_computed, number)", "(0, 1)"),
    "plan is {'0': (5, 6)} after": ("(request.num_computed, number)", "(request.num_computed, len(request.tokens))"),
    "plan is {'0': (5, 1), '1': (0, 5)} after": ("self.plan = {request.name", "self.plan |= {request.name"),
    "calls token_at('0', 0): make it token_at('0', 5)": ("len(request.tokens)))", "request.num_computed - 5))"),
    "calls token_at('0', 4): make it token_at('0', 5)": ("len(request.tokens)))", "len(request.tokens) - 1))"),
    "state() has no 'null_block': make it a block id, or None": ('"null_block": None,', ""),
    "block 0 is the null_block, but is given away": ('"null_block": None', '"null_block": 0'),
    "state()['ref_counts'] is of type deque: make it a list": ("list(self.scheduler.ref", "deque(self.scheduler.ref"),
    "state()['ref_counts'] is [0, 0, 0, 0]: make it a list of int, one for each": ("ref_counts),", "ref_counts)[1:],"),
    "state()['cached'] is ['7f']: make it a list of block ids": ('"cached": []', '"cached": ["7f"]'),
    "state()['requests'] is {0: ": ("{one.name: [status", "{int(one.name): [status"),
    "['active', [[0, 1, 2, 3]]]: make it [status, [table]]": ('"running")', '"active")'),
    "['waiting', []]: make it [status, [table]]": ("[list(one.blocks)]]", "list(one.blocks)]"),
    "state() returns a list that the engine changes later": (
        "list(self.scheduler.ref_counts)",
        "self.scheduler.ref_counts",
    ),
    "gets blocks [0, 1, 2, 3], but state()['free_queue'] began with [4, 3, 2, 1]": (
        "list(self.scheduler.free)",
        "list(self.scheduler.free)[::-1]",
    ),
    "5 tokens have a table of 2 blocks of 2: use settings['groups']": ("size, settings[", "2 * size, settings["),
}
ENGINE_FAULTS: dict[str, tuple[str, ...]] = {
    "blocks still have references after step()": ("self.ref_counts[block] -= 1", "pass"),
    "has ['0'] after step(): it must have those that have not ended, []": (
        "self.running.remove(request)\n                self.release",
        "self.release",
    ),
    "block 5 has ref_count 0, but 1 hold it": ("ref_counts[block] += 1", "ref_counts[block] += block != 5"),
    "appears 2 times in the table of request": (
        "        for block in request.blocks:\n            self.ref_counts[block] += 1",
        "        request.blocks[1:2] = request.blocks[: number == 2] or request.blocks[1:2]\n"
        "        for block in request.blocks:\n            self.ref_counts[block] += 1",
    ),
    "but has computed only": ("if request.num_computed == len(request.tokens):", "if True:"),
    "but its table has 2 blocks of 4": ("-(-self.waiting[0].longest", "-(-min(8, self.waiting[0].longest)"),
    "the engine is idle, although some requests have not ended": (
        "not (self.scheduler.waiting",
        "not (len(self.scheduler.waiting) % 2",
    ),
    "more steps some requests have not ended": ("needed > len(self.free)", "needed >= len(self.free)"),
}


def said_of(text: str) -> str:
    """What the check says of a driver file, whose workloads are played in this process."""
    driving = ModuleType("changed_engine")
    exec(text, vars(driving))
    scopes = file_scopes(str(OWN))
    source = RandomWorkloads(scopes, 0)
    try:
        for sentence in broken_promises(driving, scopes[0].settings):
            return sentence
        for wire in (wire_workload(case.scope, case.workload) for case in (source.next() for _ in range(60))):
            settings = wire["settings"]
            play(driving.CORE(settings, sampling(settings)), settings, wire["operations"], [])
    except Symptom as symptom:
        return str(symptom)
    return ""


@pytest.mark.parametrize("said", [*DRIVER_FAULTS, *ENGINE_FAULTS])
def test_a_fault_has_its_sentence(said: str) -> None:
    text, changes = OWN.read_text(), {**DRIVER_FAULTS, **ENGINE_FAULTS}[said]
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    assert said in said_of(text)


def test_nothing_is_said_of_an_engine_that_keeps_the_contract() -> None:
    assert not said_of(OWN.read_text())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def is_idle", "def idle", "CORE has no is_idle"),
        ("request.blocks = [", "request.blocks = [block for block in ", "in the first requests"),
        ("self.ref_counts[block] += 1", "self.ref_counts[block] += block != 5", "breaks the rule ref_count"),
        ("needed > len(self.free)", "needed >= len(self.free)", "never ends"),
        ("self.free.append(block)", "self.free.insert(__import__('time').time_ns() // 64 % 2, block)", "differs from"),
    ],
)
def test_the_check_prints_what_is_wrong(
    old: str, new: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([changed(tmp_path, old, new), "--workloads", "40"]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("VERSION = '1'\nSUPPORTS = ()\n", "it assigns no CORE"),
        ("VERSION = '1'\nCORE = int\nSUPPORTS = ('beams',)\n", "SUPPORTS may have abort, reset"),
        ("VERSION = ", "invalid syntax"),
    ],
)
def test_a_file_that_is_no_driver_is_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "no_driver.py"
    file.write_text(text)
    assert main([str(file)]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(ConfigError, match="cannot be used"):
        labengine.drive(file)


def test_it_supports_what_it_says() -> None:
    known = drivable(str(OWN))
    assert known.operations == ("add", "step", "abort", "reset") and known.options == ()
    assert driven(OWN, None, None).parts("fcfs").name == "own_engine"
    with pytest.raises(ConfigError, match="own_engine has no priorities"):
        labengine.drive(OWN, policy="priority")


def test_an_operation_that_it_lacks_is_refused(tmp_path: Path) -> None:
    lacking = driven(changed(tmp_path, 'SUPPORTS = ("abort", "reset")', "SUPPORTS = ()"), None, None)
    with pytest.raises(ConfigError, match="changed_engine has no abort"):
        lacking.refuse_operation("abort")
    with pytest.raises(ConfigError, match="changed_engine has no reset of its cache"):
        lacking.refuse_operation("reset")


def test_a_finding_has_a_script_that_needs_the_engine_alone(tmp_path: Path) -> None:
    file = changed(tmp_path, "self.ref_counts[block] += 1", "self.ref_counts[block] += block != 5")
    (finding,) = find_in_engine(file, driven(file, None, None).python, max_workloads=40).findings
    assert "class Scheduler" in finding.to_script() and "changed_engine 1.0 breaks the rule" in str(finding)


@pytest.fixture(scope="module")
def lab() -> Iterator[labengine.Lab]:
    """The engine in a lab, after the first step of a request of two blocks and one of four."""
    with labengine.drive(OWN, num_blocks=8, block_size=4) as made:
        made.add(token_ids=range(6), max_tokens=1)
        made.add(token_ids=range(9), max_tokens=4)
        made.step()
        yield made


def test_the_most_blocks_in_use_are_those_of_the_forward_pass(lab: labengine.Lab) -> None:
    assert lab.stats().peak_used_blocks == 6
    assert lab.timeline.state().num_used_blocks == 4


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("schedule", "name one as Class.method"),
        ("Scheduler.shedule", "did you mean Scheduler.schedule"),
        ("Pages.drop", "no method 'Pages.drop'; the classes of these modules are known: driver_file$"),
    ],
)
def test_an_unknown_method_is_refused(method: str, said: str, lab: labengine.Lab) -> None:
    with pytest.raises(ConfigError, match=said):
        lab.rerun(labengine.Patch(method, "def x(self): pass"))


def test_a_test_needs_a_patch(lab: labengine.Lab) -> None:
    with pytest.raises(NoTestError, match=r'labengine.Patch\("Class.method", text\)'):
        lab.to_test()


def test_requests_give_their_blocks_back_one_after_the_other(tmp_path: Path) -> None:
    freeing = "(self.free.append if block % 2 else self.free.appendleft)(block)"
    with labengine.drive(changed(tmp_path, "self.free.append(block)", freeing), num_blocks=8, block_size=4) as lab:
        lab.add(token_ids=range(9), max_tokens=1)
        lab.add(token_ids=range(9), max_tokens=1)
        lab.run()
        freed = lab.timeline.of_kind(ev.BlockFreed)
        assert [one.request_id for one in freed] == [0, 0, 0, 1, 1, 1]
        assert {one.queue_end for one in freed} == {"head", "tail"} and not lab.violations
