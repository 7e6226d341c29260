"""The phrase table: complete, and read alike by Python and by the browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from labengine import events as ev
from labengine.core.request import FinishReason
from labengine.record.wording import counted, joined, listed, readable
from labengine_widgets.words import phrases
from labengine_widgets.words.phrases import phrase, state_phrase, word
from widgets.browser.model.model_page import ModelPage
from widgets.browser.model.model_reference import payload

TABLE = json.loads(Path(phrases.__file__).with_name("phrases.json").read_text(encoding="utf-8"))
HASH = bytes(range(16))
KEYS = ((0, HASH), (1, b"b"), (0, b"c"))
TRANSFERS = ((0, 1, 3, HASH), (0, 2, 5, HASH), (1, 0, 3, HASH))
STRANGE = ("stop", "constructor", "gone\n\u202eback", "x" * 300, "a <b> {step} “c”", "𝒳" * 201, "\ud800")
SPLIT_CHARACTERS = (
    ["ok ", "\\xf0\\x9f", "\\x98\\x80", " yes"],
    [" \\xf0\\x9f", "\\x98\\x80\\xe4", "\\xb8", "\\xad!", "\\xc3", "\\xa9"],
    ["\\x98\\x80", "a", "\\xf0\\x9f"],
    ["\\xf0", "\\xf0\\x9f", "x", "\\x98\\x80", "\\xc0\\x80\\xed\\xa0\\x80\\xff"],
)
"""Tokens that each have some bytes of a character."""
REASONS = ("finished", "aborted", "preempted", "merged", "copied", "pruned", "window", "an own reason")

EVENTS: list[ev.Event] = [
    *(ev.EngineStarted(n, (("full", 4, None),), "vllm", null) for n, null in product((1, 1024), (-1, 0, 7))),
    ev.StepStarted(3),
    ev.StepEnded(3),
    *(ev.StepFailed(2, one, other, "BlockPool.release") for one, other in product(STRANGE, STRANGE)),
    *(ev.StepRolledBack(2, reason) for reason in STRANGE),
    *(ev.RequestAdded(request, tuple(range(n)), n) for request, n in product((0, 25, 26, 800), (0, 1, 14))),
    *(ev.RequestAdded(1, (5, 6, 7), 4, n, leader) for n, leader in product((0, 1, 2), (None, 0, 27))),
    *(ev.RequestAdded(1, (5, 6, 7), 4, images=((0, 1, name), (1, 2, "b"))[:n]) for name in STRANGE for n in (1, 2)),
    *(ev.RequestForked(1, 27, n, ((0, 1), (-1, 4))) for n in (0, 1, 8)),
    *(ev.SharedPrefixFound(27, n) for n in (0, 1, 8)),
    *(ev.StateCopied(4, 7, 27, group, n) for group, n in product((0, 1), (1, 12))),
    *(ev.BlockMoved(7, 27, group, 2, 5) for group in (0, 1)),
    *(ev.StateAdvanced(27, group, 7, start, 20) for group, start in product((0, 1), (0, 1, 12))),
    *(ev.BeamReplaced(1, (5, 6), parent) for parent in (None, 0, 27)),
    *(ev.PrefixHit(27, n, ((0, 1), (-1, 4))) for n in (0, 1, 8)),
    ev.PrefixHit(27, 0, ((), ()), is_skipped=True),
    *(ev.RequestScheduled(1, 12, n, n > 1, "running") for n in (0, 1, 2, 64)),
    ev.RequestPreempted(1),
    *(
        ev.RequestFinished(0, reason, held)
        for reason, held in product((*STRANGE, "length", "abort", "moved"), (False, True))
    ),
    ev.RequestReleased(3),
    *(ev.RequestHandedOver(1, lab, other, n) for lab, other, n in product((*STRANGE, "lab 2"), (0, 27), (1, 12))),
    *(ev.RequestReceived(1, TRANSFERS[:n], lab, 27, n) for lab, n in product((*STRANGE, "lab 2"), range(4))),
    ev.RequestForgotten(2),
    *(ev.ExternalHit(1, n, is_loading) for n, is_loading in product((1, 8), (False, True))),
    *(kind(0, TRANSFERS[:n]) for kind, n in product((ev.BlocksLoaded, ev.BlocksSaved), range(4))),
    *(ev.LoadFailed(0, reason) for reason in STRANGE),
    *(
        ev.TierChanged(added, dropped, pinned)
        for added, dropped, pinned in product(
            (KEYS[:1], KEYS), ((), KEYS), ((), ((0, b"a", 2),), ((0, b"a", 0), (1, b"b", 0), (0, b"c", 1)))
        )
    ),
    ev.PrefixCacheReset(),
    *(ev.BlockEvicted(4, reason) for reason in (*get_args(ev.EvictReason), "an own reason")),  # type: ignore[arg-type]
    *(ev.BlockAllocated(4, 1, group, 2) for group in (0, 3)),
    *(ev.BlocksSkipped(0, group, n) for group, n in product((0, 1), (1, 2))),
    *(ev.BlockTouched(4, 1, g, 0, count, fork) for g, count, fork in product((0, 1), (1, 2, 3), (False, True))),
    *(
        ev.BlockCached(4, 1, 0, 0, HASH, mapped, is_full)
        for mapped, is_full in product(((), (4,), (2,), (2, 4), tuple(range(9))), (True, False))
    ),
    *(ev.BlockMerged(6, 2, 1, group, 0, 2) for group in (0, 1)),
    *(
        ev.BlockFreed(4, 1, 0, 0, 0 if end else 1, end, reason)  # type: ignore[arg-type]
        for end, reason in product(("head", "tail", None), REASONS)
    ),
    *(ev.FreeDeferred(1, group, ids) for group, ids in product((0, 1), ((4,), (4, 6), (1, 2, 3, 9)))),
    ev.BlockPinned(4, 2),
    *(ev.BlockUnpinned(4, 0 if end else 1, end) for end in ("head", "tail", None)),
    *(ev.BlockCopied(4, 6, 1, *more) for more in product((0, 1), (2,), (True, False))),
    ev.HashesMoved(4, 6),
    *(ev.NodeInserted(3, parent, 1, 0, 2, ids) for parent, ids in product((0, 2), ((4,), (1, 2, 3, 9)))),
    *(ev.NodeSplit(3, 4, n) for n in (1, 2)),
    *(ev.NodesTouched(ids) for ids in ((3,), (3, 1), tuple(range(1, 9)))),
    *(kind(3, 27) for kind in (ev.NodeLocked, ev.NodeUnlocked)),
    *(
        ev.NodeEvicted(3, (4, 6), end, reason, num_kept)  # type: ignore[arg-type]
        for end, reason, num_kept in product(
            ("head", "tail", None), (*get_args(ev.EvictReason), "an own reason"), (0, 1, 5)
        )
    ),
    *(ev.SlotsWritten(0, 1, 3, runs) for runs in ((), ((1, 2, 1),), ((1, 2, 2), (7, 0, 4), (1, 0, 1)))),
    *(ev.ForwardRan(requests, tokens) for requests, tokens in product((1, 2), (1, 8192))),
    *(ev.TokensComputed(0, n) for n in (1, 15)),
    *(ev.TokenSampled(1, token_id, 9) for token_id in (0, 7)),
    *(ev.TokensDrafted(1, tuple(range(n))) for n in (0, 1, 5)),
    *(ev.DraftsJudged(1, *numbers) for numbers in product((0, 1, 3), (0, 1, 4))),
    *(ev.RequestScheduled(0, 9, 1 + n, False, "running", n) for n in (1, 4)),
    *(ev.ViolationFound("read", message, (0,), (1,), 1, None) for message in STRANGE),
    *(ev.DecisionDiffered("Mine.skips", "Skips.skips", text, "False", n) for text, n in product(STRANGE, (-1, 1))),
]

STATES: list[tuple[str, dict[str, Any]]] = [
    (
        name,
        dict.fromkeys(("num_blocks", "used", "num_running"), n)
        | dict.fromkeys(("lost", "findable", "num_waiting"), m)
        | {"used_blocks": f"{n} blocks used", "step": 4},
    )
    for name, n, m in product(set(TABLE["states"]) - {"waiting"}, (0, 1, 2), (0, 1, 2))
] + [("waiting", {"requests": names, "num_waiting": n}) for names, n in (("A", 1), ("A and B", 2))]


def text_of(token_id: int) -> str:
    """A token's text, in both languages."""
    return f" word{token_id}"


