"""Ten traffics of an operator's life with a known cause and cure, made without knowledge of how causes are found.

A maker adds the prompts of one traffic to a log, as they are or mended. One prompt in six is an unrelated one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from labengine.prefix_doctor.causes.finding import Kind
from labengine.prefix_doctor.traffic.prompt import Prompt

Message = tuple[str, str]
"""Role and text."""

PIECE = re.compile(r"\s*(?:<\|\w+\|>|[A-Za-z]+|\d{1,3}|[^\w\s]|_)|\s+")
"""A token: a word, up to three digits or one sign, with the white space before it."""

TEXT = (
    "account address agent answer article balance before branch budget cancel carrier change check city claim client "
    "code company contract country customer data date decide delivery detail document email error event example field "
    "file finance follow format function invoice issue item keep language law letter limit line list market message "
    "method model money month name never number offer order owner page parcel payment person plan policy price process "
    "product project question reason record refund region repeat report request result return review rule sales search "
    "section server service short state step stock store street summary support system table team test text ticket "
    "time tool topic total transfer update user value version visit week window work write year zone"
)
WORDS = TEXT.split()


@dataclass
class Tokens:
    """Ids of pieces of text, numbered as they appear."""

    ids: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def encode(self, text: str) -> list[int]:
        """Return one id per piece."""
        return [self._id(piece) for piece in PIECE.findall(text)]

    def text(self, token_id: int) -> str:
        """Return a token's text."""
        return self.texts[token_id]

    def _id(self, piece: str) -> int:
        if piece not in self.ids:
            self.ids[piece] = len(self.texts)
            self.texts.append(piece)
        return self.ids[piece]


@dataclass
class Log:
    """Chats that a gateway has noted. num_blocks, num_replicas and routing say on what they ran (blocks of 16)."""

    rng: Random
    num_blocks: int = 4000
    num_replicas: int = 1
    routing: Literal["round_robin", "sticky"] = "round_robin"
    tokens: Tokens = field(default_factory=Tokens)
    prompts: list[Prompt] = field(default_factory=list)

    def words(self, num_words: int) -> str:
        """Return a text of random words."""
        return " ".join(self.rng.choices(WORDS, k=num_words))

    def ask(self, *messages: Message, answer: str = "yes", session: str = "", tenant: str = "") -> None:
        """Add a chat's messages, and after every fifth chat an unrelated one."""
        self._add(messages, answer, session, tenant)
        if len(self.prompts) % 6 == 5:
            self._add([("user", self.words(60))], "no", "", "")

    def _add(self, messages: tuple[Message, ...] | list[Message], answer: str, session: str, tenant: str) -> None:
        ids: list[int] = []
        starts = []
        for role, text in messages:
            starts.append(len(ids))
            ids += self._begun(role) + self._said(text) + self.tokens.encode("\n")
        said = self._said(answer)
        prompt = Prompt(f"chat-{len(self.prompts)}", ids + self._begun("assistant"), num_answer=len(said), answer=said)
        prompt.message_starts, prompt.session, prompt.tenant = tuple(starts), session, tenant
        self.prompts.append(prompt)

    def _begun(self, role: str) -> list[int]:
        return self.tokens.encode(f"<|im_start|>{role}\n")

    def _said(self, text: str) -> list[int]:
        return self.tokens.encode(text) + self.tokens.encode("<|im_end|>")


def request_ids(log: Log, mended: bool) -> None:
    """A request's id stands in the system prompt's second line; mended, the id stays in the HTTP header."""
    rules = log.words(350)
    for _ in range(40):
        digits = f"{log.rng.getrandbits(128):032x}"
        trace = "" if mended else f"Request-ID: {digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:]}\n"
        log.ask(("system", f"You are the assistant of a bank.\n{trace}{rules}"), ("user", log.words(20)))


def time_in_the_middle(log: Log, mended: bool) -> None:
    """The time in ISO form stands between persona and tools; mended, it stands in the user's message."""
    persona, tools = log.words(120), log.words(300)
    for number in range(40):
        now = f"2026-03-14T09:{number // 3:02}:{number * 20 % 60:02}.{log.rng.randrange(1000):03}Z"
        line = f"The current system date is: {now}\n"
        system = f"{persona}\n{'' if mended else line}{tools}"
        log.ask(("system", system), ("user", f"{line if mended else ''}{log.words(20)}"))


def shuffled_tools(log: Log, mended: bool) -> None:
    """Ten tool definitions come in random order; mended, in the order of their names."""
    tools = [f'{{"name": "{word}_{log.rng.choice(WORDS)}", "description": "{log.words(35)}"}}' for word in WORDS[:10]]
    for _ in range(40):
        order = sorted(tools) if mended else log.rng.sample(tools, len(tools))
        log.ask(("system", "You can call tools.\n# Tools\n" + "\n".join(order)), ("user", log.words(25)))


