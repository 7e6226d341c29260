"""%lab start, add, step, run, pause, reset, abort, close: making a lab and running it."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from labengine.commands import argument, command
from labengine.config import SamplingKeywords
from labengine.driven.drivable import ENGINES
from labengine.driven.drive import driven
from labengine.engine.step_report import StepReport
from labengine.lab import Lab
from labengine.magics.arguments import (
    CHECK_MODES,
    NUM_STEPS,
    OF_AN_ENGINE,
    SAMPLING,
    check_mode,
    positive_int,
    proposer_of,
    request_id_of,
)
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import (
    added_line,
    background_error_line,
    interrupt_in_one_line,
    stop_lines,
    violations_reported,
)
from labengine.record.wording import request_name
from labengine.session.step_text import NOTHING_TO_DO


@command(
    argument(
        "--model",
        offers=("smollm2", "gemma3-270m", "simulated"),
        metavar="NAME",
        help="a model, or a directory of safetensors",
    ),
    *OF_AN_ENGINE,
    argument("--policy", offers=("fcfs", "priority"), metavar="NAME", help="the order of admission"),
    argument(
        "--speculation",
        offers=("ngram", "layers=8"),
        metavar="GUESSER",
        help="guess tokens: ngram looks them up in the request's text, layers=N uses the model's first N layers, "
        "and any other name is a model",
    ),
    argument("--drafts", type=positive_int, metavar="N", help="maximum number of tokens guessed at once"),
    argument("--dtype", offers=("float32", "bfloat16", "float16"), metavar="NAME", help="dtype of weights and KV"),
    argument("--device", offers=("cpu", "cuda"), metavar="NAME", help="where to compute"),
    argument(
        "--attention",
        offers=("cpu", "triton", "flash_attn", "torch"),
        metavar="NAME",
        help="the kernels that compute attention",
    ),
    argument(
        "--external", offers=("host", "disk"), metavar="TIER", help="a tier outside the pool that keeps full blocks"
    ),
    argument("--watermark", type=float, metavar="SHARE", help="share of the pool that admission leaves free"),
    argument("--long-prefill-token-threshold", type=int, metavar="N", help="maximum tokens of one prompt per step"),
    argument(
        "--retention-interval",
        type=int,
        metavar="N",
        help="sliding windows: the interval, in tokens, at which blocks stay cached",
    ),
    argument("--seed", type=int, metavar="SEED", help="seed of random sampling"),
    argument("--check", type=check_mode, offers=CHECK_MODES, metavar="MODE", help="stop: a run ends at a violation"),
)
def start(current: CurrentLab, **settings: Any) -> Lab:
    """Make a lab, call it `lab`, and show it. The previous lab is closed; its picture stays as a recording."""
    guesser, num_drafts = settings.pop("speculation", None), settings.pop("drafts", None)
    if guesser is not None or num_drafts is not None:
        settings["speculation"] = proposer_of(guesser or "ngram", num_drafts)
    return current.start(settings)


@command(
    argument("engine", offers=(*ENGINES,), metavar="ENGINE", help="vllm, nano-vllm, mini-sglang or sglang"),
    argument("--python", metavar="PATH", help="the interpreter of its environment"),
    argument("--path", metavar="DIR", help="its folder, if it is not installed there: a clone, on any branch"),
    *(one for one in OF_AN_ENGINE if one.name != "--edition"),
    argument("--policy", offers=("fcfs", "priority"), metavar="NAME", help="the order of admission"),
)
def drive(current: CurrentLab, engine: str, python: str | None = None, path: str | None = None, **settings: Any) -> Lab:
    """Make a lab on another engine's own scheduler and KV cache, without a model, call it `lab`, and show it."""
    return current.start({"model": driven(engine, python, path), **settings})


@command(argument("text", nargs="+", metavar="TEXT", help="the prompt"), *SAMPLING)
def add(
    current: CurrentLab,
    text: list[str],
    copies: int = 1,
    chat: bool = False,
    n: int | None = None,
    priority: int = 0,
    **sampling: Unpack[SamplingKeywords],
) -> None:
    """Add a request, copies of it, several answers (-n) or a beam search; put longer texts into a %%prompt cell."""
    target, prompt = current.target, " ".join(text)
    ask = partial(target.chat, [{"role": "user", "content": prompt}]) if chat else partial(target.add, prompt)
    added = [ask(n=n, priority=priority, **sampling) for _ in range(copies)]
    ids = [request_id for one in added for request_id in (one if isinstance(one, list) else [one])]
    print(added_line(ids, current.lab.snapshot().requests[ids[0]].num_prompt_tokens))


@command(NUM_STEPS)
def step(current: CurrentLab, num_steps: int = 1) -> StepReport | tuple[StepReport, StepReport]:
    """Take one step, or N, and report the last one. A breakpoint ends them early."""
    before = _num_finished_steps(current)
    with violations_reported(current), interrupt_in_one_line(lambda: _interrupted_line(current.lab)):
        report = current.target.step(num_steps)
    num_taken = _num_finished_steps(current) - before
    ended = [f"nothing is left to do after {num_taken} of {num_steps} steps"] if 0 < num_taken < num_steps else []
    for line in stop_lines(current) or ended:
        print(line)
    return report


def _num_finished_steps(current: CurrentLab) -> int:
    """Return the lab's finished steps, or those of the side with more: the other may have run out of work."""
    return max(lab.session.stepper.engine.num_finished_steps for lab in current.labs)


@command(argument("--wait", action="store_true", help="return when the work is done"))
def run(current: CurrentLab, wait: bool = False) -> None:
    """Step in the background until the work is done; --wait keeps the cell busy until then."""
    lab, target = current.lab, current.target
    if all(request.status == "finished" for request in lab.snapshot().requests.values()):
        print(NOTHING_TO_DO)
    elif wait:
        with violations_reported(current), interrupt_in_one_line(lambda: _interrupted_line(lab)):
            target.run()
        print(*stop_lines(current) or [f"done after step {lab.snapshot().step}"], sep="\n")
    else:
        target.start()
        print("running; you can run other cells meanwhile, and stop it with %lab pause")


def _interrupted_line(lab: Lab) -> str:
    """Return the last step before a Ctrl-C, which undoes the step under way, and how to continue."""
    return f"interrupted after step {lab.snapshot().step}; %lab run continues"


@command()
def pause(current: CurrentLab) -> None:
    """Stop the background after the current step."""
    current.target.pause()
    lab = current.lab
    print(*stop_lines(current) or [f"paused after step {lab.snapshot().step}"], sep="\n")
    print(background_error_line(lab), end="")


@command()
def reset(current: CurrentLab) -> None:
    """Start over on the same model: no requests, an empty pool, a new timeline."""
    current.target.reset()
    print(f"empty: all {current.lab.config.num_blocks} blocks are free")


@command(argument("request", metavar="ID", type=str, help="its id (0, 1 ...) or its letter (A, B ...)"))
def abort(current: CurrentLab, request: str) -> None:
    """End a request, by its id (0, 1 ...) or its name (A, B ...)."""
    request_id = request_id_of(request, current.lab.snapshot().requests)
    aborted = current.target.abort(request_id)
    has_ended = any(aborted) if isinstance(aborted, tuple) else aborted
    ended = "was aborted and its blocks freed" if has_ended else "had already finished"
    print(f"{request_name(request_id)} (id {request_id}) {ended}")


@command()
def close(current: CurrentLab) -> None:
    """Close the lab, or the engines that %lab bug has opened; the recording can still be viewed."""
    print(current.close())
