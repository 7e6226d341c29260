// Sentences by moment, and the stretches for which there are any.

export class Beats {
  constructor() {
    this.clear();
  }

  clear() {
    this.list = [];
    this.ranges = [];
  }

  // The words for all events between start and end; what was known of them before is replaced.
  add(start, end, beats) {
    const low = this.indexAfter(start),
      high = this.indexAfter(end);
    this.list.splice(low, high - low, ...beats.map(([at, sentence, phase]) => ({ at, sentence, phase })));
    this.ranges.push([start, end]);
    this.ranges.sort((a, b) => a[0] - b[0]);
    this.ranges = this.ranges.reduce((merged, range) => {
      const last = merged.at(-1);
      if (last && range[0] <= last[1]) last[1] = Math.max(last[1], range[1]);
      else merged.push([...range]);
      return merged;
    }, []);
  }

  // The number of beats at or before a moment.
  indexAfter(moment) {
    let low = 0,
      high = this.list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.list[middle].at <= moment) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  at(moment) {
    const found = this.list[this.indexAfter(moment) - 1];
    return found && found.at === moment ? found : null;
  }

  // Are there words for everything between two moments?
  covers(start, end) {
    return start === end || this.ranges.some(([low, high]) => low <= start && end <= high);
  }

  between(start, end) {
    return this.list.slice(this.indexAfter(start), this.indexAfter(end));
  }
}
