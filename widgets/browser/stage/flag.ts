// A flag over a slider, where the marked moment lies.
import { element, put } from "../look/element.ts";

const THUMB = 16; // px: a slider's ends are half its thumb away from its edges

export class Flag {
  slider: HTMLInputElement;
  flag = element("i", "le-flag");
  element = element("span", "le-slide");
  left?: string;

  constructor(slider: HTMLInputElement) {
    this.slider = slider;
    this.flag.hidden = true;
    this.element.append(slider, this.flag);
  }

  // At a value of the slider; null: there is nothing to show.
  stand(value: number | null, title: string) {
    this.flag.hidden = value === null;
    if (value === null) return;
    const { min, max } = this.slider,
      share = Number(max) > Number(min) ? (value - Number(min)) / (Number(max) - Number(min)) : 0;
    const left = `calc(${THUMB / 2}px + ${share.toFixed(4)} * (100% - ${THUMB}px))`;
    if (this.left !== left) this.flag.style.left = this.left = left;
    put(this.flag, "title", title);
  }
}