PHRASES = """
([payload, named]) => {
  const recording = model.Recording.full(payload), text = named ? (token) => ` word${token}` : undefined;
  return recording.rows.map((_, event) => model.phrase(recording, event, text));
}
"""


@pytest.mark.browser
@pytest.mark.parametrize("is_named", [False, True])
def test_both_languages_say_the_same_of_every_event(page: ModelPage, is_named: bool) -> None:
    said = page.evaluate(PHRASES, [payload(EVENTS), is_named])
    expected = [phrase(event, text_of if is_named else None).row() for event in EVENTS]
    assert dict(zip(EVENTS, said, strict=True)) == dict(zip(EVENTS, expected, strict=True))


@pytest.mark.browser
def test_both_languages_say_the_same_of_every_state(page: ModelPage) -> None:
    said = page.evaluate("(all) => all.map(([name, numbers]) => model.statePhrase(name, numbers))", STATES)
    assert said == [state_phrase(name, numbers).row() for name, numbers in STATES]


@pytest.mark.browser
def test_both_languages_have_the_same_names(page: ModelPage) -> None:
    nouns = ["block", "hash", "table entry", "key", "match", "box", "miss", "copy"]
    lists = [[f"#{i}" for i in range(n)] for n in range(9)]
    tokens = [["1", "22"], ["a", " b"], ["1", " 2"], [], *SPLIT_CHARACTERS]
    script = """([nouns, lists, tokens, texts]) => [
      nouns.flatMap((noun) => [0, 1, 2, 12345].map((n) => model.counted(n, noun))),
      lists.map((words) => model.listed(words)), tokens.map((words) => model.joined(words)),
      texts.map((text) => model.readable(text, 160)),
    ]"""
    assert page.evaluate(script, [nouns, lists, tokens, [json.loads(json.dumps(text)) for text in STRANGE]]) == [
        [counted(n, noun) for noun in nouns for n in (0, 1, 2, 12345)],
        [listed(words) for words in lists],
        [joined(words) for words in tokens],
        [readable(text) for text in STRANGE],
    ]


