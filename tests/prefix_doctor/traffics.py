"""Small made traffics: fourteen with one known fault and its cure, and three without a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from labengine.config import EngineConfig, GroupSpec
from labengine.core.editions import edition
from labengine.core.request import Image
from labengine.prefix_doctor.causes.finding import Kind
from labengine.prefix_doctor.play.setting import Routing, Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

BLOCK = 16


class Words:
    """A vocabulary that grows: one token per word; random words are three syllables long."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self._texts: list[str] = []
        self._ids: dict[str, int] = {}
        syllables = [a + b for a, b in product("bdfgklmnprst", "aeiou")]
        self._random = [self.id(" " + "".join(self.rng.choices(syllables, k=3))) for _ in range(3000)]

    def id(self, text: str) -> int:
        """Return a word's token."""
        if text not in self._ids:
            self._ids[text] = len(self._texts)
            self._texts.append(text)
        return self._ids[text]

    def of(self, *texts: str) -> list[int]:
        """Return the tokens of words."""
        return [self.id(text) for text in texts]

    def random(self, number: int) -> list[int]:
        """Return that many random words."""
        return self.rng.choices(self._random, k=number)

    def text(self, token_id: int) -> str:
        """Return a token's text."""
        return self._texts[token_id]


@dataclass(frozen=True)
class Made:
    """A traffic, the engine that serves it one prompt at a time, and what the doctor has to find.

    kind: None without a fault. num_lost: tokens computed again for the fault. cured, cured_config, cured_routing: what
    mends it. num_apart: tokens of prompts that the cure serves elsewhere.
    """

    kind: Kind | None
    num_lost: int
    traffic: Traffic
    cured: Traffic
    config: EngineConfig
    cured_config: EngineConfig
    num_replicas: int = 1
    routing: Routing = "round_robin"
    cured_routing: Routing = "round_robin"
    num_apart: int = 0

    @property
    def setting(self) -> Setting:
        """The engines that show the fault."""
        return Setting(self.config, edition("vllm"), None, self.num_replicas, self.routing)

    @property
    def cured_setting(self) -> Setting:
        """The engines that mend it."""
        return Setting(self.cured_config, edition("vllm"), None, self.num_replicas, self.cured_routing)


def config_of(num_blocks: int = 4000, block_size: int = BLOCK) -> EngineConfig:
    """Return an engine that serves one request at a time."""
    return EngineConfig(num_blocks, (GroupSpec(block_size),), max_num_seqs=1, max_num_batched_tokens=4096)


def traffic_of(words: Words, title: str, prompts: Iterable[Prompt]) -> Traffic:
    """Return a traffic of these prompts."""
    kept = list(prompts)
    return Traffic(title, lambda: iter(kept), words.text)


def numbered(texts: Iterable[Sequence[int]], **fields: object) -> list[Prompt]:
    """Return prompts p0, p1 ..."""
    return [Prompt(f"p{number}", list(text), **fields) for number, text in enumerate(texts)]  # type: ignore[arg-type]


def clock_first() -> Made:
    """A time in the first line, before 301 equal tokens."""
    words = Words(1)
    begin, rules = words.of("It", " is", " now"), [*words.of("."), *words.random(300)]
    before, after = list[list[int]](), list[list[int]]()
    for number in range(120):
        seconds = 37 * number
        hour, minute, second = f"{12 + seconds // 3600}", f"{seconds // 60 % 60:02}", f"{seconds % 60:02}"
        clock, question = words.of(" ", *":".join((hour, minute, second))), words.random(20)
        before.append([*begin, *clock, *rules, *question])
        after.append([*begin, *rules, *clock, *question])
    return _mended("clock", 119 * (len(begin) + len(rules)), words, before, after)


def tenant_first() -> Made:
    """40 tenants, whose names come before the rules; each asks three times."""
    words = Words(2)
    begin, rules = words.of("You", " work", " for"), [*words.of("."), *words.random(300)]
    names = [words.random(2) for _ in range(40)]
    asked = [*names, *names, *names]
    words.rng.shuffle(asked)
    before, after = list[list[int]](), list[list[int]]()
    for name in asked:
        question = words.random(20)
        before.append([*begin, *name, *rules, *question])
        after.append([*begin, *rules, *name, *question])
    return _mended("tenant", 39 * (len(begin) + len(rules)), words, before, after)


def salted() -> Made:
    """The same rules under 20 salts."""
    return _keyed("salt", "cache_salt", 3)


def adapters() -> Made:
    """The same rules with 20 adapters."""
    return _keyed("adapter", "lora", 4)


