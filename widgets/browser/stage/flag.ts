// A flag over a slider, where the marked moment lies.
import { element, put } from "../look/element.ts";

const THUMB = 16; // px: a slider's ends are half its thumb away from its edges

export class Flag {
  constructor(slider) {
    this.slider = slider;
    this.flag = element("i", "le-flag");
    this.flag.hidden = true;
    this.element = element("span", "le-slide");
    this.element.append(slider, this.flag);
  }

  // At a value of the slider; null: there is nothing to show.
  stand(value, title) {
    this.flag.hidden = value === null;
    if (value === null) return;
    const { min, max } = this.slider,
      share = Number(max) > Number(min) ? (value - min) / (max - min) : 0;
    const left = `calc(${THUMB / 2}px + ${share.toFixed(4)} * (100% - ${THUMB}px))`;
    if (this.left !== left) this.flag.style.left = this.left = left;
    put(this.flag, "title", title);
  }
}
