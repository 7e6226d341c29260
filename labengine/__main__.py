"""labengine, or python -m labengine: one sub-command for each thing that one does; --help lists them."""

from __future__ import annotations

import argparse
import io
import json
import os
import select
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from errno import EIO, EPIPE
from pathlib import Path
from typing import TextIO

from labengine.config import ConfigError
from labengine.record.wording import visible
from labengine.system.regular_file import read_regular

_MOST_VIOLATIONS = 20
"""Violations printed per trace at most; they tend to be alike."""

_OWN_PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""How paths begin that a shell gives for its pipes: they are waited for, as standard input is."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return the exit status: the command's own, 2 for a ConfigError, 141 if nobody reads its output."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int | None] = options.run
    out = sys.stdout
    try:
        with redirect_stdout(_VisibleText(out)):
            status = run(options) or 0
        out.flush()
        return status
    except ConfigError as error:
        print(f"labengine: {visible(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:  # as in `labengine doctor run.lab | head`, or in a terminal that was closed
        if error.errno not in (EPIPE, EIO) or not _is_closed(out):  # another file's
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # Python flushes it once more at its end
        return 128 + 13


def _is_closed(stream: TextIO) -> bool:
    """Return True for a pipe whose reader has gone, as `head` goes after its lines, and for a closed terminal."""
    try:
        asked = select.poll()
        asked.register(stream.fileno(), select.POLLOUT)
        return any(found & (select.POLLERR | select.POLLHUP) for _, found in asked.poll(0))
    except (AttributeError, OSError, ValueError):  # no terminal or pipe, or a system that cannot tell
        return False


class _VisibleText(io.TextIOBase):
    """A terminal or a pipe to which files' texts come without control and direction characters."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """Write the text with signs for what is hidden."""
        self._out.write(visible(text))
        return len(text)

    def flush(self) -> None:
        """Flush what it writes to."""
        self._out.flush()

    def isatty(self) -> bool:
        """Return True for a terminal."""
        return self._out.isatty()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="labengine", description="labengine on the command line")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="two equal requests, one step: eight blocks, or five (nano-vLLM #219/#243)")
    demo.add_argument("--model", default="smollm2", help="a model name or a directory of safetensors")
    demo.set_defaults(run=_demo)
    course = commands.add_parser("course", help="copy the notebooks of the course into a folder; print its solutions")
    course.add_argument(
        "folder", metavar="DIR", type=Path, nargs="?", help="made if need be; no changed file is overwritten"
    )
    course.add_argument("--solutions", metavar="FILE.html", type=Path, help="write all exercises with their solutions")
    course.set_defaults(run=_course)
    bugs = commands.add_parser("bugs", help="list the upstream bugs: what breaks, and how it is seen")
    bugs.add_argument("words", nargs="*", metavar="ENGINE | KIND", help="only those: vllm, window, or vllm window")
    bugs.add_argument("--pages", metavar="DIR", help="write a page for each, and index.html, into this folder")
    bugs.set_defaults(run=_bugs)
    bug = commands.add_parser("bug", help="reproduce an upstream bug, and judge the claim and the fix")
    bug.add_argument("id", nargs="?", help="nano-vllm-219, for example; without it: what there is")
    bug.add_argument("--page", metavar="FILE", help="write it as one HTML page in which the story scrubs, offline")
    bug.set_defaults(run=_bug)
    find = commands.add_parser("find", help="search for the shortest workload on which a class goes wrong")
    find.add_argument(
        "parts", metavar="FILE.py:CLASS", help="a class that replaces a part, Parts, or an edition's name"
    )
    find.add_argument("--against", default="labengine", metavar="EDITION", help="hold costs and decisions against it")
    find.add_argument("--seconds", type=float, default=60.0, metavar="N", help="how long to search (60)")
    find.add_argument("--seed", type=int, default=0, metavar="N", help="of the random workloads (0)")
    find.add_argument("--test", metavar="FILE", help="write what is found as a test for pytest")
    find.add_argument("--notebook", metavar="FILE.ipynb", help="write what is found as a notebook")
    find.set_defaults(run=_find)
    driven = commands.add_parser("find-engine", help="the same on an engine's own scheduler; see docs/engine_bugs.md")
    driven.add_argument("engine", metavar="ENGINE", help="vllm or nano-vllm")
    driven.add_argument("--seconds", type=float, default=60.0, metavar="N", help="how long to search (60)")
    driven.add_argument("--seed", type=int, default=0, metavar="N", help="of the random workloads (0)")
    driven.add_argument("--python", metavar="PATH", help="that engine's interpreter ($LABENGINE_VLLM_PYTHON)")
    driven.add_argument("--checkout", metavar="DIR", help="the folder of nano-vLLM ($LABENGINE_NANO_VLLM)")
    driven.add_argument("--hours", type=float, metavar="H", help="in place of --seconds")
    driven.add_argument("--patch", metavar="FILE.py", help="a change of the engine: executed in its process first")
    driven.add_argument("--no-connector", action="store_true", help="leave out the workloads with a KV connector")
    driven.add_argument("--findings", type=int, default=1, metavar="N", help="end after so many different ones (1)")
    driven.add_argument(
        "--scripts", metavar="DIR", help="write a script for each finding, which needs the engine alone"
    )
    driven.set_defaults(run=_find_engine)
    replay = commands.add_parser(
        "replay", help="run operations on the KV-cache manager, and print the state after each"
    )
    replay.add_argument("workload", help="a JSON file, or - for standard input")
    replay.add_argument("--edition", default="vllm", help="whose decisions to take (vllm)")
    replay.set_defaults(run=_replay)
    opened = commands.add_parser(
        "open", help="look at a session that lab.save() wrote: what it was, and its last state"
    )
    opened.add_argument("file", help="the file")
    opened.add_argument("--html", metavar="OUT", help="write it as one HTML page in which the run scrubs, offline")
    opened.set_defaults(run=_open)
    attached = commands.add_parser("attach", help="look at what a running vLLM does, or did; see docs/vllm.md")
    attached.add_argument(
        "place",
        metavar="PLACE",
        help="unix:DIR, tcp:127.0.0.1:PORT, a .labstream file, or the folder of file:DIR",
    )
    attached.add_argument(
        "--page",
        action="store_true",
        help="serve a page on 127.0.0.1 until Ctrl-C, in which all views follow; its address, which has a secret, is "
        "printed; several ranks stand side by side",
    )
    attached.add_argument("--port", type=int, default=0, metavar="N", help="of --page: the port (a free one)")
    attached.add_argument("--record", metavar="OUT.lab", help="save it for `open`; a running vLLM until Ctrl-C")
    attached.add_argument(
        "--max-events", type=int, metavar="N", help="of a recording: events kept, the newest (100,000)"
    )
    attached.add_argument("--max-bytes", type=int, metavar="N", help="of a recording: bytes at which it ends")
    attached.add_argument("--rank", type=int, metavar="N", help="which engine, where several run (all are listed)")
    attached.add_argument("--seconds", type=float, metavar="N", help="record it, or serve the page, for so long")
    attached.add_argument("--html", metavar="OUT", help="write it as one HTML page in which the run scrubs, offline")
    attached.add_argument("--piece", type=int, metavar="N", help="which piece of a stream with gaps (the last)")
    attached.add_argument("--tokenizer", metavar="DIR", help="a model's directory or name, for the text of tokens")
    attached.set_defaults(run=_attach)
    prefixes = commands.add_parser(
        "attach-kv", help="look at the prefix cache that KV events tell of, without the tap; see docs/kv_events.md"
    )
    prefixes.add_argument("place", metavar="PLACE", help="tcp://HOST:PORT, ipc://PATH, or a .kvevents file")
    prefixes.add_argument("--replay", metavar="ENDPOINT", help="where missing batches are asked for")
    prefixes.add_argument("--record", metavar="OUT.kvevents", help="save every batch, until Ctrl-C")
    prefixes.add_argument("--seconds", type=float, metavar="N", help="follow for so long")
    prefixes.add_argument("--html", metavar="OUT", help="write the prefixes as one HTML page")
    prefixes.add_argument("--json", action="store_true", help="print the prefixes as JSON")
    prefixes.add_argument("--tokenizer", metavar="DIR", help="a model's directory or name, for the text of tokens")
    prefixes.set_defaults(run=_attach_kv)
    conform = commands.add_parser(
        "conform",
        help="hold what the tap on a vLLM scheduler wrote against edition vllm; see docs/vllm.md",
        epilog="Exit status 0: it conforms. 1: it differs. 2: it cannot be judged to its end.",
    )
    conform.add_argument(
        "place", metavar="FILE | DIR", help="a .labstream or .lab file, or the folder of LABENGINE_TAP"
    )
    conform.add_argument("--json", action="store_true", help="print the result as JSON")
    conform.add_argument(
        "--against",
        metavar="EDITION | FILE.py:CLASS",
        help="run the recorded requests on these parts, and print what both spent",
    )
    conform.set_defaults(run=_conform)
    doctor = commands.add_parser("doctor", help="why each request hit or missed the prefix cache; see docs/doctor.md")
    doctor.add_argument(
        "place",
        metavar="PLACE",
        help="a .lab or .labstream file, the folder of LABENGINE_TAP; or unix:DIR or tcp:127.0.0.1:PORT of a running "
        "vLLM, which is followed until Ctrl-C",
    )
    doctor.add_argument("--seconds", type=float, metavar="N", help="follow a running vLLM for so long")
    doctor.add_argument("--json", action="store_true", help="print the result as JSON")
    doctor.add_argument("--tokenizer", metavar="DIR", help="a model's directory or name, for the text of tokens")
    doctor.add_argument("--top", type=int, default=10, metavar="N", help="prefixes to name (10)")
    doctor.add_argument("--twice", action="store_true", help="also run the requests with a pool twice as large")
    doctor.set_defaults(run=_doctor)
    return parser


def _demo(options: argparse.Namespace) -> None:
    from labengine.scenarios.demo import main as run_demo

    run_demo(sys.stdout, options.model)


def _course(options: argparse.Namespace) -> None:
    from labengine.course.copying import copy_course
    from labengine.course.printed import write_solutions

    if options.folder is None and options.solutions is None:
        raise ConfigError("name a folder for the notebooks, as in `course lessons`, or use --solutions FILE.html")
    if options.folder is not None:
        print(copy_course(options.folder))
    if options.solutions is not None:
        print(write_solutions(options.solutions))


def _bugs(options: argparse.Namespace) -> None:
    from labengine.scenarios import bugs_named
    from labengine.scenarios.gallery import write_gallery

    found = bugs_named(options.words)
    if options.pages is None:
        print(found)
    else:
        print(write_gallery(found, options.pages, print))


def _bug(options: argparse.Namespace) -> None:
    from labengine.scenarios import bug, print_story

    if options.page is None:
        print_story(options.id, sys.stdout)
    elif options.id is None:
        raise ConfigError("--page is for one report: name it, as in `bug nano-vllm-219 --page story.html`")
    else:
        print(bug(options.id).export(options.page))


def _find(options: argparse.Namespace) -> int:
    from labengine.finder.find_command import exit_code_of, find_from_file

    asked = (options.parts, options.against, options.seconds, options.seed, options.test, options.notebook)
    found = find_from_file(*asked)
    print(found)
    return exit_code_of(found)


def _find_engine(options: argparse.Namespace) -> int:
    from labengine.finder.engines.find_engine_command import find_in_engine_command
    from labengine.finder.find_command import exit_code_of

    search = find_in_engine_command(options)
    print(search)
    return exit_code_of(search)


def _replay(options: argparse.Namespace) -> None:
    from labengine.engine.replay import replay

    print(json.dumps(replay(_workload(options.workload), options.edition)))


def _open(options: argparse.Namespace) -> None:
    from labengine.session.saved.trace import open as open_trace

    trace = open_trace(options.file)
    if options.html is not None:
        trace.export_html(options.html)
    print(trace)
    for violation in trace.violations[:_MOST_VIOLATIONS]:
        print(violation)


def _attach(options: argparse.Namespace) -> None:
    from labengine.vllm.cache_events.places import is_kv_place
    from labengine.vllm.stream.attach_command import attach_command

    if is_kv_place(options.place):
        raise ConfigError(f"{options.place} is of KV events: labengine attach-kv {options.place}")
    attach_command(options, _say)


def _attach_kv(options: argparse.Namespace) -> None:
    from labengine.vllm.cache_events.attach_kv_command import kv_command

    kv_command(options, _say)


def _say(text: str) -> None:
    """Print at once: in a service's log the address of a page must not wait for its end."""
    print(text, flush=True)


def _conform(options: argparse.Namespace) -> int:
    from labengine.core.editions import RECORDED_EDITIONS
    from labengine.finder.find_command import object_named
    from labengine.vllm.conformance.conform import conform
    from labengine.vllm.stream.files import places_in

    if options.against is None:
        results = [conform(place) for place in places_in(options.place)]
        for result in results:
            print(json.dumps(result.to_dict()) if options.json else result)
        return max(results, key=lambda one: (0, 2, 1).index(one.exit_code)).exit_code  # what differs is worst
    result, asked = conform(options.place), options.against
    other = result.against(asked if asked in RECORDED_EDITIONS else object_named(asked))
    print(json.dumps(other.to_dict()) if options.json else other)
    return 0


def _doctor(options: argparse.Namespace) -> None:
    from labengine.vllm.prefix_doctor.doctor_command import doctor_command

    doctor_command(options, _say)


def _workload(named: str) -> dict[str, object]:
    try:
        workload = json.loads(_text(named))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{named} is no workload: {error}") from None
    if not isinstance(workload, dict):
        raise ConfigError(f"{named} is no workload: it must hold one JSON object")
    return workload


def _text(named: str) -> str:
    if named == "-":
        return sys.stdin.read()
    return (Path(named).read_bytes() if named.startswith(_OWN_PIPES) else read_regular(named)).decode()


if __name__ == "__main__":
    sys.exit(main())
