// The connection to Python in a worker of this page: the same messages as those of a notebook's widget.
import type { WireContent } from "../browser/model/payloads.ts";
import type { Source, WireBuffer } from "../browser/stage/wire.ts";
import type { Posted } from "./python.ts";

type Hear = (content: WireContent, buffers?: WireBuffer[]) => void;

export class Connection implements Source {
  worker!: Worker;
  isOpen = false; // a session is there to hear messages
  waiting: Record<string, unknown>[] = []; // questions that were asked before
  hearers = new Set<Hear>();

  // act: takes the posts for the page.
  constructor(
    readonly script: URL,
    readonly act: (posted: Posted) => void,
  ) {
    this.start();
  }

  start() {
    const { act } = this;
    this.worker = new Worker(this.script, { type: "module" });
    this.worker.onmessage = ({ data }: MessageEvent<Posted>) => {
      if (data.kind === "message") this.hear(data);
      else act(data);
    };
    this.worker.onerror = ({ message }) =>
      act({ kind: "failed", content: { message: message || "its script could not be loaded" }, buffers: [] });
  }

  // Ends Python, whatever it does, and starts a new one.
  restart() {
    this.worker.terminate();
    this.isOpen = false;
    this.start();
  }

  // Of a view. Before there is a session, questions and sliders wait for it, and reports of what the reader does are of
  // no use.
  send(message: Record<string, unknown>) {
    if (this.isOpen) this.post(message);
    else if (message.id !== undefined || message.type === "vary") this.waiting.push(message);
  }

  listen(hear: Hear) {
    this.hearers.add(hear);
    return () => this.hearers.delete(hear);
  }

  post(message: Record<string, unknown>) {
    this.worker.postMessage(message);
  }

  open() {
    this.isOpen = true;
    for (const message of this.waiting.splice(0)) this.post(message);
  }

  hear({ content, buffers }: Posted) {
    for (const hear of this.hearers) hear(content as unknown as WireContent, buffers);
  }
}
