"""Permalinks: a session as the query of a page's URL. Parsed strictly, because anyone may have written it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qsl, quote_plus

from labengine.config import ConfigError, shown
from labengine.core.editions import Policy
from labengine.record.wording import listed

MAX_BLOCKS, MAX_BLOCK_SIZE, MAX_ACTS, MAX_STEPS = 512, 64, 200, 2_000
MAX_COPIES, MAX_TOKENS, MAX_PROMPT = 64, 2_000, 20_000
MAX_ANSWERS, MAX_DRAFTS, MAX_PRIORITY, MAX_STATE_SIZE = 16, 16, 1_000, 256
MAX_REQUESTS, MAX_CHARACTERS = MAX_COPIES * MAX_ANSWERS, MAX_COPIES * MAX_PROMPT
"""Maximum for all prompts of a link together, copies counted: the limit for a single prompt."""
MAX_REAL_STEPS = 500
"""Maximum steps with a real model, where a step of sixteen requests takes a tenth of a second or more."""
SIMULATED, REAL_MODELS = "simulated", ("smollm2",)
OF_A_LAB = ("model", "edition", "compare", "policy", "drafts", "states")
"""Names in a URL whose values a scenario sets itself."""
MAX_NAME = 100
"""Maximum length of a bug's or an edition's name."""
NUM_BLOCKS, BLOCK_SIZE = 24, 4
DEFAULT_COPIES, DEFAULT_TOKENS = 1, 16


@dataclass(frozen=True, slots=True)
class PromptAct:
    """Equal requests added together to a lab or a comparison.

    n: answers to each, as forks. beams: beams of a search for each; 1 for none.
    is_chat: the text is a user's message, to be wrapped by the model's chat template.
    """

    text: str
    copies: int = DEFAULT_COPIES
    max_tokens: int = DEFAULT_TOKENS
    n: int = 1
    beams: int = 1
    priority: int = 0
    is_chat: bool = False

    def play(self, lab: Any) -> None:
        """Add the requests."""
        options = {name: value for name, value in self._changed() if name != "copies"} | {"max_tokens": self.max_tokens}
        for _ in range(self.copies):
            if self.is_chat:
                lab.chat([{"role": "user", "content": self.text}], **options)
            else:
                lab.add(self.text, **options)

    @property
    def num_requests(self) -> int:
        """Number of requests: each copy has its answers or its beams."""
        return self.copies * max(self.n, self.beams)

    def pairs(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of the address."""
        yield ("chat" if self.is_chat else "prompt"), self.text
        yield from self._changed()

    def _changed(self) -> Iterator[tuple[str, int]]:
        """Yield the URL's settings of the prompt that differ from the defaults."""
        for known in fields(self):
            if known.name in _OF_PROMPT and getattr(self, known.name) != known.default:
                yield known.name, getattr(self, known.name)


