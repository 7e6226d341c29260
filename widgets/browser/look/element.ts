// Helpers that create and update elements. Text is only ever set as textContent.

import { visible } from "../model/hidden_text.ts";

export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  className = "",
  text?: string | number,
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = visible(String(text));
  return made;
}

// The target of a browser event, as an element.
export function targetOf(event: Event): HTMLElement {
  return event.target as HTMLElement; // listeners are added to elements only
}

export function button(text: string, title: string, className = "") {
  const made = element("button", `le-button ${className}`, text);
  made.type = "button";
  made.title = title;
  if (!/\w/.test(text)) made.setAttribute("aria-label", title);
  return made;
}

// Writes a text only if it has changed, which saves a layout.
export function write(target: Element, text: string | number) {
  const wanted = visible(String(text));
  if (target.textContent !== wanted) target.textContent = wanted;
}

// Sets a property, a text as it is safe to show, only if it has changed: writing an equal value costs as much.
export function put<T, K extends keyof T>(target: T, name: K, value: T[K]) {
  const wanted = typeof value === "string" ? (visible(value) as typeof value) : value;
  if (target[name] !== wanted) target[name] = wanted;
}