def profile_first(log: Log, mended: bool) -> None:
    """A user's profile stands before the rules that all share; mended, behind them."""
    rules = log.words(350)
    users = [f"Name: {name.title()}. Plan: {log.rng.choice(WORDS)}. Notes: {log.words(40)}." for name in WORDS[20:44]]
    for number in range(48):
        profile = users[number % len(users)]
        parts = (rules, profile) if mended else (profile, rules)
        log.ask(("system", "\n".join(parts)), ("user", log.words(15)), tenant=f"user-{number % len(users)}")


def shuffled_chunks(log: Log, mended: bool) -> None:
    """The five chunks of a topic come in the order of a changing score; mended, in the order of the document."""
    topics = [[f"[{n}] {log.words(70)}" for n in range(5)] for _ in range(4)]
    for number in range(40):
        chunks = topics[number % len(topics)]
        order = chunks if mended else log.rng.sample(chunks, len(chunks))
        text = "Answer from these sources.\n" + "\n".join(order)
        log.ask(("system", "You answer questions."), ("user", f"{text}\nQuestion: {log.words(12)}"))


def stripped_thinking(log: Log, mended: bool) -> None:
    """Agents think before each call; the user's next message drops all thoughts from the history, mended it does not.

    Results of calls are long, thoughts are short.
    """
    system = ("system", log.words(80))
    chats: list[list[Message]] = [[system] for _ in range(5)]
    for _ in range(3):
        for chat in chats if not mended else ():
            chat[:] = [(role, re.sub(r"<think>.*?</think>", "", text)) for role, text in chat]
        for chat in chats:
            chat.append(("user", log.words(15)))
        for _ in range(3):
            for number, chat in enumerate(chats):
                said = f"<think>{log.words(12)}</think>call {log.words(8)}"
                log.ask(*chat, answer=said, session=f"agent-{number}")
                chat += [("assistant", said), ("tool", log.words(90))]


def window_of_messages(log: Log, mended: bool) -> None:
    """A client sends the system prompt and the last six messages; mended, it sends all."""
    system = ("system", log.words(60))
    chats: list[list[Message]] = [[] for _ in range(6)]
    for _ in range(9):
        for number, chat in enumerate(chats):
            chat.append(("user", log.words(40)))
            answer = log.words(30)
            log.ask(system, *(chat if mended else chat[-6:]), answer=answer, session=f"chat-{number}")
            chat.append(("assistant", answer))


def long_reports(log: Log, mended: bool) -> None:
    """A report that fills the pool passes after each round of eight clients; mended, the pool holds both."""
    log.num_blocks = 1600 if mended else 400
    systems = [log.words(450) for _ in range(8)]
    for number in range(48):
        if number % 12 == 11:
            log.ask(("system", "Rate this report."), ("user", log.words(6000)))
        log.ask(("system", systems[number % len(systems)]), ("user", log.words(15)), session=f"client-{number % 8}")


def agents_after_pauses(log: Log, mended: bool) -> None:
    """Eighteen agents come back after all the others have worked; mended, the pool holds all their histories."""
    log.num_blocks = 1600 if mended else 350
    system = ("system", log.words(60))
    chats: list[list[Message]] = [[system, ("user", log.words(400))] for _ in range(18)]
    for _ in range(3):
        for number, chat in enumerate(chats):
            answer = log.words(20)
            log.ask(*chat, answer=answer, session=f"agent-{number}")
            chat += [("assistant", answer), ("tool", log.words(50))]


def three_replicas(log: Log, mended: bool) -> None:
    """A balancer sends each request of eight chats to the next of three replicas; mended, a chat stays on one."""
    log.num_replicas, log.routing = 3, "sticky" if mended else "round_robin"
    system = ("system", log.words(60))
    chats: list[list[Message]] = [[system] for _ in range(8)]
    for _ in range(6):
        for number, chat in enumerate(chats):
            answer = log.words(30)
            chat.append(("user", log.words(60)))
            log.ask(*chat, answer=answer, session=f"chat-{number}")
            chat.append(("assistant", answer))


FOREIGN: dict[Callable[[Log, bool], None], Kind] = {
    request_ids: "id",
    time_in_the_middle: "clock",
    shuffled_tools: "varying_text",
    profile_first: "tenant",
    shuffled_chunks: "varying_text",
    stripped_thinking: "edited_history",
    window_of_messages: "truncated_history",
    long_reports: "evicted_by_one",
    agents_after_pauses: "evicted",
    three_replicas: "other_replica",
}
"""The costliest cause of each traffic."""


def foreign_log(make: Callable[[Log, bool], None], *, mended: bool = False) -> Log:
    """Return the traffic of a maker, as it is or mended."""
    log = Log(Random(make.__name__))
    make(log, mended)
    return log
