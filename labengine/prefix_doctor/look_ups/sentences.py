"""Why a request hit or missed, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.prefix_doctor.look_ups.content import LostContent
from labengine.prefix_doctor.look_ups.examine import Examination
from labengine.prefix_doctor.look_ups.look_up import MAX_NAME, LookUp, MissedTokens
from labengine.record.wording import counted, group_name, joined, readable

NUM_BEFORE, NUM_AFTER = 8, 4
"""Tokens shown before and after the place where two prompts diverge."""

MAX_TEXT = 60


@dataclass(frozen=True)
class Sentences:
    """Words for the look-ups of one examination."""

    examination: Examination

    def sentence(self, one: LookUp) -> str:
        """Return why a look-up hit or missed."""
        again = "admitted again: " if not one.is_first else ""
        hit = f"hit {one.num_hit:,} of {counted(one.num_tokens, 'token')}" if one.num_hit else "missed"
        external = f", {one.num_external:,} more in the external tier" if one.num_external else ""
        return f"{again}{hit}{external}: {self._why(one)}"

    def outline(self, request_id: int, num_tokens: int) -> str:
        """Return the first and the last of a request's first num_tokens tokens as text; empty if unknown."""
        if not self.examination.sequences.has_tokens:
            return ""
        if num_tokens <= 2 * NUM_BEFORE:
            return self._text(request_id, 0, num_tokens)
        return (
            f"{self._text(request_id, 0, NUM_BEFORE)} … {self._text(request_id, num_tokens - NUM_BEFORE, num_tokens)}"
        )

    # -- one phrase per cause ------------------------------------------------------------------------------------------

    def _why(self, one: LookUp) -> str:
        miss = next((miss for miss in one.misses if miss.cause != "tail"), None)
        unit = self.examination.unit
        if miss is None:
            if one.num_hit + one.num_external:
                return "every complete block before the last token, which is always computed"
            return f"it has no complete block of {unit} before its last token, which is always computed"
        other = "another request" if miss.request_id is None else self._name(miss.request_id)
        tokens = counted(miss.num_tokens, "token")
        match miss.cause:
            case "new":
                return self._diverged(one)
            case "short_of_a_block":
                return f"{self._short(one, miss, other)}; {self._diverged(one)}"
            case "evicted" | "reset":
                assert miss.loss is not None
                return f"{self._tokens(miss)} {self._lost(one, miss.loss)}{self._of_group(miss)}"
            case "not_registered_yet":
                return f"{other} is computing the same {tokens}, which are not registered yet"
            case "never_registered":
                return self._never_registered(one, miss)
            case "other_salt":
                return f"{other} has the same {tokens} under a different salt, adapter or image"
            case "dropped":
                return f"{self._tokens(miss)} were cached: the drafter needs the hidden states of a hit's last block"
            case "passed_over":
                return f"{self._tokens(miss)} were cached, but the engine did not use them"
            case _:
                return self._unknown(one)

    def _short(self, one: LookUp, miss: MissedTokens, other: str) -> str:
        unit, shared = self.examination.unit, f"shares {counted(one.num_shared, 'token')} with {other}"
        if one.num_shared < unit:
            return f"{shared}, less than a block of {unit}"
        return f"{shared}, {miss.num_tokens} of them in a block of {unit} that they do not fill"

    def _diverged(self, one: LookUp) -> str:
        shared, other = one.num_shared, one.shared_with
        if one.moment == self._first_moment:
            return "no request came before it"
        sequences = self.examination.sequences
        if other is None:
            unit = "token" if sequences.has_tokens else "block"
            return f"no earlier request begins with the same {unit}"
        its_tokens, name = sequences.tokens[other], self._name(other)
        if not sequences.has_tokens:
            block = shared // sequences.size
            return f"diverged from {name} in block {block}, in its tokens or its salt (the recording has no tokens)"
        if shared >= len(its_tokens):
            return f"continues after the {counted(shared, 'token')} that {name} has"
        before = self._text(one.request_id, max(0, shared - NUM_BEFORE), shared)
        mine, its = (self._text(i, shared, shared + NUM_AFTER) for i in (one.request_id, other))
        after = f"after “{'…' if shared > NUM_BEFORE else ''}{before}” " if shared else ""
        return f"diverged from {name} at token {shared:,}: {after}it has “{mine}”, {name} has “{its}”"

    @property
    def _first_moment(self) -> int:
        return self.examination.look_ups[0].moment

    def _lost(self, one: LookUp, loss: LostContent) -> str:
        ago = self._ago(one.step, loss.step)
        if loss.reason == "reset":
            return f"were forgotten {ago}: the cache was reset"
        if loss.reason == "distrusted":
            return f"were forgotten {ago}: a step that failed may have overwritten them"
        if loss.reason == "replaced":
            return f"were replaced {ago} by a longer prefix in the same block"
        by = "" if loss.request_id is None else f" by {self._whose(one, loss)}"
        return f"were evicted {ago}{by}"

    def _whose(self, one: LookUp, loss: LostContent) -> str:
        assert loss.request_id is not None
        whose = "its own" if loss.request_id == one.request_id else f"{self._name(loss.request_id)}'s"
        return f"{whose} {'prefill' if loss.is_prefill else 'decode'}"

    def _ago(self, now: int, then: int) -> str:
        times = self.examination.recording.times
        if now == then:
            return "in the same step"
        seconds = f" ({_seconds(times[now] - times[then])})" if now in times and then in times else ""
        return f"{counted(now - then, 'step')} ago{seconds}"

    def _never_registered(self, one: LookUp, miss: MissedTokens) -> str:
        assert miss.request_id is not None
        name, unit = self._name(miss.request_id), self.examination.unit
        tokens = counted(miss.num_tokens, "token")
        group = self.examination.groups[miss.group or 0]
        if group.kind == "sliding_window":
            kind = group_name(self.examination.groups, miss.group or 0)
            return (
                f"{name} had the same {tokens}, but the {kind} does not register all the blocks that a hit there needs"
            )
        if group.kind == "state":
            kind = group_name(self.examination.groups, miss.group or 0)
            whose = "it" if miss.request_id == one.request_id else name
            return f"{whose} had {self._tokens(miss)} before, but the {kind} kept no state at their end"
        if miss.request_id == one.request_id:
            return f"its {self._tokens(miss)} were not registered before it was preempted"
        if len(self.examination.sequences.tokens[miss.request_id]) == miss.start // unit * unit + unit:
            return f"{name} ended before its last token was computed, so the block was never full"
        return f"{name} had the same tokens, but gave up its blocks before they were registered"

    def _unknown(self, one: LookUp) -> str:
        known = "no request since the recording began has the same first token"
        if one.shared_with is not None:
            known = f"the longest prefix known is {counted(one.num_shared, 'token')}, of {self._name(one.shared_with)}"
        return f"unknown: {known}, and what was cached and evicted earlier is not recorded"

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _name(self, request_id: int) -> str:
        return readable(self.examination.recording.name_of(request_id), MAX_NAME)

    def _tokens(self, miss: MissedTokens) -> str:
        return f"tokens {miss.start:,} to {miss.end - 1:,}"

    def _of_group(self, miss: MissedTokens) -> str:
        groups = self.examination.groups
        return f" ({group_name(groups, miss.group or 0)})" if len(groups) > 1 else ""

    def _text(self, request_id: int, start: int, end: int) -> str:
        tokens = self.examination.sequences.tokens[request_id][start:end]
        token_text = self.examination.recording.token_text or str
        return readable(joined([token_text(token) for token in tokens]).strip(" "), MAX_TEXT)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
