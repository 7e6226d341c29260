"""Files of prompts and traces of hashes: each field, damage, and both parsers of JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from labengine.config import ConfigError
from labengine.engine.sources import model_path
from labengine.engine.tokenizer import HuggingFaceTokenizer
from labengine.prefix_doctor.traffic import json_lines, line
from labengine.prefix_doctor.traffic.encoding import WordPieces
from labengine.prefix_doctor.traffic.prompt import Prompt
from labengine.prefix_doctor.traffic.sources import FileTraffic
from recorded_engines import traffic_in

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where are the maps?"}]
GOOD = b'{"prompt": [1, 2, 3]}'


@pytest.fixture(scope="module")
def model() -> Path:
    return model_path("smollm2")


def written(folder: Path, *lines: dict[str, Any] | bytes, end: bytes = b"\n") -> Path:
    path = folder / "prompts"
    path.write_bytes(end.join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines) + end)
    return path


def read(path: Path, **options: Any) -> tuple[list[Prompt], list[str], FileTraffic]:
    traffic = traffic_in(path, **options)
    assert isinstance(traffic, FileTraffic)
    prompts = list(traffic)
    assert traffic.share_read() == 1
    return prompts, list(traffic.notes), traffic


def spelled(prompt: Prompt, traffic: FileTraffic) -> str:
    assert traffic.token_text is not None
    return "".join(map(traffic.token_text, prompt.token_ids))


def test_every_field_reaches_its_prompt(tmp_path: Path) -> None:
    prompts, notes, traffic = read(
        written(
            tmp_path,
            {"prompt": "Hello world!", "time": 1_700_000_000_000, "output_tokens": 9, "user": 5, "session": "s"},
            {"prompt_token_ids": [7, 8], "timestamp": "2023-11-14T22:13:22Z", "answer": [9, 9], "replica": "b"},
            {"prompt": ["one"], "max_tokens": 4, "cache_salt": "x", "adapter": "y", "priority": -3, "id": "me"},
            {"custom_id": "c", "body": {"messages": CHAT, "tools": [{"name": "f"}]}, "replica": "a", "output": "Yes."},
            {"prompt": [1], "time": "2023-11-14T22:13:21", "response": {"choices": [{"message": {"content": "Hi"}}]}},
        )
    )
    first, second, third, chat, last = prompts
    assert spelled(first, traffic) == "Hello world!" and (first.num_answer, first.tenant, first.session) == (
        9,
        "5",
        "s",
    )
    assert second.token_ids == [7, 8] and second.answer == [9, 9] and second.num_answer == 2
    assert [one.arrival for one in prompts] == [0, 2, 2, 2, 2]
    assert third.extra_keys == (("lora", "y"), ("cache_salt", "x")) and (third.priority, third.name) == (-3, "me")
    assert [second.replica, third.replica, chat.replica] == [0, None, 1] and chat.name == "c"
    parts = [chat.token_ids[a:b] for a, b in zip(chat.message_starts, (*chat.message_starts[1:], None), strict=True)]
    assert ["kind" in "".join(map(traffic.token_text or str, part)) for part in parts] == [True, False]
    assert len(last.answer) == last.num_answer == 1
    assert [note.split()[0] for note in notes] == ["Without", "2", "Times", "1", "Replicas"]
    again = list(traffic)
    assert again == prompts and traffic.notes == notes
    next(iter(traffic))
    assert list(traffic) == prompts and traffic.notes == notes, "a reading that was given up changes nothing"


@pytest.mark.parametrize(
    ("lines", "num_prompts", "note"),
    [
        ([GOOD, GOOD[:-3]], 1, "left out; the first is line 2"),
        ([b"\xef\xbb\xbf" + GOOD, b"", GOOD + b"\r"], 2, ""),
        ([GOOD, b"\0\0\0", GOOD], 2, "line 2"),
        ([GOOD, b'{"prompt": "\xff"}', GOOD], 2, "line 2"),
        ([GOOD, b"[" * 100_000, GOOD], 2, "line 2"),
        (
            [GOOD, b'{"prompt": "x", "tools": ["\\ud83d"]}', GOOD, b'{"prompt": "\\uD83D\\uDE00"}'],
            3,
            "line 2: it is not",
        ),
        ([GOOD, b'{"prompt": [1, -2]}', GOOD], 2, "non-negative integer, got -2"),
        ([GOOD, b'{"prompt": [1, 2.0]}', GOOD], 2, "got 2.0"),
        ([GOOD, b'{"prompt": [true]}', GOOD], 2, "got True"),
        ([GOOD, b'{"prompt": [99999999999999999999]}', GOOD], 2, "non-negative integer"),
        ([GOOD, b'{"prompt": "x", "time": 1e999}', GOOD], 2, "line 2"),
        ([GOOD, b'{"prompt": "x", "time": NaN}', GOOD], 2, "line 2"),
        ([GOOD, b'{"prompt": "x", "time": "noon"}', GOOD], 2, "ISO 8601, got 'noon'"),
        ([GOOD, b'{"prompt": "x", "max_tokens": -1}', GOOD], 2, "max_tokens must be at least 0"),
        ([GOOD, b'{"messages": [{"role": "user", "content": 5}]}', GOOD], 2, "content must be a string"),
        ([GOOD, b'{"prompt": ""}', b"7", GOOD, GOOD], 3, "2 lines left out; the first is line 2: its prompt is empty"),
        ([b"[" + GOOD + b",", GOOD + b"]"], 2, ""),
    ],
)
@pytest.mark.parametrize("is_fast", [True, False])
def test_damaged_lines_are_left_out(
    tmp_path: Path, lines: list[bytes], num_prompts: int, note: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_fast:
        monkeypatch.setattr(json_lines, "_loads", json_lines._with_json)
    prompts, notes, _ = read(written(tmp_path, *lines))
    assert len(prompts) == num_prompts
    assert note in " ".join(notes)


def test_files_that_end_early_are_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(GOOD + b"\n" + GOOD[:-4])
    prompts, notes, _ = read(path)
    assert len(prompts) == 1 and "in the middle of line 2" in notes[-2]
    packed = gzip.compress(b"\n".join([GOOD] * 1000))
    path.write_bytes(packed)
    assert len(read(path)[0]) == 1000
    path.write_bytes(packed[:-9])
    prompts, notes, _ = read(path)
    assert len(prompts) > 900 and any("damaged or cut off" in note for note in notes)


def test_a_line_that_is_too_long_never_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 1 << 20)
    long = b'{"prompt": "' + b"x" * (3 << 20) + b'"}'
    prompts, notes, _ = read(written(tmp_path, GOOD, long, GOOD))
    assert [one.name for one in prompts] == ["line 1", "line 3"] and "line 2: it has more than 1 MiB" in notes[0]
    with pytest.raises(ConfigError, match=r"jq -c '.\[\]'"):
        read(written(tmp_path, b"[" + long + b"]"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "has no prompts"),
        (b"\n \n", "has no prompts"),
        (b"hello\n" * 3, "none of its first 3 lines can be used .line 1: it is not JSON"),
        (GOOD + b"\n" + b"[]\n" * 2, "2 of its first 3 lines"),
        (b'{"x": 1}\n' * 3000, "none of its first 101 lines can be used .*neither prompt nor messages"),
        (b'{"prompt": "a"}'.decode().encode("utf-16"), "is in UTF-16"),
        (b'[{"prompt": [1]}', "array that cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        read(path)


def test_missing_files_folders_and_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        traffic_in(tmp_path / "missing.jsonl")
    with pytest.raises(ConfigError, match="no stream in"):
        traffic_in(tmp_path)
    with pytest.raises(ConfigError, match="has no tokenizer"):
        traffic_in(written(tmp_path, GOOD), tokenizer=tmp_path)


def test_pieces_of_words_spell_the_text() -> None:
    text = "Über  alles:\n\n\tdef f(x_1):  return 12345.6 # 前缀缓存\r\n __init__ 'naïve'   "
    pieces = WordPieces()
    assert "".join(map(pieces.token_text, pieces._encoded(text))) == text


# -- traces of hashes --------------------------------------------------------------------------------------------------


def test_equal_hashes_are_equal_tokens(tmp_path: Path) -> None:
    """The two lines of Mooncake's README."""
    shared = list(range(46, 58))
    lines = [
        {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [*shared, 2353, 2354]},
        {"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [*shared, 2366]},
    ]
    (one, other), notes, traffic = read(written(tmp_path, *lines, {"input_length": 5, "hash_ids": [1, 2]}))
    assert [len(one.token_ids), len(other.token_ids)] == [6955, 6472]
    assert one.token_ids[:6144] == other.token_ids[:6144] and one.token_ids[6144] != other.token_ids[6144]
    assert len(set(one.token_ids)) == 6955
    assert one.arrival == 0 and other.arrival == pytest.approx(3.053) and one.num_answer == 52
    assert traffic.token_text is None and "line 3: 2 hash_ids do not fit 5 tokens in blocks of" in notes[1]


def test_traces_with_chat_ids_have_seconds_and_smaller_blocks(tmp_path: Path) -> None:
    line = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 40, "hash_ids": [1, 2, 2**64 - 1]}
    bad = line | {"input_length": 20}
    (one, other), _, _ = read(written(tmp_path, bad, line, line | {"timestamp": 3.5, "hash_ids": [1, 2, 4]}))
    assert (one.arrival, other.arrival) == (0, 2)
    assert one.token_ids[:32] == other.token_ids[:32] and set(one.token_ids[32:]).isdisjoint(other.token_ids)


