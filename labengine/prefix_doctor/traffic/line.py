"""One line of a prompts file: its fields, before its texts are tokens.

| key | meaning |
|---|---|
| `prompt` | a text, or a list of token ids; also `prompt_token_ids`, `input_ids` |
| `messages` | a chat: `[{"role": ..., "content": ...}]`, with `tools` and `system` if the request has them |
| `body`, `request` | an object with these keys, as in OpenAI's batch files |
| `time`, `timestamp` | arrival: seconds (since 1970 also in ms, µs or ns), or ISO 8601 |
| `output_tokens` | number of generated tokens |
| `max_tokens`, `max_completion_tokens` | their limit, used as their number if nothing else is known |
| `output`, `answer`, `response`, `completion` | the answer: a text, token ids, or a response of OpenAI's API |
| `cache_salt` | vLLM's salt: only prompts with the same one share blocks |
| `lora`, `adapter` | the adapter |
| `tenant`, `user` | whose prompt it is |
| `session`, `session_id`, `conversation_id` | its conversation |
| `replica` | the replica that served it: a number or a name |
| `priority` | a whole number; smaller is more urgent |
| `id`, `custom_id`, `request_id` | its name |

Other keys are ignored, and so is a key whose value is null.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite
from typing import Any

from labengine.config import MAX_PRIORITY, ConfigError, checked_int, checked_text, checked_token_ids, shown
from labengine.core.request import ExtraKeys
from labengine.engine.request_options import salted
from labengine.prefix_doctor.traffic.prompt import Prompt

Fields = dict[str, Any]
Message = dict[str, Any]

MAX_ANSWER = 10_000_000
MAX_REPLICAS = 1024
MAX_NAME = 200
_LATEST_S = 1e11
"""Larger times since 1970 are in milliseconds, microseconds or nanoseconds."""
_PASSED_ON = ("name", "tool_call_id", "reasoning_content")
"""Keys of a message that chat templates read, besides its role, content and tool calls."""


@dataclass(slots=True)
class Line:
    """A line's prompt, whose token_ids, answer and message_starts follow from the texts here.

    text, chat: the prompt, unless it is given as ids. answer_text: empty if the answer's text is unknown. time: in
    seconds. is_limit: True if num_answer is only the limit of the answer. why_bad: set if the texts cannot be encoded.
    """

    number: int
    prompt: Prompt
    text: str | None = None
    chat: list[Message] | None = None
    tools: list[Any] | None = None
    answer_text: str = ""
    time: float | None = None
    replica: int | str | None = None
    is_limit: bool = False
    has_images: bool = False
    why_bad: str = field(default="", compare=False)


def line_of(number: int, found: Fields) -> Line:
    """Return the line of a JSON object. Raises ValueError for one without a usable prompt."""
    fields = found
    for name in ("body", "request"):
        if isinstance(found.get(name), dict):
            fields = {**found, **found[name]}
    line = Line(number, _prompt(number, fields))
    _read_prompt(line, fields)
    _read_answer(line, fields)
    if (time := _first(fields, "time", "timestamp")) is not None:
        line.time = seconds_of(time)
    if (replica := fields.get("replica")) is not None:
        line.replica = replica if isinstance(replica, str) else checked_int("replica", replica, 0, MAX_REPLICAS - 1)
    return line


def seconds_of(time: object) -> float:
    """Return a time in seconds. Raises ConfigError for anything but a finite number or ISO 8601."""
    try:
        seconds = _number_or_date(time)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"a time must be a number of seconds or ISO 8601, got {shown(time)}") from None
    while seconds > _LATEST_S:
        seconds /= 1000
    return seconds


def _number_or_date(time: Any) -> float:
    if isinstance(time, bool):
        raise TypeError
    try:
        seconds = float(time)
    except ValueError:
        date = datetime.fromisoformat(time)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not isfinite(seconds):
        raise ValueError
    return seconds


def _prompt(number: int, fields: Fields) -> Prompt:
    return Prompt(
        label(_first(fields, "id", "custom_id", "request_id")) or f"line {number}",
        (),
        extra_keys=_extra_keys(fields),
        tenant=label(_first(fields, "tenant", "user")),
        session=label(_first(fields, "session", "session_id", "conversation_id")),
        priority=checked_int("priority", _first(fields, "priority") or 0, -MAX_PRIORITY, MAX_PRIORITY),
    )


def _extra_keys(fields: Fields) -> ExtraKeys:
    adapter = label(_first(fields, "lora", "adapter"))
    return salted((("lora", adapter),) if adapter else (), fields.get("cache_salt"))


def label(value: Any) -> str:
    """Return a name of any JSON type as text; empty for None."""
    if value is None:
        return ""
    return (value if isinstance(value, str) else json.dumps(value))[:MAX_NAME]


def _first(fields: Fields, *names: str) -> Any:
    for name in names:
        if (value := fields.get(name)) is not None:
            return value
    return None


# -- the prompt --------------------------------------------------------------------------------------------------------


def _read_prompt(line: Line, fields: Fields) -> None:
    prompt = _first(fields, "prompt_token_ids", "input_ids", "prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        line.text = checked_text("a prompt", prompt)
    elif prompt is not None:
        line.prompt.token_ids = checked_token_ids(prompt)
    elif fields.get("messages") is not None:
        _read_chat(line, fields)
    else:
        raise ConfigError(f"it has neither prompt nor messages, but {shown(list(fields))}")
    if not (line.text or line.chat or line.prompt.token_ids):
        raise ConfigError("its prompt is empty")


def _read_chat(line: Line, fields: Fields) -> None:
    messages, system, tools = fields["messages"], fields.get("system"), fields.get("tools")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise ConfigError(f"messages must be a list of objects, got {shown(messages)}")
    if system is not None:
        messages = [{"role": "system", "content": system}, *messages]
    line.chat = [_message(line, one) for one in messages]
    line.tools = tools if isinstance(tools, list) and tools else None


def _message(line: Line, message: Message) -> Message:
    found = {
        "role": checked_text("a message's role", message.get("role")),
        "content": checked_text("a message's content", _content(line, message.get("content"))),
        **{name: message[name] for name in _PASSED_ON if isinstance(message.get(name), str)},
    }
    calls = message.get("tool_calls")
    return {**found, "tool_calls": [_call(one) for one in calls]} if isinstance(calls, list) and calls else found


def _content(line: Line, content: Any) -> Any:
    """Return a message's text; of a list of parts, their texts, and a name for each picture."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    return "\n".join(_part(line, one) for one in content)


