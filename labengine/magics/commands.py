"""The commands of %lab: each a function of the current lab and of what its line gave, in the table by its own name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from labengine.core.editions import EDITIONS
from labengine.events import StepStarted
from labengine.magics.current_lab import CurrentLab
from labengine.magics.table import LineReader, argument, command
from labengine.magics.words import NOTHING_TO_DO, added_line, name_of, request_lines, step_line
from labengine.scenarios import SCENARIOS, listing
from labengine.scenarios import bug as bug_of

if TYPE_CHECKING:
    from labengine.engine.engine import StepReport
    from labengine.lab import Lab


def whole_number(text: str) -> int:
    """A count from 1, as argparse wants it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def block_count(text: str) -> int | str:
    """A number, or "auto"."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor auto") from None


SAMPLING = (
    argument("--max-tokens", type=int, metavar="N"),
    argument("--copies", type=whole_number, metavar="N"),
    argument("--temperature", type=float, metavar="T"),
    argument("--top-k", type=int, metavar="K"),
    argument("--top-p", type=float, metavar="P"),
    argument("--seed", type=int, metavar="SEED"),
    argument("--ignore-eos", action="store_true"),
    argument("--chat", action="store_true"),
)

PROMPT = LineReader("%%prompt", SAMPLING)
"""How the first line of a %%prompt cell is read."""


@command(
    argument("--model", offers=("smollm2", "gemma3-270m", "simulated"), metavar="NAME"),
    argument("--blocks", dest="num_blocks", type=block_count, metavar="N"),
    argument("--block-size", type=int, metavar="TOKENS"),
    argument("--edition", offers=tuple(EDITIONS), metavar="NAME"),
    argument("--dtype", offers=("float32", "bfloat16", "float16"), metavar="NAME"),
    argument("--device", offers=("cpu", "cuda"), metavar="NAME"),
    argument("--attention", offers=("cpu", "triton", "flash_attn", "torch"), metavar="NAME"),
    argument("--max-num-seqs", type=int, metavar="N"),
    argument("--max-num-batched-tokens", type=int, metavar="N"),
    argument("--external", offers=("host", "disk"), metavar="TIER"),
    argument("--watermark", type=float, metavar="SHARE"),
    argument("--long-prefill-token-threshold", type=int, metavar="N"),
    argument("--retention-interval", type=int, metavar="N"),
    argument("--seed", type=int, metavar="SEED"),
)
def start(current: CurrentLab, **settings: Any) -> Lab:
    """Make a lab, call it `lab`, and show it; the one started before is closed."""
    return current.start(settings)


@command(argument("text", nargs="+", metavar="TEXT"), *SAMPLING)
def add(current: CurrentLab, text: list[str], **options: Any) -> None:
    """Add a request, or several copies of it; longer texts go into a %%prompt cell."""
    add_text(current, " ".join(text), **options)


def add_text(current: CurrentLab, text: str, copies: int = 1, chat: bool = False, **sampling: Any) -> None:
    """Queue copies of a prompt, or with chat of a conversation that it opens, and tell who waits."""
    lab = current.lab
    say: list[dict[str, str]] = [{"role": "user", "content": text}]
    ids = [lab.chat(say, **sampling) if chat else lab.add(text, **sampling) for _ in range(copies)]
    print(added_line(ids, lab.snapshot().requests[ids[0]].num_prompt_tokens))


@command(argument("num_steps", nargs="?", type=whole_number, metavar="N"))
def step(current: CurrentLab, num_steps: int = 1) -> StepReport:
    """Take one step, or N, and report the last one."""
    report = current.lab.step()
    taken = 1
    while report and taken < num_steps and (following := current.lab.step()):
        report, taken = following, taken + 1
    if report and taken < num_steps:
        print(f"after {taken} of {num_steps} steps there is nothing left to do")
    return report


@command(argument("--wait", action="store_true"))
def run(current: CurrentLab, wait: bool = False) -> None:
    """Step in the background until the work is done; --wait keeps the cell busy until then."""
    lab = current.lab
    if all(request.status == "finished" for request in lab.snapshot().requests.values()):
        print(NOTHING_TO_DO)
    elif wait:
        lab.run()
        print(f"done after step {lab.snapshot().step}")
    else:
        lab.start()
        print("running; other cells run meanwhile, %lab pause stops it")


@command()
def pause(current: CurrentLab) -> None:
    """Stop the background after the step under way."""
    current.lab.pause()
    print(f"paused after step {current.lab.snapshot().step}")
    _tell_background_error(current.lab)


@command()
def reset(current: CurrentLab) -> None:
    """Begin again on the same model: no requests, an empty pool, a new timeline."""
    current.lab.reset()
    print(f"empty: {current.lab.config.num_blocks} blocks, all of them free")


@command(argument("request", metavar="ID", type=str))
def abort(current: CurrentLab, request: str) -> None:
    """End a request, by its id (0, 1 ...) or its name (A, B ...)."""
    lab = current.lab
    names = {name_of(request_id): request_id for request_id in lab.snapshot().requests}
    request_id = int(request) if request.isdecimal() else names.get(request.upper(), -1)
    if request_id not in names.values():
        raise UsageError(f"there is no request {request}; known are {', '.join(names) or 'none yet'}")
    ended = "is aborted, its blocks are free" if lab.abort(request_id) else "had finished before"
    print(f"{name_of(request_id)} (id {request_id}) {ended}")


@command()
def show(current: CurrentLab) -> None:
    """Show the dashboard."""
    display(current.lab.show())  # type: ignore[no-untyped-call]


@command()
def check(current: CurrentLab) -> None:
    """Judge every invariant now."""
    violations = current.lab.check()
    print("\n".join(f"{v.rule}: {v.message}" for v in violations) or "all invariants hold")


@command()
def status(current: CurrentLab) -> None:
    """Tell what runs, where and why, and how the requests stand."""
    lab = current.lab
    for name, value in lab.status().items():
        print(f"{name:>10}  {value}")
    print(*request_lines(lab), sep="\n")
    for failure in lab.hooks.failures:
        print(f"a listener raised and was dropped: {failure.error!r}")
    _tell_background_error(lab)


@command(argument("num_steps", nargs="?", type=whole_number, metavar="N"))
def back(current: CurrentLab, num_steps: int = 1) -> None:
    """Look at the state one step ago, or N; the engine does not move."""
    _look_back(current.lab, current.lab.snapshot().step - num_steps)


@command(argument("step", type=int, metavar="STEP"))
def goto(current: CurrentLab, step: int) -> None:
    """Look at the state after a step (0: before the first one); the engine does not move."""
    _look_back(current.lab, step)


@command(
    argument("id", nargs="?", metavar="ID", offers=tuple(SCENARIOS)),
    argument("--column", metavar="NAME"),
    argument("--model", offers=("simulated", "smollm2"), metavar="NAME"),
)
def bug(current: CurrentLab, id: str | None = None, column: str | None = None, model: str = "simulated") -> None:
    """Judge an upstream bug report, and open its broken lab, or another column's, where it goes wrong."""
    if id is None:
        print(listing())
        return
    scenario = bug_of(id)
    verdict = scenario.verdict()
    lab = current.adopt(scenario.played(column or scenario.columns[0].name, model))
    display(verdict)  # type: ignore[no-untyped-call]
    if column in (None, scenario.columns[0].name):  # what to look at, where it goes wrong
        for number, sentence in enumerate(scenario.sentences, 1):
            print(f"{number}. {sentence}")
    display(scenario.show(lab))  # type: ignore[no-untyped-call]


