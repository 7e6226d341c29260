// A request's tokens, appended to and never changed, so that all scenes share them: each knows how many it has.

export class TokenStore {
  ids: number[];
  chains = new Map<number, number[]>();

  constructor(ids: number[]) {
    this.ids = ids;
  }

  // The first `count` tokens, to go another way from there.
  fork(count: number) {
    const other = new TokenStore(this.ids.slice(0, count));
    for (const [size, chain] of this.chains) other.chains.set(size, chain.slice(0, Math.floor(count / size)));
    return other;
  }

  // Names the first (index + 1) * size tokens, or the first `count` if those are fewer, block by block.
  prefixHash(size: number, index: number, count: number) {
    let chain = this.chains.get(size);
    if (!chain) this.chains.set(size, (chain = []));
    if (index < chain.length) return chain[index];
    let hash = chain.length ? chain[chain.length - 1] : 0;
    for (let i = chain.length; i <= index; i++) {
      const end = Math.min(count, (i + 1) * size);
      hash = linked(hash, this.ids, i * size, end);
      if (end === (i + 1) * size) chain.push(hash);
    }
    return hash;
  }
}

// 53 bits: the hash of some tokens after a parent's.
function linked(parent: number, ids: number[], start: number, end: number) {
  let low = (parent >>> 0) ^ 0x9e3779b9,
    high = Math.floor(parent / 0x100000000) ^ (end - start);
  for (let i = start; i < end; i++) {
    low = Math.imul(low ^ ids[i], 0x85ebca6b);
    low ^= low >>> 13;
    high = Math.imul(high ^ ids[i] ^ (low >>> 7), 0xc2b2ae35);
    high ^= high >>> 16;
  }
  low = Math.imul(low ^ (high >>> 5), 0x27d4eb2f);
  return ((high ^ (low >>> 15)) & 0x1fffff) * 0x100000000 + (low >>> 0);
}
