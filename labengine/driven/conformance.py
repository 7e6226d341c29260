"""Checks a driver file: python -m labengine.driven.conformance DRIVER.py; see docs/add-a-driver.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from labengine.config import ConfigError
from labengine.driven.drive import driven
from labengine.driven.process import DrivenEngine, EngineProcess
from labengine.finder.engines.scopes import file_scopes
from labengine.finder.engines.search import find_in_engine

PROMPT, MAX_TOKENS, MOST_STEPS = [7, 8, 9], 2, 4
SECONDS = 600.0
"""Most seconds of each search."""


class Session:
    """One engine of a driver file, told single operations."""

    def __init__(self, process: EngineProcess, settings: dict[str, Any]) -> None:
        self._process = process
        self.states: list[Any] = []
        """[call, state, plan] of the newest operation's calls."""
        self.state: dict[str, Any] = {}
        """The newest state."""
        self.is_idle = bool(self._ask({"settings": settings, "operations": []})["is_idle"])

    def do(self, *operation: Any) -> list[str]:
        """Do one operation; return its calls. Raises ConfigError with the engine's exception."""
        answer = self._ask({"operations": [list(operation)]})
        self.states, self.is_idle = answer["states"], answer["is_idle"]
        self.state = self.states[-1][1] if self.states else self.state
        return [call for call, *_ in self.states]

    def add(self) -> list[str]:
        """Add a request."""
        return self.do("add", PROMPT, MAX_TOKENS, None, {})

    def _ask(self, line: dict[str, Any]) -> dict[str, Any]:
        answer = self._process.ask({**line, "goes_on": True}, SECONDS)
        if answer["error"]:
            raise ConfigError(f"the engine raises {answer['error'][0]}: {answer['error'][1]}\n{answer['error'][2]}")
        return answer


def broken_promises(process: EngineProcess, file: str) -> Iterator[str]:
    """Yield a sentence for each part of the contract that single operations contradict."""
    scope = file_scopes(file)[0]
    session = Session(process, {**scope.settings, "policy": "fcfs"})
    if not session.is_idle:
        yield "a new engine is not idle: is_idle must be True while no request waits or runs"
    if session.do("step"):
        yield "a step of an idle engine makes calls: step() must return False at once"
    if (calls := session.add()) != ["add"]:
        yield f"add() reports the calls {calls}: after_call('add') must follow it, once"
        return
    if session.is_idle or [*session.states[0][1]["requests"]] != ["0"]:
        yield "after add() the engine is idle, or state()['requests'] is not exactly the new request"
    if (calls := session.do("step")) != ["schedule", "update"]:
        yield f"step() reports the calls {calls}: after_call('schedule'), then after_call('update')"
        return
    if session.states[0][2] != {"0": [0, len(PROMPT)]}:
        yield f"plan is {session.states[0][2]} in a prompt's first step: it must be {{'0': (0, {len(PROMPT)})}}"
    for _ in range(MOST_STEPS):
        session.do("step")
    yield from _wrong_ending(session, "after its last token")
    operations = driven(file, None, None).engine.operations
    if "abort" in operations:
        session.add()
        session.do("step")
        yield from _wrong_call("abort", session.do("abort", 1))
        yield from _wrong_ending(session, "after abort()")
    if "reset" in operations:
        yield from _wrong_call("reset", session.do("reset"))
        if session.state.get("cached"):
            yield "after reset() blocks are still cached"


def _wrong_call(word: str, calls: list[str]) -> Iterator[str]:
    if calls != [word]:
        yield f"{word}() reports the calls {calls}: after_call({word!r}) must follow it, once"


def _wrong_ending(session: Session, when: str) -> Iterator[str]:
    """Yield what is wrong when nothing should wait or run."""
    if not session.is_idle or session.state["requests"]:
        yield f"{when} the engine is not idle, or state()['requests'] still has the request"
    if any(session.state.get("ref_counts", ())):
        yield f"{when} blocks still have references: {session.state['ref_counts']}"


def check(file: str, python: str | None = None, num_workloads: int = 300, seed: int = 0) -> list[str]:
    """Return what is wrong with a driver file or its engine; empty if nothing is."""
    one = driven(file, python, None)
    with EngineProcess(DrivenEngine(one.name, one.python)) as process:
        found = list(broken_promises(process, one.name))
    if found:
        return found
    options: dict[str, Any] = {"seconds": SECONDS, "seed": seed, "max_workloads": num_workloads}
    for against in (None, DrivenEngine(one.name, one.python)):  # its states; and the same states in another process
        searched = find_in_engine(one.name, one.python, against=against, **options)
        if searched or searched.num_workloads < num_workloads:
            return [str(searched)]
    return []


def main(arguments: list[str] | None = None) -> int:
    """Print what is wrong; return 0 if nothing is, 1 if something is, 2 if the file cannot be driven."""
    parser = argparse.ArgumentParser(prog="python -m labengine.driven.conformance", description=__doc__)
    parser.add_argument("file", metavar="DRIVER.py")
    parser.add_argument("--python", metavar="PATH", help="the engine's interpreter (this one)")
    parser.add_argument("--workloads", type=int, default=300, metavar="N", help="random workloads (300)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the workloads (0)")
    asked = parser.parse_args(arguments)
    try:
        found = check(asked.file, asked.python, asked.workloads, asked.seed)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(found) or f"It keeps the contract: {asked.workloads:,} random workloads, each played three times.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
