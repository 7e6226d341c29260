"""Questions in the text of the notebook "Prefix caching"."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.trial import RUN, Act, plays
from labengine.course.words import course_exercise
from labengine.events import BlockEvicted, PrefixHit, RequestScheduled
from labengine.lab import Lab

RULES = "You are a kind assistant and you answer in one short line"
LONG = (
    "Dear all the ship that left the old harbour in the north two days ago has not been seen since and nobody can say "
    "where it may be"
)
BLOCK_SIZE = 4


def _newest(step: RevealedStep) -> int:
    return max(step.before.requests)


def _num_words(step: RevealedStep) -> int:
    return len(step.before.requests[_newest(step)].token_ids)


def _found(step: RevealedStep) -> int:
    return next((one.num_tokens for one in step.of_kind(PrefixHit) if one.request_id == _newest(step)), 0)


def _computed(step: RevealedStep) -> int:
    return next(one.num_tokens for one in step.of_kind(RequestScheduled) if one.request_id == _newest(step))


# -- hits --------------------------------------------------------------------------------------------------------------


def _same_rules(rules: str, one: str, other: str) -> Instance:
    n, shared = len(f"{rules} {other}".split()), len(rules.split())
    task = (
        f"A is done. Now B arrives with {n} words, the first {shared} of them the same as A's. A block has room for 4 "
        "words. How many of B's words does the next step compute?"
    )
    return Instance(task, plays((f"{rules} {one}", 2), RUN, (f"{rules} {other}", 4)))


def _other_rules(random: Random) -> Instance:
    rules, one, other = phrases(random, random.randrange(5, 16), *random.sample(range(2, 8), 2))
    return _same_rules(rules, one, other)


course_exercise(
    "prefix-caching/same-rules",
    play=_same_rules(RULES, "what is the sea", "why do cats sleep"),
    truth=_computed,
    another=_other_rules,
    about="number",
    views=("tables", "pool"),
    mistakes=[_num_words, lambda step: 0],
    num_blocks=12,
)


def _once_more(text: str) -> Instance:
    task = (
        f"A prompt of {len(text.split())} words arrives, and each of its full blocks of 4 words is already in the map. "
        "How many of its words are found?"
    )
    return Instance(task, plays((text + " and more", 2), RUN, (text, 3)))


course_exercise(
    "prefix-caching/last-word",
    play=_once_more(RULES),
    truth=_found,
    another=lambda random: _once_more(*phrases(random, random.randrange(5, 18))),
    about="number",
    views=("tables", "map"),
    mistakes=[_num_words, lambda step: _num_words(step) - 1],
    num_blocks=12,
)


def _after_the_rules(title: str, text: str, cache_salt: str | None = None) -> Instance:
    def play(lab: Lab) -> None:
        plays((f"{RULES} what is the sea", 2), RUN)(lab)
        lab.add(text, max_tokens=1, cache_salt=cache_salt)

    task = (
        f"A asked: *{RULES} what is the sea*. Now B asks: *{text}*{title}. How many of B's words are found, in "
        "blocks of 4?"
    )
    return Instance(task, play)


def _broken(random: Random) -> Instance:
    """Return one of the notebook's trials, or a trial with one word of the rules changed."""
    place = random.randrange(len(RULES.split()))
    changed = " ".join("never" if i == place else word for i, word in enumerate(RULES.split()))
    return random.choice(
        (
            _after_the_rules("", f"{RULES} why do cats sleep"),
            _after_the_rules("", f"Today is Monday. {RULES} why do cats sleep"),
            _after_the_rules("", f"{RULES} why do cats sleep on a Monday"),
            _after_the_rules("", f"{changed} why do cats sleep"),
            _after_the_rules(", with another salt", f"{RULES} what is the sea", cache_salt="tenant 2"),
        )
    )


course_exercise(
    "prefix-caching/breaks",
    play=_after_the_rules("", f"Today is Monday. {RULES} why do cats sleep"),
    truth=_found,
    another=_broken,
    about="number",
    views=("tables", "map"),
    mistakes=[lambda step: 12, lambda step: _num_words(step) // BLOCK_SIZE * BLOCK_SIZE],
    num_blocks=24,
)


def _twins(text: str, is_later: bool) -> Instance:
    when = "one step after A, which is still running" if is_later else "at the same moment as A, in the same step"
    task = (
        f"B arrives with the same {len(text.split())} words as A, {when}. How many of them does B find? A block has "
        "room for 4."
    )
    return Instance(task, plays((text, 4), *([1] if is_later else []), (text, 4)))


course_exercise(
    "prefix-caching/twins",
    play=_twins(f"{RULES} what is the sea", is_later=False),
    truth=_found,
    another=lambda random: _twins(phrases(random, random.randrange(6, 18))[0], is_later=random.random() < 0.6),
    about="number",
    views=("tables", "pool"),
    mistakes=[lambda step: 12, lambda step: 16],
    num_blocks=24,
)


# -- evictions ---------------------------------------------------------------------------------------------------------


def _two_were_here(texts: Sequence[str], newcomer: str) -> Instance:
    needed = -(-len(newcomer.split()) // BLOCK_SIZE)
    before: list[Act] = [act for text in texts for act in ((text, 2), RUN)]
    task = (
        f"All earlier requests are done. Now one arrives with {len(newcomer.split())} new words: it takes {needed} "
        "blocks from the head of the free queue. Which entry of the prefix map is evicted first?"
    )
    return Instance(task, plays(*before, (newcomer, 1)))


def _others_were_here(random: Random) -> Instance:
    *texts, newcomer = phrases(random, *random.choices(range(6, 14), k=2), random.randrange(13, 21))
    if random.random() < 0.5:
        texts.append(texts[0])  # a hit: used again
    return _two_were_here(texts, newcomer)


def _last_in_line(step: RevealedStep) -> str:
    """Return the entry whose block is reused last."""
    return step.entry_of(next(i for i in reversed(step.before.free_queue) if step.before.blocks[i].block_hashes))


course_exercise(
    "prefix-caching/lost-first",
    play=_two_were_here([f"{RULES} what is the sea", f"{RULES} why do cats sleep", RULES], LONG),
    truth=lambda step: step.entry_of(step.first(BlockEvicted).block_id),
    another=_others_were_here,
    about="hash",
    views=("map", "queue"),
    mistakes=[_last_in_line],
    num_blocks=9,
)
