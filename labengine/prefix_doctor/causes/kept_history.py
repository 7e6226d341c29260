"""Traffic whose conversations keep their earlier text as it was."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

from labengine.prefix_doctor.causes.content import TOKEN, Content, packed
from labengine.prefix_doctor.causes.conversations import Conversations
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic


def with_history_kept(traffic: Traffic) -> Traffic:
    """Return the traffic with each conversation's earlier text as its prompt before had it; what was cut comes back."""
    return replace(traffic, read=lambda: _read(traffic))


def _read(traffic: Traffic) -> Iterator[Prompt]:
    content = Content()
    conversations = Conversations(content)
    for number, prompt in enumerate(traffic):
        data, key = packed(prompt.token_ids, prompt.images), hash(prompt.extra_keys)
        kept = data if prompt.images else _kept(conversations, content, number, prompt, data)
        again = content.add(number, kept + packed(prompt.answer), 0, key)
        conversations.remember(number, len(kept) // TOKEN, prompt.session, again)
        same = kept == data
        yield prompt if same else replace(prompt, token_ids=array("i", kept).tolist(), message_starts=())


def _kept(conversations: Conversations, content: Content, number: int, prompt: Prompt, data: bytes) -> bytes:
    """Return a prompt with the whole text of the one that it continues, and what is new behind it."""
    again = content.search(data, 0, hash(prompt.extra_keys))
    one = conversations.continued(number, prompt.session, data, again) if again else None
    return data if one is None else one.other[: TOKEN * one.its_end] + data[TOKEN * one.end :]
