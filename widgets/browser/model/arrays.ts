// Sorted and growing arrays: binary search, and room for more.

// The last of the sorted items whose place is less than `limit`; -1 without one.
export function lastBefore<T>(items: T[], limit: number, placeOf: (item: T) => number) {
  let low = 0,
    high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (placeOf(items[middle]) < limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// How many of the ascending numbers are at most this one.
export function countUpTo(numbers: number[], most: number) {
  let low = 0,
    high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function grown<T extends Int32Array | Uint8Array>(array: T, length: number, filler = 0): T {
  if (length <= array.length) return array;
  const larger = new (array.constructor as new (length: number) => T)(Math.max(length, 2 * array.length));
  if (filler) larger.fill(filler, array.length);
  larger.set(array);
  return larger;
}
