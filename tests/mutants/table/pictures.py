"""Changes to pictures as keys of their blocks."""

from __future__ import annotations

from mutants.table.mutant import Mutant

CHAIN = "core/hash_chain.py"
REQUEST = "core/request.py"
MANAGER = "core/kv_cache_manager.py"

MUTANTS = (
    Mutant(
        "pictures are hashed without a name",
        "reads",
        CHAIN,
        'return _digest((parent_hash.hex(), *(str(part) for key in keys for part in key)), b"block keys")',
        'return _digest((parent_hash.hex(), *(str(key[0]) for key in keys)), b"block keys")',
    ),
    Mutant(
        "the place of a picture is no key",
        "reads",
        REQUEST,
        '("mm", image.identifier, image.start - start)',
        '("mm", image.identifier, 0)',
    ),
    Mutant(
        "a picture's last token is without its key",
        "reads",
        REQUEST,
        "            if image.start < end and start < image.start + image.length",
        "            if image.start < end and start < image.start + image.length - 1",
    ),
    Mutant(
        "links forget their pictures",
        "reads",
        MANAGER,
        "request.links.append((*token_ids, *keys) if keys else token_ids)",
        "request.links.append(token_ids)",
        "equal hashes of 256 bits mean equal pictures: it takes a hash that collides to tell the two apart",
    ),
)