@command()
def close(current: CurrentLab) -> None:
    """End the lab; its last state can still be looked at."""
    current.lab.close()
    print("closed; %lab start makes a new one")


def _tell_background_error(lab: Lab) -> None:
    if (error := lab.background_error) is not None:
        print(f"the background run was broken off, its last step undone: {type(error).__name__}: {error}")


def _look_back(lab: Lab, step: int) -> None:
    """Print the recorded state after a step. UsageError for a step that is not in the recording."""
    from labengine_widgets.ascii import block_map

    timeline, newest = lab.timeline, lab.snapshot().step
    if timeline is None:
        raise UsageError("nothing is recorded: this lab was made with record=False")
    steps = sorted({event.step for event in timeline.of_kind(StepStarted) if event.step <= newest})
    if not steps:
        raise UsageError("no step has been taken yet: %lab step takes one")
    first = steps[0] - 1
    if not first <= step <= newest:
        dropped = " (older ones were dropped)" if timeline.num_dropped else ""
        raise UsageError(f"step {step} is not in the recording, which goes from {first} to {newest}{dropped}")
    before, after = timeline.step_moments(max(step, first + 1))
    if step == first:
        print(f"before step {first + 1} of {newest}")
        after = before
    else:
        print(step_line(step, newest, timeline.events(before, after)))
    print(block_map(timeline.state(after).snapshot()))
    print(f"This is the recording. The engine has not moved: it stands after step {newest}.")