def test_every_kind_of_event_has_a_phrase_and_an_example() -> None:
    names = {kind.__name__ for kind in ev.EVENT_KINDS}
    assert set(TABLE["events"]) == names == {type(event).__name__ for event in EVENTS}


def test_another_kind_is_named() -> None:
    @dataclass(frozen=True)
    class TeaServed(ev.Event):
        pass

    assert phrase(TeaServed()) == "TeaServed happens."


def templates(phrase: Any) -> Iterator[str]:
    """The templates of a phrase."""
    if isinstance(phrase, str):
        yield phrase
    else:
        ((_, choices),) = phrase.items()
        for choice in choices.values():
            yield from templates(choice)


def selected_by(phrase: Any) -> Iterator[tuple[str, set[str]]]:
    """Each choice of a phrase: its field and the values that have their own phrase."""
    if not isinstance(phrase, str):
        ((name, choices),) = phrase.items()
        yield name, set(choices)
        for choice in choices.values():
            yield from selected_by(choice)


@pytest.mark.parametrize("kind", ev.EVENT_KINDS)
def test_a_phrase_names_what_the_event_has(kind: type[ev.Event]) -> None:
    said = TABLE["events"][kind.__name__]
    known = {field.name for field in fields(kind)} | set(phrases._VALUES)
    for template in templates(said):
        placeholders = re.findall(r"\{[^}]*\}", template)
        found = [phrases._PLACEHOLDER.fullmatch(one) for one in placeholders]
        assert all(found), template
        assert {one[1] for one in found if one} <= known
        assert {one[2] for one in found if one and one[2]} <= set(TABLE["words"])
        assert template.endswith(".") and template.count("{") == template.count("}") == len(placeholders)
    assert {name for name, _ in selected_by(said)} <= known


@pytest.mark.parametrize("kind", ev.EVENT_KINDS)
def test_a_choice_leaves_no_value_out(kind: type[ev.Event]) -> None:
    hints = get_type_hints(kind)
    for name, values in selected_by(TABLE["events"][kind.__name__]):
        if "*" not in values:
            expected = {"none", "others", "shared", "alone"} if name == "mapping" else {"true", "false"}
            assert values == expected and (name == "mapping" or hints[name] is bool)


def test_every_known_reason_has_its_words() -> None:
    assert set(TABLE["words"]["freed"]) == set(get_args(ev.FreeReason))
    assert set(TABLE["words"]["evicted"]) == set(get_args(ev.EvictReason))
    assert set(TABLE["words"]["freed_to"]) == {"null", *get_args(ev.QueueEnd)}
    assert set(TABLE["words"]["finished"]) == set(get_args(FinishReason))
    assert word("freed", "an own\nreason") == "an own⏎reason"