def _part(line: Line, part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    line.has_images = True
    kind = part.get("type") if isinstance(part, dict) else None
    word = "picture" if kind in ("image_url", "image", "input_image") else "attachment"
    return f"<{word} {sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]}>"


def _call(call: Any) -> Any:
    """Return a tool call with its arguments as an object, as chat templates expect them."""
    try:
        function = call["function"]
        return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}
    except (LookupError, TypeError, ValueError, RecursionError):
        return call


# -- the answer --------------------------------------------------------------------------------------------------------


def _read_answer(line: Line, fields: Fields) -> None:
    answer = _said(_first(fields, "output", "answer", "response", "completion", "outputs"))
    number, limit = _first(fields, "output_tokens"), _first(fields, "max_tokens", "max_completion_tokens")
    if isinstance(answer, str):
        line.answer_text = checked_text("an answer", answer)
    elif isinstance(answer, list) and answer:
        line.prompt.answer = checked_token_ids(answer)
    if number is not None:
        line.prompt.num_answer = max(1, checked_int("output_tokens", number, 0, MAX_ANSWER))
    elif line.prompt.answer:
        line.prompt.num_answer = len(line.prompt.answer)
    elif limit is not None and not line.answer_text:
        line.prompt.num_answer, line.is_limit = max(1, checked_int("max_tokens", limit, 0, MAX_ANSWER)), True
    else:
        line.prompt.num_answer = 0


def _said(answer: Any) -> Any:
    """Return the text or the ids of an answer, also of a response of OpenAI's API or of an output of vLLM."""
    for _ in range(6):
        if isinstance(answer, dict):
            answer = _first(answer, "body", "choices", "message", "token_ids", "content", "text")
        elif isinstance(answer, list) and answer and not isinstance(answer[0], int):
            answer = answer[0]
    return answer
