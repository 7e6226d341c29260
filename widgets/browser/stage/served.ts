// The connection to Python of a page that `labengine attach --page` serves: one for all its dashboards. Messages come
// as frames of one long answer, and go as posts, one after the other.
import type { WireContent } from "../model/payloads.ts";
import type { Source, WireBuffer } from "./wire.ts";

const HEAD_BYTES = 8; // of a frame: the length of its text, and of its buffer
const ABSENCE = {
  gone: "The command that serves this page has ended. Everything sent is still here, but Why? cannot be answered.",
  silence: "No answer yet: this is the last known state.",
};

type Hear = (content: WireContent, buffers?: WireBuffer[]) => void;

export class ServedPage {
  sources: ServedSource[];
  waiting: { number: number; content: Record<string, unknown> }[] = [];
  isOpen = false;
  hasEnded = false;
  isPosting = false;

  constructor(
    readonly address: URL,
    num: number,
  ) {
    this.sources = Array.from({ length: num }, (_, number) => new ServedSource(this, number));
  }

  // Takes messages until the server ends. A connection that was cut, as of a page that slept, is made once again.
  // Throws an Error with the server's words where it refuses.
  async follow(isAgain: () => void) {
    for (let isFirst = true; ; isFirst = false) {
      const answer = await this.opened(isFirst);
      this.hasEnded = !answer?.body;
      if (!answer?.body) return;
      this.isOpen = true;
      if (!isFirst) isAgain();
      void this.post();
      await this.take(answer.body).catch(() => {});
      this.isOpen = false;
    }
  }

  // Each connection has its own name: the server may not have noticed the end of the one before.
  async opened(isFirst: boolean) {
    this.address.searchParams.set("page", crypto.randomUUID());
    const answer = await fetch(this.address).catch(() => null);
    if (answer?.ok) return answer;
    if (isFirst) throw new Error(answer ? await answer.text() : ABSENCE.gone);
    return null;
  }

  async take(body: ReadableStream<Uint8Array>) {
    const reader = body.getReader(),
      frames = new Frames();
    for (let read = await reader.read(); !read.done; read = await reader.read())
      for (const [text, data] of frames.add(read.value)) {
        const { number, content } = JSON.parse(text);
        this.sources[number].hear(content, data.length ? [data] : undefined);
      }
  }

  async post() {
    if (this.isPosting || !this.isOpen) return;
    this.isPosting = true;
    while (this.waiting.length && this.isOpen) {
      const body = JSON.stringify(this.waiting.splice(0));
      await fetch(this.address, { method: "POST", body }).catch(() => {});
    }
    this.isPosting = false;
  }
}

// One dashboard's part of the connection.
class ServedSource implements Source {
  absence = ABSENCE;
  hearers = new Set<Hear>();

  constructor(
    readonly page: ServedPage,
    readonly number: number,
  ) {}

  // Throws an Error once the command has ended.
  send(content: Record<string, unknown>) {
    if (this.page.hasEnded) throw new Error(ABSENCE.gone);
    this.page.waiting.push({ number: this.number, content });
    void this.page.post();
  }

  listen(hear: Hear) {
    this.hearers.add(hear);
    return () => this.hearers.delete(hear);
  }

  hear(content: WireContent, buffers?: WireBuffer[]) {
    for (const hear of this.hearers) hear(content, buffers);
  }
}

// Puts frames together from the pieces in which they arrive.
class Frames {
  pieces: Uint8Array[] = [];
  size = 0;

  // Returns the text and the buffer of each frame that is complete now; signs of life are left out.
  add(piece: Uint8Array): [string, Uint8Array][] {
    this.pieces.push(piece);
    this.size += piece.length;
    const found: [string, Uint8Array][] = [];
    for (let frame = this.next(); frame; frame = this.next()) if (frame[0]) found.push(frame);
    return found;
  }

  next(): [string, Uint8Array] | null {
    if (this.size < HEAD_BYTES) return null;
    const head = this.first(HEAD_BYTES),
      lengths = new DataView(head.buffer, head.byteOffset),
      text = HEAD_BYTES + lengths.getUint32(0),
      end = text + lengths.getUint32(4);
    if (this.size < end) return null;
    const frame = this.first(end);
    this.pieces = [frame.subarray(end)];
    this.size -= end;
    return [new TextDecoder().decode(frame.subarray(HEAD_BYTES, text)), frame.subarray(text, end)];
  }

  // Joins the first pieces, up to so many bytes, into one that replaces them.
  first(num: number) {
    if (this.pieces[0].length >= num) return this.pieces[0];
    const joined = new Uint8Array(this.size);
    let at = 0;
    for (const piece of this.pieces) {
      joined.set(piece, at);
      at += piece.length;
    }
    this.pieces = [joined];
    return joined;
  }
}
