"""The terminal commands; --help shows their docstrings. A command imports its modules when it runs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from labengine.commands import (
    HTML,
    JSON,
    PIECE,
    RANK,
    REPLAY,
    SEARCH_SECONDS,
    SEARCH_SEED,
    SETTING,
    TOKENIZER,
    argument,
    terminal_command,
)
from labengine.config import ConfigError
from labengine.system.regular_file import read_regular

_MOST_VIOLATIONS = 20
"""Maximum number of violations printed per trace; they tend to be alike."""

_OWN_PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Prefixes of the paths that a shell gives for its pipes: they are waited for, like standard input."""


@terminal_command(argument("--model", default="smollm2", help="a model name or a directory of safetensors"))
def demo(options: Namespace) -> None:
    """Run two equal requests for one step: eight blocks, or five (nano-vLLM #219/#243)."""
    from labengine.scenarios.demo import main as run_demo

    run_demo(sys.stdout, options.model)


@terminal_command(
    argument(
        "folder", metavar="DIR", type=Path, nargs="?", help="created if missing; changed files are never overwritten"
    ),
    argument("--solutions", metavar="FILE.html", type=Path, help="write all exercises with their solutions"),
)
def course(options: Namespace) -> None:
    """Copy the notebooks of the course into a folder, or write its solutions."""
    from labengine.course.copying import copy_course
    from labengine.course.printed import write_solutions

    if options.folder is None and options.solutions is None:
        raise ConfigError("name a folder for the notebooks, as in `course lessons`, or add --solutions FILE.html")
    if options.folder is not None:
        print(copy_course(options.folder))
    if options.solutions is not None:
        print(write_solutions(options.solutions))


@terminal_command(
    argument("words", nargs="*", metavar="ENGINE | KIND", help="list only these, such as vllm, window, or vllm window"),
    argument("--pages", metavar="DIR", help="write a page for each, and index.html, into this folder"),
)
def bugs(options: Namespace) -> None:
    """List the upstream bugs, each with the defect and how it shows."""
    from labengine.scenarios import bugs_named
    from labengine.scenarios.gallery import write_gallery

    found = bugs_named(options.words)
    if options.pages is None:
        print(found)
    else:
        print(write_gallery(found, options.pages, print))


@terminal_command(
    argument("id", nargs="?", help="such as nano-vllm-219; without it, list all"),
    argument("--page", metavar="FILE", help="write one HTML page with the story, to scrub through offline"),
)
def bug(options: Namespace) -> None:
    """Reproduce an upstream bug, and judge the claim and the fix."""
    from labengine.scenarios import bug as bug_of
    from labengine.scenarios import print_story

    if options.page is None:
        print_story(options.id, sys.stdout)
    elif options.id is None:
        raise ConfigError("--page is for one report: name it, as in `bug nano-vllm-219 --page story.html`")
    else:
        print(bug_of(options.id).export(options.page))


@terminal_command(
    argument("parts", metavar="FILE.py:CLASS", help="a class that replaces a part, Parts, or an edition's name"),
    argument("--against", default="labengine", metavar="EDITION", help="compare costs and decisions with this edition"),
    SEARCH_SECONDS,
    SEARCH_SEED,
    argument("--test", metavar="FILE", help="write the finding as a pytest test"),
    argument("--notebook", metavar="FILE.ipynb", help="write the finding as a notebook"),
)
def find(options: Namespace) -> int:
    """Search for the shortest workload on which a class goes wrong."""
    from labengine.finder.find_command import exit_code_of, find_from_file

    asked = (options.parts, options.against, options.seconds, options.seed, options.test, options.notebook)
    found = find_from_file(*asked)
    print(found)
    return exit_code_of(found)


