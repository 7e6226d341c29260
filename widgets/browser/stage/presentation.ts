// Presentation mode, for a lecture: a dashboard or a comparison fills the screen, with tables and pool alone and in
// large type. One key goes on to the next step.

import type { Keys } from "./keyboard.ts";
import type { Stage } from "./stage.ts";

const PRESENTING = "le-presenting";

export class Presentation {
  // step: the button that has the lab take a step; keys: the list that names f.
  constructor(
    readonly stage: Stage,
    readonly step: HTMLButtonElement,
    keys: Keys,
  ) {
    keys.add("f", "for a lecture: tables and pool in full screen; space or page down: next step");
    const onChange = () => !document.fullscreenElement && this.end();
    document.addEventListener("fullscreenchange", onChange, { signal: stage.end.signal });
  }

  get isOn() {
    return this.stage.root.classList.contains(PRESENTING);
  }

  toggle() {
    if (this.isOn) this.end();
    else this.begin();
  }

  // Where the page may not fill the screen, the root fills the page.
  begin() {
    const { root } = this.stage;
    root.classList.add(PRESENTING);
    root.requestFullscreen?.().then(
      () => !this.isOn && this.leaveScreen(), // ended while the browser was asked
      () => {},
    );
    this.stage.repaint();
  }

  end() {
    if (!this.isOn) return;
    this.stage.root.classList.remove(PRESENTING);
    this.leaveScreen();
    this.stage.repaint();
  }

  leaveScreen() {
    if (document.fullscreenElement === this.stage.root) void document.exitFullscreen();
  }

  // To the end of the next step: a recorded one, or at the newest moment one that the lab takes now.
  next() {
    const { stage } = this;
    if (stage.isPlaying || stage.player.isHeld) stage.skipPlay();
    if (stage.position < stage.track.end || !stage.hasControls) stage.step(1);
    else this.step.click();
  }
}
