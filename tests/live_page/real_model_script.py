"""Run by real_model.js in Pyodide: `given` has the inputs as JSON, and the last value is what was found."""

import json
import time

import labengine
from labengine.events import BlocksLoaded, PrefixHit, RequestPreempted

inputs = json.loads(given)  # noqa: F821 (real_model.js sets it, and import_s)
PROMPTS, TOKENS = inputs["prompts"], inputs["max_tokens"]
found = {}


def lab(**settings):
    return labengine.Lab("smollm2", **{"num_blocks": 64, "block_size": 16, **settings})


def add(to, prompt, **sampling):
    return to.add(prompt, max_tokens=TOKENS, ignore_eos=True, **sampling)


def outputs(of, ids):
    return [list(of.output(request_id).token_ids) for request_id in ids]


def refusal(call):
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def num_events(of, kind):
    return sum(isinstance(event, kind) for event in of.timeline.events())


def one_after_the_other():
    one, ids = lab(), []
    for prompt in PROMPTS:
        ids.append(add(one, prompt))
        one.run()
    found["alone"], found["text"], found["violations"] = outputs(one, ids), one.output(0).text, len(one.violations)
    model = one.session.model
    found["tokens"], found["chat"] = list(map(model.encode, inputs["texts"])), model.tokenizer.chat(inputs["chat"])
    found["refused"] = {
        "auto": refusal(lambda: lab(num_blocks="auto")),
        "large": refusal(lambda: lab(num_blocks=100_000)),
        "dtype": refusal(lambda: lab(dtype="bfloat16")),
        "runner": refusal(lambda: lab(runner=object)),
        "xray": refusal(lambda: one.view("xray", request=0)),
        "layer": refusal(lambda: one.kv(0, 30)),
    }


def all_at_once():
    """In a pool that is too small for all, so that requests are preempted; the last prompt is found again."""
    crowded = lab(num_blocks=26, block_size=4)
    ids = [add(crowded, prompt) for prompt in PROMPTS]
    crowded.run()
    ids.append(add(crowded, PROMPTS[-1]))
    crowded.run()
    found["crowded"] = outputs(crowded, ids)
    found["preempted"], found["hits"] = num_events(crowded, RequestPreempted), num_events(crowded, PrefixHit)
    found["violations"] += len(crowded.violations)


def sampled_twice():
    sampled, found["sampled"] = lab(), []
    for _ in range(2):
        ids = [add(sampled, PROMPTS[0], **sampling) for sampling in inputs["samplings"]]
        sampled.run()
        found["sampled"].append(outputs(sampled, ids))


def forked_and_rewound():
    first = lab(num_blocks=24, block_size=4)
    ids = [add(first, PROMPTS[0])]
    first.step()
    keys, values = first.kv(0, 3)
    found["kv"] = {"shape": keys.shape, "num_bytes": keys.nbytes, "keys": flat(keys), "values": flat(values)}
    first.step()
    fork = first.fork()
    fork.run()
    found["forked"] = outputs(fork, ids)
    found["untouched"] = first.kv(0, 3) == (keys, values) and len(first.output(0).token_ids)
    first.run()
    first.rewind(1)
    first.run()
    found["rewound"] = outputs(first, ids)


def flat(floats):
    return [number for token in floats.tolist() for head in token for number in head]


def to_host_memory_and_back():
    tiered, ids = lab(num_blocks=24, block_size=4, external="host"), []
    for _ in range(2):
        ids.append(add(tiered, PROMPTS[0]))
        tiered.run()
        tiered.reset_prefix_cache()
    found["tiered"], found["loaded"] = outputs(tiered, ids), num_events(tiered, BlocksLoaded)


def merged():
    merging = lab(num_blocks=24, block_size=4)
    for _ in range(2):
        add(merging, PROMPTS[-1])
    merging.step()
    found["used"] = merging.snapshot().num_used_blocks


def long_prompt():
    long, found["computed"] = lab(num_blocks=32), []
    long.add(token_ids=range(200, 500), max_tokens=1)
    for _ in range(2):
        long.step()
        found["computed"].append(long.snapshot().requests[0].num_computed_tokens)


def timed():
    alone = lab()
    alone.add(PROMPTS[0], max_tokens=65, ignore_eos=True)
    times = [time.perf_counter()]
    for act in (alone.step, alone.run):
        act()
        times.append(time.perf_counter())
    found["first_token_s"], found["decode_tok_s"] = times[1] - times[0], 64 / (times[2] - times[1])
    found["import_s"] = import_s  # noqa: F821


for part in (one_after_the_other, all_at_once, sampled_twice, forked_and_rewound, to_host_memory_and_back, merged):
    part()
for _ in range(40):  # pools of 180 MiB: their memory is given back
    lab(num_blocks=256).close()
long_prompt()
timed()
json.dumps(found)
