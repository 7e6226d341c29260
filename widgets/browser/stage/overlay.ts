// Over the picture: sliding chips, the lines between a block and its holders, the tooltip.
import { element } from "../look/element.ts";
import { Links } from "./links.ts";
import { Slides } from "./slides.ts";

export function overlay(stage) {
  const layer = element("div", "le-layer");
  layer.setAttribute("aria-hidden", "true");
  layer.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  stage.tip = element("div", "le-tip");
  stage.tip.hidden = true;
  layer.append(layer.svg, stage.tip);
  stage.slides = new Slides(stage, layer);
  stage.links = new Links(stage, layer.svg);
  return layer;
}