@dataclass(frozen=True, slots=True)
class StepsAct:
    """Consecutive steps."""

    count: int

    def play(self, lab: Any) -> None:
        """Take the steps."""
        for _ in range(self.count):
            lab.step()

    def pairs(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of the address."""
        yield "step", self.count


@dataclass(frozen=True, slots=True)
class AbortAct:
    """The abort of a request."""

    request_id: int

    def play(self, lab: Any) -> None:
        """Abort the request."""
        lab.abort(self.request_id)

    def pairs(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of the address."""
        yield "abort", self.request_id


SessionAct = PromptAct | StepsAct | AbortAct


@dataclass(frozen=True, slots=True)
class Permalink:
    """A session: a scenario by its id, or a model, an edition (or two to compare) and a pool; and the acts after it.

    follow_up: the scenario's later cost was shown before the acts. changes: num_blocks, block_size and copies that
    differ from the scenario's own. policy: the waiting queue's order. num_drafts: tokens guessed at once by look-up in
    the request's text; 0 for none. state_size: tokens between the states that a second group keeps; 0 for no group.
    """

    bug: str = ""
    model: str = SIMULATED
    editions: tuple[str, ...] = ("labengine",)
    num_blocks: int = NUM_BLOCKS
    block_size: int = BLOCK_SIZE
    policy: Policy = "fcfs"
    num_drafts: int = 0
    state_size: int = 0
    follow_up: bool = False
    changes: dict[str, int] = field(default_factory=dict)
    acts: tuple[SessionAct, ...] = field(default=())

    def query(self) -> str:
        """Return the session as the query of a URL, without the question mark."""
        return "&".join(f"{name}={quote_plus(str(value))}" for name, value in self._pairs())

    def _pairs(self) -> Iterator[tuple[str, object]]:
        if self.bug:
            yield "bug", self.bug
            if self.follow_up:
                yield "follow_up", 1
            yield from ((name.removeprefix("num_"), value) for name, value in self.changes.items())
        else:
            if self.model != SIMULATED:
                yield "model", self.model
            yield ("compare" if len(self.editions) > 1 else "edition"), ",".join(self.editions)
            if (self.num_blocks, self.block_size) != (NUM_BLOCKS, BLOCK_SIZE):
                yield "blocks", self.num_blocks
                yield "block_size", self.block_size
            if self.policy != "fcfs":
                yield "policy", self.policy
            for name, (of_link, _) in _SETTINGS.items():
                if getattr(self, of_link):
                    yield name, getattr(self, of_link)
        for act in self.acts:
            yield from act.pairs()


def permalink_of(query: str) -> Permalink:
    """Return the session that a URL names. Unknown names in it are ignored, since trackers add some.

    Raises ConfigError, naming the fault, for a value that no session of this page can have.
    """
    reader = _LinkReader()
    for name, value in parse_qsl(query.removeprefix("?"), keep_blank_values=True, max_num_fields=1_000):
        reader.read(name, value)
    return reader.permalink()


class _LinkReader:
    """The parts of a URL read so far."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.bug = ""
        self.model = SIMULATED
        self.editions: tuple[str, ...] = ("labengine",)
        self.changes: dict[str, int] = {}
        self.settings: dict[str, Any] = {}
        self.follow_up = False
        self.acts: list[SessionAct] = []

    def permalink(self) -> Permalink:
        """Return the session. Raises ConfigError if it is too long, or if names exclude each other."""
        self._refuse_long()
        acts = tuple(map(_without_template, self.acts) if self.model == SIMULATED else self.acts)
        link = Permalink(self.bug, self.model, self.editions, follow_up=self.follow_up, acts=acts)
        if self.bug:
            self._refuse_beside_bug()
            return replace(link, changes=self.changes)
        if self.follow_up:
            raise ConfigError("follow_up in a link shows a scenario's later cost: name its bug, or omit follow_up")
        if self.settings.get("state_size") and self.model != SIMULATED:
            raise ConfigError("states in a link need the simulated model: omit either states or model")
        link = replace(link, **self.settings)
        pool = {"num_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE} | self.changes
        return replace(link, num_blocks=pool["num_blocks"], block_size=pool["block_size"])

    def _refuse_long(self) -> None:
        num_steps = sum(act.count for act in self.acts if isinstance(act, StepsAct))
        most = MAX_STEPS if self.model == SIMULATED else MAX_REAL_STEPS
        if len(self.acts) > MAX_ACTS or num_steps > most:
            raise ConfigError(f"a link may have at most {MAX_ACTS} actions and {most:,} steps; this one has more")
        prompts = [act for act in self.acts if isinstance(act, PromptAct)]
        num_requests = sum(one.num_requests for one in prompts)
        num_characters = sum(one.copies * len(one.text) for one in prompts)
        if num_requests > MAX_REQUESTS or num_characters > MAX_CHARACTERS:
            raise ConfigError(
                f"a link may add at most {MAX_REQUESTS:,} requests with {MAX_CHARACTERS:,} characters, counting "
                f"copies, n and beams; this one adds {num_requests:,} with {num_characters:,}"
            )

    def _refuse_beside_bug(self) -> None:
        if others := [name for name in OF_A_LAB if name in self.names]:
            raise ConfigError(f"a scenario has its own model, edition and settings: omit bug or {listed(others)}")
        if self.follow_up and self.changes:
            raise ConfigError("a scenario with changed figures cannot report a later cost: omit follow_up or them")

    def read(self, name: str, value: str) -> None:
        """Read one name of the URL; an unknown one is ignored."""
        self.names.add(name)
        match name:
            case "bug":
                self.bug = _name(value)
            case "model":
                self.model = _one_of(name, value, (SIMULATED, *REAL_MODELS))
            case "edition" | "compare":
                self.editions = tuple(map(_name, value.split(",")))
                if len(self.editions) > 2:
                    raise ConfigError(f"a link can compare only two editions, got {shown(value)}")
            case "policy":
                self.settings["policy"] = _one_of(name, value, ("fcfs", "priority"))
            case "follow_up":
                self.follow_up = value == "1"
            case "prompt" | "chat":
                self.acts.append(PromptAct(_prompt(value), is_chat=name == "chat"))
            case "step":
                self.acts.append(StepsAct(_number(name, value, 1, MAX_STEPS)))
            case "abort":
                self.acts.append(AbortAct(_number(name, value, 0, 10**6)))
            case _ if name in _OF_PROMPT:
                self._change_prompt(name, _number(name, value, *_OF_PROMPT[name]))
            case _ if name in _POOL:
                of_link, most = _POOL[name]
                self.changes[of_link] = _number(name, value, 1, most)
            case _ if name in _SETTINGS:
                of_link, most = _SETTINGS[name]
                self.settings[of_link] = _number(name, value, 1, most)

    def _change_prompt(self, name: str, number: int) -> None:
        """Change the prompt that was read last."""
        last = self.acts[-1] if self.acts else None
        if last is None and self.bug and name == "copies":
            self.changes["copies"] = number
            return
        if not isinstance(last, PromptAct):
            raise ConfigError(f"{name} must come right after its prompt")
        changed: dict[str, Any] = {name: number}
        self.acts[-1] = replace(last, **changed)


def _without_template(act: SessionAct) -> SessionAct:
    """Return an act for the simulated model, which has no chat template."""
    return replace(act, is_chat=False) if isinstance(act, PromptAct) else act


def _name(value: str) -> str:
    if len(value) > MAX_NAME:
        raise ConfigError(f"a name in a link must have at most {MAX_NAME} characters, got {shown(value)}")
    return value


def _number(name: str, value: str, least: int, most: int) -> int:
    digits = value.removeprefix("-") if least < 0 else value
    if not (value.isascii() and digits.isdigit() and len(value) < 10 and least <= int(value) <= most):
        raise ConfigError(f"{name} in a link must be an integer from {least} to {most}, got {shown(value)}")
    return int(value)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(f"{name} in a link must be one of {', '.join(known)}, got {shown(value)}")
    return value


def _prompt(text: str) -> str:
    if not text.strip():
        raise ConfigError("a prompt in a link must not be empty")
    if len(text) > MAX_PROMPT:
        raise ConfigError(f"a prompt in a link must have at most {MAX_PROMPT:,} characters; this one has {len(text):,}")
    return text


_OF_PROMPT = {
    "copies": (1, MAX_COPIES),
    "max_tokens": (1, MAX_TOKENS),
    "n": (1, MAX_ANSWERS),
    "beams": (1, MAX_ANSWERS),
    "priority": (-MAX_PRIORITY, MAX_PRIORITY),
}
"""Names in a URL that change the prompt before them: fields of PromptAct, with their minimum and maximum."""

_POOL = {"blocks": ("num_blocks", MAX_BLOCKS), "block_size": ("block_size", MAX_BLOCK_SIZE)}
_SETTINGS = {"drafts": ("num_drafts", MAX_DRAFTS), "states": ("state_size", MAX_STATE_SIZE)}
"""Names in a URL whose values are numbers from 1: the field of Permalink, and the maximum."""
