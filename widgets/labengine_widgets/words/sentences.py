"""What has just happened, in one sentence of words a student has met. Plain text: it may hold a model's words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from labengine import events as ev
from labengine_widgets.words.event_text import tell
from labengine_widgets.words.names import block_name, counted, group_name, listed, readable, request_name
from labengine_widgets.words.scene import MAX_BLOCKS_WITH_TEXT, Scene

E = TypeVar("E", bound=ev.Event)
Teller = Callable[[Any, Scene], str]
_TELLERS: dict[type[ev.Event], Teller] = {}

_FINISH_REASONS = {
    "stop": "it said its end-of-text token",
    "length": "it has all the tokens it may have",
    "abort": "it was aborted",
}


def sentence(run: Sequence[ev.Event], scene: Scene) -> str:
    """The sentence for events that happened together: one event, or a run that `frames.runs` put into one frame.

    scene: the state just after the run. Where events cannot have happened, as wrong parts emit them, the state may lack
    what the sentence is about: then the first event is told by itself.
    """
    try:
        return _TELLERS[type(run[0])](run, scene)
    except (IndexError, KeyError):
        if not scene.fold.num_impossible:
            raise
        return tell(run[0])


def resting_sentence(scene: Scene) -> str:
    """What a reader sees first, and after the lab has started over."""
    open_ids = [i for i, request in scene.fold.requests.items() if request.status != "finished"]
    if not open_ids and scene.fold.step:
        return finished_sentence(scene)
    if not open_ids:
        return (
            f"{counted(scene.num_blocks, 'block')}, {scene.num_used} used, and nobody waits: add a prompt, then step."
        )
    if scene.fold.step:
        return standing_sentence(scene)
    verb = "is in line" if len(open_ids) == 1 else "are in line"
    return f"{listed(map(request_name, open_ids))} {verb}: take a step, and watch the blocks."


def finished_sentence(scene: Scene) -> str:
    """What a reader sees when all the work is done."""
    used, _, findable, _ = scene.score
    kept = f" {counted(findable, 'freed block')} can still be found." if findable and not used else ""
    return f"After step {scene.fold.step} nobody waits or runs: {counted(used, 'block')} used.{kept}"


def standing_sentence(scene: Scene) -> str:
    """What a reader sees of a lab that has taken steps before anybody looked."""
    used, _, _, lost = scene.score
    told = f"After step {scene.fold.step}: {counted(used, 'block')} used"
    return f"{told}, and no look-up finds {lost} of them." if lost else f"{told}."


def running_sentence(scene: Scene) -> str:
    """What a reader sees of an engine that steps by itself."""
    statuses = [request.status for request in scene.fold.requests.values()]
    running, waiting = statuses.count("running"), statuses.count("waiting") + statuses.count("preempted")
    queue = f", {waiting} in line" if waiting else ""
    used = counted(scene.num_used, "block")
    return f"Step {scene.fold.step}: {counted(running, 'request')} running{queue}, {used} used."


def _tells(kind: type[E]) -> Callable[[Callable[[Sequence[E], Scene], str]], Teller]:
    def register(teller: Callable[[Sequence[E], Scene], str]) -> Teller:
        _TELLERS[kind] = teller
        return teller

    return register


def _blocks(run: Sequence[Any]) -> str:
    return listed(block_name(event.block_id) for event in run)


def _contents(block_ids: Collection[int], scene: Scene) -> str:
    return listed(scene.letter(block_id) for block_id in block_ids if scene.content(block_id) >= 0)


def _plural(run: Sequence[Any], one: str, many: str) -> str:
    return one if len(run) == 1 else many


@_tells(ev.EngineStarted)
def _engine_started(run: Sequence[ev.EngineStarted], scene: Scene) -> str:
    blocks, null_block = counted(run[0].num_blocks, "block"), run[0].null_block
    if null_block < 0:
        return f"The engine is empty: {blocks}, all of them free."
    return f"The engine is empty: {blocks}, free but for {block_name(null_block)}, set aside as the null block."


@_tells(ev.StepStarted)
def _step_started(run: Sequence[ev.StepStarted], scene: Scene) -> str:
    return f"Step {run[0].step} begins: whose turn is it, and are there blocks for it?"


@_tells(ev.StepEnded)
def _step_ended(run: Sequence[ev.StepEnded], scene: Scene) -> str:
    used, peak, _, lost = scene.score
    told = f"Step {run[0].step} is over: {counted(used, 'block')} used."
    if lost:
        return f"{told} No look-up finds {lost} of them any more."
    return f"{told} Within the step it was {peak}." if peak > used else told


@_tells(ev.StepFailed)
def _step_failed(run: Sequence[ev.StepFailed], scene: Scene) -> str:
    failed = run[0]
    error = f"{readable(failed.error)} in {readable(failed.method)}: {readable(failed.message, 200)}"
    return f"Step {failed.step} fails here. {error}. This is what was held at that moment."


@_tells(ev.StepRolledBack)
def _step_rolled_back(run: Sequence[ev.StepRolledBack], scene: Scene) -> str:
    return f"Step {run[0].step} was broken off ({readable(run[0].reason)}) and undone: all is as it was before it."


@_tells(ev.RequestAdded)
def _request_added(run: Sequence[ev.RequestAdded], scene: Scene) -> str:
    names = listed(request_name(event.request_id) for event in run)
    sizes = sorted({len(event.token_ids) for event in run})
    tokens = counted(sizes[0], "token") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} tokens"
    verb, each = _plural(run, "waits", "wait"), _plural(run, "", " each")
    return f"{names} {verb} in line{_behind(run, scene)} with {tokens}{each}, and no blocks yet."


def _behind(run: Sequence[ev.RequestAdded], scene: Scene) -> str:
    requests = scene.fold.requests.items()
    earlier = [i for i, request in requests if request.status in ("waiting", "preempted") and i < run[0].request_id]
    return f" behind {listed(map(request_name, earlier))}," if earlier else ""


@_tells(ev.PrefixHit)
def _prefix_hit(run: Sequence[ev.PrefixHit], scene: Scene) -> str:
    name = request_name(run[0].request_id)
    if not run[0].num_tokens:
        return f"{name} looks its prompt up in the hash map and finds nothing: all of it must be computed."
    ids = dict.fromkeys(i for group in run[0].block_ids for i in group if i != scene.fold.null_block)
    blocks, tokens = listed(map(block_name, ids)), counted(run[0].num_tokens, "token")
    return f"{name} finds its first {tokens} in the cache, in {blocks}: no need to compute them."


@_tells(ev.RequestScheduled)
def _request_scheduled(run: Sequence[ev.RequestScheduled], scene: Scene) -> str:
    event = run[0]
    name, last = request_name(event.request_id), event.start + event.num_tokens - 1
    if event.num_tokens == 1:
        return f"{name} will compute the token at position {event.start} in this step."
    return f"{name} will compute its tokens {event.start} to {last} in this step."


@_tells(ev.RequestPreempted)
def _request_preempted(run: Sequence[ev.RequestPreempted], scene: Scene) -> str:
    return f"There is no room for {request_name(run[0].request_id)}: it gave its blocks back, and waits to start over."


@_tells(ev.RequestFinished)
def _request_finished(run: Sequence[ev.RequestFinished], scene: Scene) -> str:
    reason = _FINISH_REASONS.get(run[0].reason, readable(run[0].reason))
    return f"{request_name(run[0].request_id)} is finished: {reason}."


@_tells(ev.RequestForgotten)
def _request_forgotten(run: Sequence[ev.RequestForgotten], scene: Scene) -> str:
    names = listed(request_name(event.request_id) for event in run)
    are, their = _plural(run, "is", "are"), _plural(run, "its", "their")
    return f"{names} had finished, and {are} kept no longer: newer requests have taken {their} place."


@_tells(ev.BlockEvicted)
def _block_evicted(run: Sequence[ev.BlockEvicted], scene: Scene) -> str:
    why = {
        "reset": _plural(run, "is emptied", "are emptied"),
        "replaced": _plural(run, "has grown", "have grown"),
        "distrusted": "cannot be trusted after a broken step",
    }.get(run[0].reason, _plural(run, "is needed anew", "are needed anew"))
    return f"{_blocks(run)} {why}: what {_plural(run, 'it', 'they')} held is forgotten, in the hash map too."


@_tells(ev.BlockAllocated)
def _block_allocated(run: Sequence[ev.BlockAllocated], scene: Scene) -> str:
    blocks = "a block" if len(run) == 1 else f"{len(run)} blocks"
    name = request_name(run[0].request_id)
    return f"{name} takes {blocks} from the front of the free queue{_for_group(run[0], scene)}: {_blocks(run)}."


@_tells(ev.BlocksSkipped)
def _blocks_skipped(run: Sequence[ev.BlocksSkipped], scene: Scene) -> str:
    event = run[0]
    first = "first block lies" if event.num_blocks == 1 else f"first {event.num_blocks} blocks lie"
    name, group = request_name(event.request_id), group_name(scene.fold.groups, event.group)
    return f"{name}'s {first} outside the {group}'s window: nobody will read there, so its table begins with null."


@_tells(ev.BlockTouched)
def _block_touched(run: Sequence[ev.BlockTouched], scene: Scene) -> str:
    name, woken = request_name(run[0].request_id), [event for event in run if event.ref_count == 1]
    doubled = [event for event in run if _is_elsewhere(event, scene)]
    if doubled:
        where, has = group_name(scene.fold.groups, run[0].group), _plural(doubled, "has it", "has them")
        one = _plural(doubled, "one block, two tables", "each stands in two tables")
        return f"{name} takes {_blocks(doubled)} for the {where}, but another of its groups {has}: {one}!"
    if len(woken) == len(run):
        return f"{name} takes {_blocks(run)} back out of the free queue{_for_group(run[0], scene)}, content and all."
    if len(run) == 1:
        return f"{name} shares {_blocks(run)}: {run[0].ref_count} requests hold it now."
    return f"{name} shares {_blocks(run)}: each is held by one request more."


def _is_elsewhere(event: ev.BlockTouched, scene: Scene) -> bool:
    """True when another group of the same request holds the block as well."""
    tables = scene.fold.requests[event.request_id].block_tables
    return any(event.block_id in table for group, table in enumerate(tables) if group != event.group)


def _for_group(event: ev.BlockAllocated | ev.BlockTouched, scene: Scene) -> str:
    return f" for the {group_name(scene.fold.groups, event.group)}" if len(scene.fold.groups) > 1 else ""


@_tells(ev.ExternalHit)
def _external_hit(run: Sequence[ev.ExternalHit], scene: Scene) -> str:
    name, tokens = request_name(run[0].request_id), counted(run[0].num_tokens, "token")
    if run[0].is_loading:
        return f"The external tier holds {name}'s next {tokens}: {name} waits until they are there."
    return f"The external tier holds {name}'s next {tokens}: no need to compute them either."


@_tells(ev.BlocksLoaded)
def _blocks_loaded(run: Sequence[ev.BlocksLoaded], scene: Scene) -> str:
    ids = [block_id for _, _, block_id, _ in run[0].transfers]
    blocks = listed(map(block_name, dict.fromkeys(ids)))
    name = request_name(run[0].request_id)
    return f"Keys and values come from the external tier into {blocks}, for {name}{_who_reads_on(ids, scene)}."


def _who_reads_on(ids: Sequence[int], scene: Scene) -> str:
    doubled = [i for i in dict.fromkeys(ids) if len(scene.groups_of(i)) > 1]
    if not doubled:
        return ""
    return f"; {listed(map(block_name, doubled))} {_plural(doubled, 'stands', 'stand')} in another group's table too"


@_tells(ev.BlocksSaved)
def _blocks_saved(run: Sequence[ev.BlocksSaved], scene: Scene) -> str:
    blocks = listed(block_name(block_id) for _, _, block_id, _ in run[0].transfers)
    return f"{request_name(run[0].request_id)}'s full {blocks} are copied to the external tier."


@_tells(ev.LoadFailed)
def _load_failed(run: Sequence[ev.LoadFailed], scene: Scene) -> str:
    name = request_name(run[0].request_id)
    return f"The external tier could not deliver ({readable(run[0].reason)}): {name} will compute it instead."


@_tells(ev.PrefixCacheReset)
def _prefix_cache_reset(run: Sequence[ev.PrefixCacheReset], scene: Scene) -> str:
    return "The hash map is emptied: whatever was cached is not trusted any more."


@_tells(ev.ViolationFound)
def _violation_found(run: Sequence[ev.ViolationFound], scene: Scene) -> str:
    more = f" (and {len(run) - 1} more)" if len(run) > 1 else ""
    return f"A rule is broken: {readable(run[0].message, 200)}{more}."


@_tells(ev.SlotsWritten)
def _slots_written(run: Sequence[ev.SlotsWritten], scene: Scene) -> str:
    event = run[0]
    ids = [block_id for block_id, _, _ in event.runs]
    if misplaced := scene.misplaced(event):
        position, slot, right_slot = misplaced[0]
        whose = f"{request_name(event.request_id)}'s key and value of position {position}"
        return f"{whose} go to slot {slot}; slot {right_slot}, where they will be looked for, stays empty!"
    told = f"{request_name(event.request_id)}'s keys and values are written into {listed(map(block_name, ids))}"
    twins = scene.twins(ids) if scene.num_blocks <= MAX_BLOCKS_WITH_TEXT else {}
    if not twins:
        return told + "."
    others = listed(block_name(twins[i]) for i in ids if i in twins)
    were = "was" if len(twins) == 1 else "were"
    return f"{told}. {_contents(twins, scene)} {were} in {others} already: computed twice."


@_tells(ev.ForwardRan)
def _forward_ran(run: Sequence[ev.ForwardRan], scene: Scene) -> str:
    tokens, requests = counted(run[0].num_tokens, "token"), counted(run[0].num_requests, "request")
    return f"The model has run once, over {tokens} of {requests}."


@_tells(ev.TokensComputed)
def _tokens_computed(run: Sequence[ev.TokensComputed], scene: Scene) -> str:
    told = [f"{request_name(event.request_id)}'s first {event.num_computed_tokens}" for event in run]
    return f"Keys and values are computed for {listed(told)} tokens."


@_tells(ev.BlockCached)
def _block_cached(run: Sequence[ev.BlockCached], scene: Scene) -> str:
    contents, name = _contents([event.block_id for event in run], scene), request_name(run[0].request_id)
    told = f"{name}'s {_blocks(run)} {_plural(run, 'is', 'are')} full"
    if not any(event.mapped for event in run):
        return f"{told}, but {contents} stays out of the map: no look-up finds {_plural(run, 'it', 'them')}."
    keys = {(event.group, event.block_hash) for event in run}
    if lost := [i for i in sorted(scene.lost) if not keys.isdisjoint(scene.fold.block_keys[i])]:
        names, are, them = listed(map(block_name, lost)), _plural(lost, "is", "are"), _plural(lost, "it", "them")
        return f"{name}'s hash {contents} overwrites the map's entry: {names} {are} alive, and no look-up finds {them}."
    first = [event.mapped[0] for event in run if event.mapped and event.mapped[0] != event.block_id]
    if len(first) == len(run):
        return f"{told} too, but a look-up for {contents} is served with {listed(map(block_name, first))} first."
    return f"{told}: {contents} {_plural(run, 'goes', 'go')} into the map, for others to find."


@_tells(ev.BlockMerged)
def _block_merged(run: Sequence[ev.BlockMerged | ev.BlockFreed], scene: Scene) -> str:
    merged = [event for event in run if isinstance(event, ev.BlockMerged)]
    name, copies = request_name(merged[0].request_id), _blocks(merged)
    kept = listed(block_name(event.into_block_id) for event in merged)
    are, them = _plural(merged, "is", "are"), _plural(merged, "it", "them")
    is_freed = any(isinstance(event, ev.BlockFreed) for event in run)
    end = f"{_plural(merged, 'goes', 'go')} back" if is_freed else f"{are} not needed"
    return f"{kept} {are} alive and equal: {name} points at {them}; {copies} {end}."


@_tells(ev.BlockFreed)
def _block_freed(freed: Sequence[ev.BlockFreed | ev.BlockMerged], scene: Scene) -> str:
    """Of the frees alone: a part may free a copy before its merge, and both are told together."""
    run = [event for event in freed if isinstance(event, ev.BlockFreed)]
    free = [event for event in run if event.queue_end is not None]
    why = {"window": " (outside the window now)", "preempted": " (no room)"}.get(run[0].reason, "")
    told = f"{request_name(run[0].request_id)} lets go of {_blocks(run)}{why}"
    if not free:
        return f"{told}; others still hold {_plural(run, 'it', 'them')}."
    which = block_name(free[0].block_id) if len(free) == 1 else f"{len(free)} of them"
    if len(free) == len(run):
        which = {1: "it", 2: "both"}.get(len(run), "all")
    full = [event for event in free if scene.fold.block_keys[event.block_id]]
    kept = ", content kept" if len(full) == len(free) else ", and the full ones keep their content" if full else ""
    return f"{told}; {which} {_queue_ends(free)}{kept}."


def _queue_ends(free: Sequence[ev.BlockFreed]) -> str:
    one = len(free) == 1
    ends = {event.queue_end for event in free}
    if ends == {"head"}:
        return f"{'goes' if one else 'go'} to the front of the free queue, to be used next"
    if ends == {"tail"}:
        return f"{'joins' if one else 'join'} the end of the free queue"
    return "join the free queue, those without content at its front"


@_tells(ev.TokenSampled)
def _token_sampled(run: Sequence[ev.TokenSampled], scene: Scene) -> str:
    event = run[0]
    text = readable(scene.token_text(event.token_id), 40)
    text = text.strip() or text
    return f"{request_name(event.request_id)}'s next token is “{text}”: it has no keys and values yet."
