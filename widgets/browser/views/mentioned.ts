// The events that speak of what is selected: looked for once per selection, and in what is new.
import { mentions } from "./mentions.ts";

export class Mentioned {
  constructor() {
    Object.assign(this, { events: [], name: null, start: 0, end: 0 });
  }

  find(recording, selection) {
    const name = `${recording.header.lab} ${JSON.stringify(selection)}`,
      speaks = mentions(recording, selection);
    if (name !== this.name || recording.start !== this.start || recording.end < this.end)
      Object.assign(this, { events: [], end: recording.start });
    if (speaks) for (let i = this.end; i < recording.end; i++) if (speaks(i)) this.events.push(i);
    Object.assign(this, { name, start: recording.start, end: recording.end });
    return this.events;
  }
}
