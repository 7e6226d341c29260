// The small parts of which everything is made. Text only ever enters as textContent.
import { contentName, hueOf, inkOn, requestName, shapeOf } from "./palette.ts";

const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

// Text as it may be shown: what is not seen, or turns the direction of its neighbours, is a dot.
export function seen(text) {
  return String(text).replace(UNSEEN, "·");
}

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = seen(text);
  return made;
}

export function button(text, title, className = "") {
  const made = element("button", `le-button ${className}`, text);
  made.type = "button";
  made.title = title;
  if (!/\w/.test(text)) made.setAttribute("aria-label", title);
  return made;
}

// Keeps one child per item, by key and in order; update writes only where the item's signature is new.
export function reconcile(parent, items, keyOf, signatureOf, make, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    const signature = signatureOf(item);
    if (child.signature !== signature) {
      child.signature = signature;
      update(child, item);
    }
  }
  for (const child of old.values()) child.remove();
}

// Writes a text only where it is another one: no layout for nothing.
export function write(target, text) {
  const wanted = seen(text);
  if (target.textContent !== wanted) target.textContent = wanted;
}

// Sets a property only where it is another one: each writing costs, one of the same value too.
export function put(target, name, value) {
  if (target[name] !== value) target[name] = value;
}

// A request: a shape and a letter, never a hue, for hue is content.
export function badge(request) {
  const made = element("span", `le-badge le-${shapeOf(request)}`);
  made.append(element("span", "", requestName(request)));
  made.dataset.request = request;
  return made;
}

// A content: its letter on its hue.
export function letter(content) {
  const made = element("span", "le-letter", contentName(content));
  made.style.background = hueOf(content);
  made.style.color = inkOn(hueOf(content));
  return made;
}

// Fill and border as in the pool; block as Scene.block gives it, or nothing.
export function dress(target, block) {
  const holds = block && (block.refCount > 0 || block.isMapped);
  target.style.setProperty("--hue", holds && block.content >= 0 ? hueOf(block.content) : "transparent");
  target.classList.toggle("le-live", Boolean(holds && block.refCount));
  target.classList.toggle("le-freed", Boolean(holds && !block.refCount));
  target.classList.toggle("le-lost", Boolean(holds && block.isLost));
  target.classList.toggle("le-full", Boolean(holds && block.content >= 0));
  target.classList.toggle("le-doubled", Boolean(holds && block.groups.length > 1));
}