@terminal_command(
    argument("engine", metavar="ENGINE", help="vllm, nano-vllm, mini-sglang, sglang, or a driver file (.py)"),
    SEARCH_SECONDS,
    SEARCH_SEED,
    argument("--python", metavar="PATH", help="that engine's interpreter ($LABENGINE_VLLM_PYTHON, ..._SGLANG_PYTHON)"),
    argument("--checkout", metavar="DIR", help="the folder of any but vLLM ($LABENGINE_NANO_VLLM, ..._SGLANG)"),
    argument("--edition", metavar="NAME", help="compare with this edition, and pass over faults that it has too"),
    argument("--hours", type=float, metavar="H", help="hours, instead of --seconds"),
    argument("--patch", metavar="FILE.py", help="a change to the engine, run first in its process"),
    argument("--no-connector", action="store_true", help="omit workloads with a KV connector"),
    argument("--findings", type=int, default=1, metavar="N", help="stop after N different findings (1)"),
    argument("--scripts", metavar="DIR", help="write a script for each finding that needs only the engine"),
    name="find-engine",
)
def find_engine(options: Namespace) -> int:
    """Search an engine's own scheduler for faults, as `find` does for a class; see docs/engine_bugs.md."""
    from labengine.finder.find_command import exit_code_of, find_in_engine_command

    search = find_in_engine_command(options)
    print(search)
    return exit_code_of(search)


@terminal_command(
    argument("engine", metavar="ENGINE", help="vllm, nano-vllm, mini-sglang, sglang, or a driver file (.py)"),
    argument("--python", metavar="PATH", help="that engine's interpreter ($LABENGINE_VLLM_PYTHON, ..._SGLANG_PYTHON)"),
    argument("--path", metavar="DIR", help="its folder, if it is not installed there: a clone, on any branch"),
    argument("--blocks", dest="num_blocks", type=int, metavar="N", help="blocks in the pool (256)"),
    argument("--block-size", type=int, metavar="N", help="tokens of a block (16)"),
    argument("--max-num-seqs", type=int, metavar="N", help="most requests that run at once (16)"),
    argument("--max-num-batched-tokens", type=int, metavar="N", help="most tokens of a step (2048)"),
    argument("--policy", choices=("fcfs", "priority"), help="the order of admission (fcfs)"),
    argument("--port", type=int, default=0, metavar="N", help="the page's port (default: a free one)"),
    argument("--seconds", type=float, metavar="N", help="serve the page for N seconds, instead of until Ctrl-C"),
    argument(
        "--against",
        metavar="PATH | DIR",
        help="another interpreter or folder of it, or a second driver file: compare the two, without a page",
    ),
    argument("--workloads", type=int, metavar="N", help="for --against: random workloads to play on both (500)"),
    SEARCH_SEED,
)
def drive(options: Namespace) -> int:
    """Step another engine's own scheduler in a page of the browser, or compare two of them; see docs/drive.md.

    Exit status with --against: 0 if both do the same, 1 at the first difference, 2 if not all workloads were played.
    """
    from labengine.driven.drive_command import drive_command

    return drive_command(options, _say)


@terminal_command(
    argument("workload", help="a JSON file, or - for standard input"),
    argument("--edition", default="vllm", help="the edition that decides (vllm)"),
)
def replay(options: Namespace) -> None:
    """Run operations on the KV-cache manager, and print the state after each."""
    from labengine.engine.replay import replay as replayed

    print(json.dumps(replayed(_workload(options.workload), options.edition)))


@terminal_command(argument("file", help="the file"), HTML)
def open(options: Namespace) -> None:
    """Show a session that lab.save() wrote: its settings, and its last state."""
    from labengine.session.saved.trace import open as open_trace

    trace = open_trace(options.file)
    if options.html is not None:
        trace.export_html(options.html)
    print(trace)
    for violation in trace.violations[:_MOST_VIOLATIONS]:
        print(violation)


@terminal_command(
    argument(
        "place", metavar="PLACE", help="unix:DIR, tcp:127.0.0.1:PORT, a .labstream file, or the folder of file:DIR"
    ),
    argument(
        "--page",
        action="store_true",
        help="serve a live page with all views on 127.0.0.1 until Ctrl-C; its address, which contains a secret, is "
        "printed; several ranks are shown side by side",
    ),
    argument("--port", type=int, default=0, metavar="N", help="the port for --page (default: a free one)"),
    argument("--record", metavar="OUT.lab", help="save it for `open`; for a running vLLM, until Ctrl-C"),
    argument("--max-events", type=int, metavar="N", help="how many of the newest events a recording keeps (100,000)"),
    argument("--max-bytes", type=int, metavar="N", help="stop recording at this size"),
    RANK,
    argument("--seconds", type=float, metavar="N", help="record, or serve the page, for N seconds"),
    HTML,
    PIECE,
    TOKENIZER,
)
def attach(options: Namespace) -> None:
    """Show the actions of a running vLLM, or of a recorded one; see docs/vllm.md."""
    from labengine.vllm.cache_events.places import is_kv_place
    from labengine.vllm.stream.attach_command import attach_command

    if is_kv_place(options.place):
        raise ConfigError(f"{options.place} holds KV events: use labengine attach-kv {options.place}")
    attach_command(options, _say)


