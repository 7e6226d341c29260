"""Questions in the text of the notebook "Prefix caching"."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from labengine.course.base import Exercise
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockEvicted, PrefixHit, RequestScheduled
from labengine.lab import Lab

RULES = "You are a kind assistant and you answer in one short line"
LONG = (
    "Dear all the ship that left the old harbour in the north two days ago has not been seen since and nobody can say "
    "where it may be"
)
BLOCK_SIZE = 4


def _done(lab: Lab, *texts: str) -> None:
    for text in texts:
        lab.add(text, max_tokens=2, ignore_eos=True)
        lab.run()


def _newest(step: RevealedStep) -> int:
    return max(step.before.requests)


def _num_words(step: RevealedStep) -> int:
    return len(step.before.requests[_newest(step)].token_ids)


def _found(step: RevealedStep) -> int:
    return next((one.num_tokens for one in step.of_kind(PrefixHit) if one.request_id == _newest(step)), 0)


def _computed(step: RevealedStep) -> int:
    return next(one.num_tokens for one in step.of_kind(RequestScheduled) if one.request_id == _newest(step))


def _all_whole_blocks(step: RevealedStep) -> int:
    return _num_words(step) // BLOCK_SIZE * BLOCK_SIZE


# -- what is found -----------------------------------------------------------------------------------------------------


def _same_rules(rules: str, one: str, other: str) -> Instance:
    n, shared = len(f"{rules} {other}".split()), len(rules.split())

    def play(lab: Lab) -> None:
        _done(lab, f"{rules} {one}")
        lab.add(f"{rules} {other}", max_tokens=4, ignore_eos=True)

    task = (
        f"A is done. Now B arrives with {n} words, of which the first {shared} are A's, too. A block has room for 4 "
        "words. How many of B's words does the next step compute?"
    )
    return Instance(task, play)


def _other_rules(random: Random) -> Instance:
    rules, one, other = phrases(random, random.randrange(5, 16), *random.sample(range(2, 8), 2))
    return _same_rules(rules, one, other)


@course_exercise("prefix-caching/same-rules")
def same_rules(make: Make) -> Exercise:
    """Predict: the words that are computed behind a prefix that is found."""
    first = _same_rules(RULES, "what is the sea", "why do cats sleep")
    return make(
        task=first.task,
        play=first.play,
        truth=_computed,
        another=_other_rules,
        about="number",
        views=("tables", "pool"),
        mistakes=[_num_words, lambda step: 0],
        num_blocks=12,
        block_size=BLOCK_SIZE,
    )


def _once_more(text: str) -> Instance:
    n = len(text.split())

    def play(lab: Lab) -> None:
        _done(lab, text + " and more")
        lab.add(text, max_tokens=3, ignore_eos=True)

    task = (
        f"A prompt of {n} words arrives, and each of its full blocks of 4 words is in the map already. How many of its "
        "words are found?"
    )
    return Instance(task, play)


@course_exercise("prefix-caching/last-word")
def last_word(make: Make) -> Exercise:
    """Predict: what is found of a prompt that is in the map as a whole."""
    first = _once_more(RULES)
    return make(
        task=first.task,
        play=first.play,
        truth=_found,
        another=lambda random: _once_more(*phrases(random, random.randrange(5, 18))),
        about="number",
        views=("tables", "map"),
        mistakes=[_num_words, lambda step: _num_words(step) - 1],
        num_blocks=12,
        block_size=BLOCK_SIZE,
    )


def _after_the_rules(title: str, text: str, cache_salt: str | None = None) -> Instance:
    def play(lab: Lab) -> None:
        _done(lab, f"{RULES} what is the sea")
        lab.add(text, max_tokens=1, cache_salt=cache_salt)

    task = (
        f"A has asked: *{RULES} what is the sea*. Now B asks: *{text}*{title}. How many of B's words are found, in "
        "blocks of 4?"
    )
    return Instance(task, play)


def _broken(random: Random) -> Instance:
    """Return one of the notebook's trials, or one with a word changed in the rules."""
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


@course_exercise("prefix-caching/breaks")
def breaks(make: Make) -> Exercise:
    """Predict: what is left of a prefix."""
    first = _after_the_rules("", f"Today is Monday. {RULES} why do cats sleep")
    return make(
        task=first.task,
        play=first.play,
        truth=_found,
        another=_broken,
        about="number",
        views=("tables", "map"),
        mistakes=[lambda step: 12, _all_whole_blocks],
        num_blocks=24,
        block_size=BLOCK_SIZE,
    )


def _twins(text: str, is_later: bool) -> Instance:
    def play(lab: Lab) -> None:
        lab.add(text, max_tokens=4, ignore_eos=True)
        if is_later:
            lab.step()
        lab.add(text, max_tokens=4, ignore_eos=True)

    when = "one step after A, which goes on" if is_later else "at the same moment as A, in the same step"
    task = (
        f"B arrives with the same {len(text.split())} words as A, {when}. How many of them does B find? A block has "
        "room for 4."
    )
    return Instance(task, play)


@course_exercise("prefix-caching/twins")
def twins(make: Make) -> Exercise:
    """Predict: what the second of two equal prompts finds."""
    first = _twins(f"{RULES} what is the sea", is_later=False)
    return make(
        task=first.task,
        play=first.play,
        truth=_found,
        another=lambda random: _twins(phrases(random, random.randrange(6, 18))[0], is_later=random.random() < 0.6),
        about="number",
        views=("tables", "pool"),
        mistakes=[lambda step: 12, lambda step: 16],
        num_blocks=24,
        block_size=BLOCK_SIZE,
    )


# -- what is lost ------------------------------------------------------------------------------------------------------


def _two_were_here(texts: Sequence[str], newcomer: str) -> Instance:
    needed = -(-len(newcomer.split()) // BLOCK_SIZE)

    def play(lab: Lab) -> None:
        _done(lab, *texts)
        lab.add(newcomer, max_tokens=1, ignore_eos=True)

    task = (
        f"All earlier requests are done. Now one arrives with {len(newcomer.split())} new words: it takes {needed} "
        "blocks from the head of the free queue. Which entry of the prefix map is evicted first?"
    )
    return Instance(task, play)


def _others_were_here(random: Random) -> Instance:
    *texts, newcomer = phrases(random, *random.choices(range(6, 14), k=2), random.randrange(13, 21))
    if random.random() < 0.5:
        texts.append(texts[0])  # a hit: used again
    return _two_were_here(texts, newcomer)


def _first_evicted(step: RevealedStep) -> str:
    return _entry_of(step, step.first(BlockEvicted).block_id)


def _entry_of(step: RevealedStep, block_id: int) -> str:
    return next(key for key, block_ids in step.before.prefix_map.items() if block_id in block_ids)


def _last_in_line(step: RevealedStep) -> str:
    """Return the entry whose block is reused last."""
    return _entry_of(step, next(i for i in reversed(step.before.free_queue) if step.before.blocks[i].block_hashes))


@course_exercise("prefix-caching/lost-first")
def lost_first(make: Make) -> Exercise:
    """Predict: the entry that is evicted first."""
    first = _two_were_here([f"{RULES} what is the sea", f"{RULES} why do cats sleep", RULES], LONG)
    return make(
        task=first.task,
        play=first.play,
        truth=_first_evicted,
        another=_others_were_here,
        about="hash",
        views=("map", "queue"),
        mistakes=[_last_in_line],
        num_blocks=9,
        block_size=BLOCK_SIZE,
    )
