// The events that speak of what is selected: looked for once per selection, and in what is new.
import type { Selection } from "../model/payloads.ts";
import type { Recording } from "../model/recording.ts";
import { mentions } from "./mentions.ts";

export class Mentioned {
  events: number[] = [];
  name = "";
  start = 0;
  end = 0;

  find(recording: Recording, selection: Selection | null) {
    const name = `${recording.header.lab} ${JSON.stringify(selection)}`,
      speaks = mentions(recording, selection);
    if (name !== this.name || recording.start !== this.start || recording.end < this.end) {
      this.events = [];
      this.end = recording.start;
    }
    if (speaks) for (let i = this.end; i < recording.end; i++) if (speaks(i)) this.events.push(i);
    this.name = name;
    this.start = recording.start;
    this.end = recording.end;
    return this.events;
  }
}