@terminal_command(
    argument("place", metavar="PLACE", help="tcp://HOST:PORT, ipc://PATH, or a .kvevents file"),
    REPLAY,
    argument("--record", metavar="OUT.kvevents", help="save every batch, until Ctrl-C"),
    argument("--seconds", type=float, metavar="N", help="follow for N seconds"),
    argument("--html", metavar="OUT", help="write the prefixes as one HTML page"),
    JSON,
    TOKENIZER,
    name="attach-kv",
)
def attach_kv(options: Namespace) -> None:
    """Show the prefix cache from KV events, without the tap; see docs/kv_events.md."""
    from labengine.vllm.cache_events.attach import kv_command

    kv_command(options, _say)


def _say(text: str) -> None:
    """Print without buffering: a service's log must have the address of a page while the service runs."""
    print(text, flush=True)


@terminal_command(
    argument("place", metavar="FILE | DIR", help="a .labstream or .lab file, or the folder of LABENGINE_TAP"),
    JSON,
    argument(
        "--against",
        metavar="EDITION | FILE.py:CLASS",
        help="run the recorded requests on these parts, and print the costs of both",
    ),
)
def conform(options: Namespace) -> int:
    """Compare a recording of vLLM's scheduler with edition vllm; see docs/vllm.md.

    Exit status 0: it conforms. 1: it differs. 2: it cannot be judged to the end.
    """
    from labengine.core.editions import RECORDED_EDITIONS
    from labengine.finder.find_command import object_named
    from labengine.vllm.conformance.conform import conform as held_against
    from labengine.vllm.stream.files import places_in

    if options.against is None:
        results = [held_against(place) for place in places_in(options.place)]
        for result in results:
            print(json.dumps(result.to_dict()) if options.json else result)
        return max(results, key=lambda one: (0, 2, 1).index(one.exit_code)).exit_code  # what differs is worst
    result, asked = held_against(options.place), options.against
    other = result.against(asked if asked in RECORDED_EDITIONS else object_named(asked))
    print(json.dumps(other.to_dict()) if options.json else other)
    return 0


@terminal_command(
    argument(
        "place",
        metavar="PLACE",
        help="a file of prompts, a Mooncake trace, KV events, a .lab or .labstream file, the folder of LABENGINE_TAP; "
        "or unix:DIR or tcp:127.0.0.1:PORT of a running vLLM, which is followed until Ctrl-C",
    ),
    TOKENIZER,
    *SETTING,
    argument("--clock", metavar="CLOCK", help="PREFILL_TOKENS_PER_S,DECODE_STEP_S, a clock's JSON file, or fit"),
    argument("--price-per-hour", type=float, metavar="X", help="of one engine, to price lost seconds"),
    argument("--currency", default="", metavar="WORD", help="of the price"),
    argument("--html", metavar="OUT", help="write the report as one page that opens from disk"),
    JSON,
    argument("--show", type=int, metavar="N", help="print a script that shows finding N with a few prompts"),
    argument("--fail-under", type=float, metavar="RATE", help="exit with 1 if the hit rate is below, for CI"),
    argument("--perfetto", metavar="OUT", help="write a recording's steps as a trace for ui.perfetto.dev"),
    argument("--prometheus", type=int, metavar="PORT", help="serve metrics of a running vLLM; 0 takes a free port"),
    argument("--seconds", type=float, metavar="N", help="follow a running vLLM for N seconds"),
)
def doctor(options: Namespace) -> int:
    """Explain why prompts miss the prefix cache, what that costs, and what would mend it; see docs/doctor.md."""
    from labengine.prefix_doctor.command import doctor_command

    return doctor_command(options, _say)


def _workload(named: str) -> dict[str, object]:
    try:
        workload = json.loads(_text(named))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{named} is not a workload: {error}") from None
    if not isinstance(workload, dict):
        raise ConfigError(f"{named} is not a workload: it must hold a single JSON object")
    return workload


def _text(named: str) -> str:
    if named == "-":
        return sys.stdin.read()
    return (Path(named).read_bytes() if named.startswith(_OWN_PIPES) else read_regular(named)).decode()
