// Over the picture: sliding chips, the lines between a block and its holders, the tooltip.

import { element } from "../look/element.ts";
import { Links } from "./links.ts";
import { Slides } from "./slides.ts";
import type { Stage } from "./stage.ts";

export function overlay(stage: Stage) {
  const layer = element("div", "le-layer"),
    svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  layer.setAttribute("aria-hidden", "true");
  stage.tip = element("div", "le-tip");
  stage.tip.hidden = true;
  layer.append(svg, stage.tip);
  stage.slides = new Slides(stage, layer);
  stage.links = new Links(stage, svg);
  return layer;
}
