// Helpers that create and update elements. Text is only ever set as textContent.

import { visible } from "../model/hidden_text.ts";

// content: its text, or its properties; children: its contents.
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  className = "",
  content?: string | number | Partial<HTMLElementTagNameMap[Tag]>,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (typeof content === "object") Object.assign(made, content);
  else if (content !== undefined) made.textContent = visible(String(content));
  if (children.length) made.append(...children);
  return made;
}

// The target of a browser event, as an element.
export function targetOf(event: Event): HTMLElement {
  return event.target as HTMLElement; // listeners are added to elements only
}

// A button that acts on a click; one without a word is read out by its title.
export function button(text: string, title: string, act?: (event: MouseEvent) => void, className = "") {
  const made = element("button", `le-button ${className}`, { type: "button", textContent: text });
  if (title) made.title = title;
  if (title && !/\w/.test(text)) made.ariaLabel = title;
  if (act) made.addEventListener("click", act);
  return made;
}

// Acts on a key by its name, and keeps it from other listeners; keys with Ctrl, Alt or Meta go on to them.
export function takeKey(event: KeyboardEvent, acts: Record<string, () => void>) {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(acts, event.key)) return false;
  event.preventDefault();
  event.stopPropagation();
  acts[event.key]();
  return true;
}

// Writes a text only if it has changed, which saves a layout.
export function write(target: Element, text: string | number) {
  const wanted = visible(String(text));
  if (target.textContent !== wanted) target.textContent = wanted;
}

// Sets a property (texts made safe to show) only if it has changed: writing an equal value costs as much.
export function put<T, K extends keyof T>(target: T, name: K, value: T[K]) {
  const wanted = typeof value === "string" ? (visible(value) as typeof value) : value;
  if (target[name] !== wanted) target[name] = wanted;
}
