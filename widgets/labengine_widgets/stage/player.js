// Plays the frames of a step one by one while somebody can watch, and lets the reader go back and forth over them.
import { applyFrame, copyState, emptyState, fullState } from "./state.js";

const FRAME_MS = 300;
const STEP_MS = 6000;

export class Player {
  // show(changed, frame): the state has moved on; changed is null when everything may differ, frame null when not playing on.
  constructor(show, canAnimate) {
    this.show = show;
    this.canAnimate = canAnimate;
    this.state = emptyState();
    this.base = null;
    this.frames = [];
    this.position = 0;
    this.timer = 0;
    this.isPlaying = false;
    this.isHeld = false;
  }

  // replay: the last steps as {frame, frames}, over by now, null when there are none; at: the frames to show of them.
  reset(frame, replay) {
    this.stop();
    this.state = fullState(frame);
    this.base = replay ? fullState(replay.frame) : null;
    this.frames = replay ? replay.frames : [];
    this.position = this.frames.length;
    if (replay && replay.at < this.position) this.seek(replay.at);
    else this.show(null, null);
  }

  // A merged change of a lab that runs by itself: nothing to play.
  follow(frame) {
    this.skip();
    this.frames = [];
    this.position = 0;
    this.show(applyFrame(this.state, frame), null);
  }

  add(frames, isNew) {
    if (!(this.isPlaying || this.isHeld) || isNew) this.skip();
    if (isNew || !this.frames.length) {
      this.base = copyState(this.state);
      this.frames = [];
      this.position = 0;
    }
    this.frames = this.frames.concat(frames);
    if (this.canAnimate()) this.play();
    else this.hold();
  }

  // Nobody can watch: wait, and go on when somebody can.
  hold() {
    this.stop();
    this.isHeld = this.position < this.frames.length;
    this.show(new Set(), null);
  }

  resume() {
    if (this.isHeld && this.canAnimate()) this.play();
  }

  play() {
    if (this.position >= this.frames.length) this.seek(0);
    if (this.isPlaying) return;
    this.isPlaying = true;
    this.isHeld = false;
    this.started = { time: performance.now(), position: this.position };
    this.tick();
  }

  replay() {
    if (!this.frames.length) return;
    this.beforeReplay?.();
    this.seek(0);
    this.play();
  }

  tick() {
    if (!this.canAnimate()) return this.hold();
    const pace = Math.min(FRAME_MS, STEP_MS / this.frames.length), { time, position } = this.started;
    const due = Math.min(this.frames.length, position + 1 + Math.floor((performance.now() - time) / pace));
    this.isPlaying = due < this.frames.length;
    const changed = new Set();
    while (this.position + 1 < due) for (const id of applyFrame(this.state, this.frames[this.position++])) changed.add(id);
    if (this.position < due) this.forward(true, changed);
    if (this.isPlaying) this.timer = setTimeout(() => this.tick(), time + (due - position) * pace - performance.now());
  }

  stop() {
    clearTimeout(this.timer);
    this.isPlaying = this.isHeld = false;
  }

  // Ends the play: the newest state, at once.
  skip() {
    this.seek(this.frames.length);
  }

  seek(position) {
    this.stop();
    const target = Math.max(0, Math.min(position, this.frames.length));
    if (target === this.position) return;
    if (target < this.position) {
      this.state = copyState(this.base);
      this.position = 0;
      for (let i = 0; i < target; i++) applyFrame(this.state, this.frames[i]);
      this.position = target;
      return this.show(null, null);
    }
    if (target === this.position + 1) return this.forward(false);
    while (this.position < target) applyFrame(this.state, this.frames[this.position++]);
    this.show(null, null);
  }

  // skipped: blocks that changed in frames for which there was no time.
  forward(isAnimated, skipped = []) {
    const frame = this.frames[this.position];
    if (isAnimated) this.beforeFrame?.(frame);
    const changed = applyFrame(this.state, frame);
    for (const id of skipped) changed.add(id);
    this.position += 1;
    this.show(changed, isAnimated ? frame : null);
  }
}