def _keyed(kind: Kind, domain: str, seed: int) -> Made:
    words = Words(seed)
    rules, prompts = words.random(304), list[Prompt]()
    for number in range(100):
        keys = ((domain, f"user-{number * 7 % 20}"),)
        prompts.append(Prompt(f"p{number}", [*rules, *words.random(25)], extra_keys=keys))
    plain = [replace(prompt, extra_keys=()) for prompt in prompts]
    traffic, cured = traffic_of(words, kind, prompts), traffic_of(words, f"{kind}, cured", plain)
    return Made(kind, 19 * 304, traffic, cured, config_of(), config_of())


def short_prompts() -> Made:
    """Prompts that share 40 tokens in blocks of 64."""
    words = Words(5)
    rules = words.random(40)
    traffic = traffic_of(words, "short", numbered([*rules, *words.random(12)] for _ in range(200)))
    return Made("short_prompt", 199 * 40, traffic, traffic, config_of(400, 64), config_of(3200, 8))


def huge_prompt() -> Made:
    """Every 25th prompt needs the whole pool, which the templates of the others fit in."""
    words = Words(6)
    templates, before, after = [words.random(208) for _ in range(6)], list[list[int]](), list[list[int]]()
    for number in range(100):
        text = words.random(3190) if number % 25 == 24 else [*templates[number % 6], *words.random(20)]
        before.append(text)
        after += [text] if len(text) < 1000 else []
    traffic, cured = traffic_of(words, "huge", numbered(before)), traffic_of(words, "huge, cured", numbered(after))
    config = config_of(201)
    return Made("evicted_by_one", 3 * 6 * 208, traffic, cured, config, config, num_apart=4 * 3190)


@dataclass(frozen=True)
class Turn:
    """One turn of a chat: its messages so far, an answer between any two of a user's, and the answer to come."""

    session: str
    system: list[int]
    messages: list[list[int]]
    answer: list[int]

    def prompt(self, messages: Sequence[list[int]] | None = None) -> Prompt:
        """Return the turn as a prompt, with other messages if they are given."""
        texts = [self.system, *(self.messages if messages is None else messages)]
        starts = [sum(map(len, texts[:number])) for number in range(len(texts))]
        return Prompt(
            f"{self.session} turn {len(self.messages) // 2}",
            [token for text in texts for token in text],
            num_answer=len(self.answer),
            answer=tuple(self.answer),
            session=self.session,
            message_starts=tuple(starts),
        )


def turns(words: Words, num_sessions: int, num_turns: int) -> list[Turn]:
    """Return chats whose turns take place one after another in all sessions: 40 tokens asked, 24 answered."""
    system, found = words.random(48), list[Turn]()
    histories: list[list[list[int]]] = [[] for _ in range(num_sessions)]
    for _ in range(num_turns):
        for session, history in enumerate(histories):
            history.append(words.random(40))
            answer = words.random(24)
            found.append(Turn(f"chat {session}", system, list(history), answer))
            history.append(answer)
    return found


def edited_history() -> Made:
    """Each turn shows another status of 16 tokens in the chat's first message; the system prompt remains."""
    words = Words(7)
    chats, before = turns(words, 8, 6), list[Prompt]()
    for turn in chats:
        first, *others = turn.messages
        before.append(turn.prompt([[*first[:8], *words.random(16), *first[24:]], *others]))
    lost = sum(8 + 16 + 24 + 64 * number for number in range(5))
    return _chats("edited_history", 8 * lost, words, before, [turn.prompt() for turn in chats])


def truncated_history() -> Made:
    """Only the newest five messages are sent, behind the system prompt."""
    words = Words(8)
    chats = turns(words, 8, 8)
    before = [turn.prompt(turn.messages[-5:]) for turn in chats]
    lost = sum(len(turn.messages) > 5 for turn in chats) * (40 + 24 + 40 + 24)
    return _chats("truncated_history", lost, words, before, [turn.prompt() for turn in chats])


def _chats(kind: Kind, lost: int, words: Words, before: list[Prompt], after: list[Prompt]) -> Made:
    traffic, cured = traffic_of(words, kind, before), traffic_of(words, f"{kind}, cured", after)
    return Made(kind, lost, traffic, cured, config_of(), config_of())


def two_replicas() -> Made:
    """45 prefixes, each asked for twice, by turns on two replicas."""
    words = Words(9)
    prefixes = [words.random(304) for _ in range(45)]
    prompts = numbered([*prefix, *words.random(20)] for prefix in [*prefixes, *prefixes])
    traffic, config = traffic_of(words, "replicas", prompts), config_of()
    return Made("other_replica", 45 * 304, traffic, traffic, config, config, 2, "round_robin", "prefix")


def pauses() -> Made:
    """20 contents come back every 10 minutes, and the pool holds the newest 10 of them."""
    words = Words(10)
    contents = [words.random(304) for _ in range(20)]
    prompts = numbered([*content, *words.random(20)] for content in [*contents, *contents, *contents, *contents])
    paused = [replace(prompt, arrival=30.0 * number) for number, prompt in enumerate(prompts)]
    traffic = traffic_of(words, "pauses", paused)
    return Made("evicted", 60 * 304, traffic, traffic, config_of(211), config_of(844))


