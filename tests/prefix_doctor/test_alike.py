"""Look-ups that went alike are printed once: of one cause, diverged behind the same prefix."""

from __future__ import annotations

import labengine

RULES, OTHER = list(range(1, 9)), list(range(11, 19))


def test_hundreds_of_requests_are_a_few_lines() -> None:
    lab = labengine.Lab("simulated", num_blocks=64, block_size=4)
    for number in range(100):
        tokens = [1000 + 10 * number + place for place in range(6)]
        for prompt in ([*RULES, *tokens], [*OTHER, number % 3, *tokens], tokens, RULES + RULES):
            lab.generate([prompt], max_tokens=1)
    found = labengine.doctor(lab)
    assert sum(map(len, found.groups)) == len(found.look_ups) == 400
    kinds = [{one.request_id % 4 for one in alike[3:]} for alike in found.groups if len(alike) > 50]
    assert sorted(kinds, key=min) == [{0}, {1}, {2}, {3}], "two prefixes, prompts without one, and whole hits"
    assert len(found.groups) <= 8 and found.num_hidden == 0
    text, page = repr(found), found._repr_html_()
    assert len(text.splitlines()) < 30 and all(" more like it (" in one for one in (text, page))
