// Helpers that create and update elements. Text is only ever set as textContent.

const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

// Text that is safe to show: invisible characters and direction marks become dots.
export function seen(text: string | number) {
  return String(text).replace(UNSEEN, "·");
}

export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  className = "",
  text?: string | number,
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = seen(text);
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
  const wanted = seen(text);
  if (target.textContent !== wanted) target.textContent = wanted;
}

// Sets a property only if it has changed: writing an equal value costs as much.
export function put<T, K extends keyof T>(target: T, name: K, value: T[K]) {
  if (target[name] !== value) target[name] = value;
}