def asked_twice(words: Words, num_prefix: int, num_question: int) -> list[Prompt]:
    """Return prompts of 40 prefixes, each with one question and then with another."""
    prefixes = [words.random(num_prefix) for _ in range(40)]
    return numbered([*prefix, *words.random(num_question)] for prefix in [*prefixes, *prefixes])


def states_at_ends() -> Made:
    """A hybrid model keeps the state near each prompt's end; pairs of prompts part 128 tokens before theirs."""
    words = Words(14)
    traffic = traffic_of(words, "states", asked_twice(words, 320, 150))
    groups = GroupSpec(64), GroupSpec(64, "state")
    config = replace(config_of(), groups=groups, retention_interval=0, hash_block_size=0)
    cured = replace(config, retention_interval=None, max_num_batched_tokens=64)
    return Made("state_boundary", 40 * 320, traffic, traffic, config, cured)


def windows_at_ends() -> Made:
    """A sliding window's blocks are kept near each prompt's end; pairs of prompts part 96 tokens before theirs."""
    words = Words(15)
    traffic = traffic_of(words, "windows", asked_twice(words, 304, 100))
    groups = GroupSpec(BLOCK), GroupSpec(BLOCK, "sliding_window", 64)
    config = replace(config_of(), groups=groups, retention_interval=0)
    return Made("window", 40 * 304, traffic, traffic, config, replace(config, retention_interval=None))


def at_the_same_time() -> Made:
    """Four prompts with the same rules come at once, and are computed side by side in small chunks."""
    words, before, after = Words(16), list[Prompt](), list[Prompt]()
    for burst in range(20):
        rules = words.random(304)
        for number, one in enumerate(numbered([*rules, *words.random(20)] for _ in range(4))):
            before.append(replace(one, arrival=40.0 * burst))
            after.append(replace(one, arrival=40.0 * burst + 20 * (number > 0)))
    config = replace(config_of(), max_num_seqs=8, long_prefill_token_threshold=64)
    traffic, cured = traffic_of(words, "bursts", before), traffic_of(words, "bursts, spread out", after)
    return Made("same_time", 20 * (240 + 176 + 112), traffic, cured, config, config)


def pictures_first() -> Made:
    """A picture of 48 tokens before the same 300 tokens; mended, it stands behind them."""
    words, before, after = Words(17), list[Prompt](), list[Prompt]()
    begin, place, rules = words.of("Look", " at", ":"), words.of("<picture>") * 48, words.random(300)
    for number in range(60):
        question, name = words.random(20), f"picture-{number}"
        for prompts, parts in ((before, (begin, place, rules)), (after, (begin, rules, place))):
            start = sum(map(len, parts[: parts.index(place)]))
            token_ids = [token for part in (*parts, question) for token in part]
            prompts.append(Prompt(f"p{number}", token_ids, images=(Image(start, len(place), name),)))
    traffic, cured = traffic_of(words, "pictures", before), traffic_of(words, "pictures, moved", after)
    return Made("image", 59 * 303, traffic, cured, config_of(), config_of())


def all_new() -> Made:
    """Nothing is said twice."""
    words = Words(11)
    return _faultless(words, numbered(words.random(words.rng.randrange(100, 400)) for _ in range(60)))


def perfect_sharing() -> Made:
    """The rules first, then a question that nobody has asked before."""
    words = Words(12)
    rules = words.random(310)
    return _faultless(words, numbered([*rules, *words.random(words.rng.randrange(20, 60))] for _ in range(100)))


def growing_chats() -> Made:
    """Chats whose history only grows."""
    words = Words(13)
    return _faultless(words, [turn.prompt() for turn in turns(words, 10, 7)])


def _faultless(words: Words, prompts: list[Prompt]) -> Made:
    traffic = traffic_of(words, "without a fault", prompts)
    return Made(None, 0, traffic, traffic, config_of(), config_of())


def _mended(kind: Kind, lost: int, words: Words, before: list[list[int]], after: list[list[int]]) -> Made:
    traffic = traffic_of(words, kind, numbered(before))
    return Made(kind, lost, traffic, traffic_of(words, f"{kind}, cured", numbered(after)), config_of(), config_of())


FAULTY: tuple[Callable[[], Made], ...] = (
    clock_first,
    tenant_first,
    salted,
    short_prompts,
    huge_prompt,
    edited_history,
    truncated_history,
    two_replicas,
    pauses,
    adapters,
    states_at_ends,
    windows_at_ends,
    at_the_same_time,
    pictures_first,
)
FAULTLESS: tuple[Callable[[], Made], ...] = (all_new, perfect_sharing, growing_chats)