# -- a model's tokenizer -----------------------------------------------------------------------------------------------


def test_a_models_tokens_are_those_of_the_engine(model: Path, tmp_path: Path) -> None:
    ours = HuggingFaceTokenizer(model)
    texts = ["Two people ask, 1234 times: naïve?", "x" * 300]
    longer = [*CHAT, {"role": "assistant", "content": "On the\nleft."}, {"role": "user", "content": "Be kind."}]
    lines = [{"prompt": text, "output": "Yes."} for text in texts] + [{"messages": chat} for chat in (CHAT, longer)]
    prompts, notes, _ = read(written(tmp_path, *lines), tokenizer=model)
    assert [one.token_ids for one in prompts] == [*map(ours.encode, texts), *map(ours.chat, (CHAT, longer))]
    assert prompts[0].answer == ours.encode("Yes.") and not any("--tokenizer" in note for note in notes)
    begin = ours.encode("<|im_start|>")
    for one, chat in zip(prompts[2:], (CHAT, longer), strict=True):
        starts = [place for place, token in enumerate(one.token_ids) if token == begin[0]]
        assert list(one.message_starts) == starts[: len(chat)]


def test_chats_that_the_template_rejects_are_left_out(model: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    template = "{% if messages|length > 1 %}{{ raise_exception('one at a time') }}{% endif %}{{ messages[0].content }}"
    (tmp_path / "chat_template.jinja").write_text(template)
    prompts, notes, _ = read(written(tmp_path, {"messages": CHAT[1:]}, {"messages": CHAT}), tokenizer=tmp_path)
    assert len(prompts) == 1 and "line 2: the model's chat template rejects these messages: one at a time" in notes[0]


def test_the_docs_have_the_table_of_keys() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = [row for row in (line.__doc__ or "").splitlines() if row.startswith("|")]
    assert len(rows) > 10 and "\n".join(rows) in docs
