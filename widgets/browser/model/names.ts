// Names of requests and contents.

const LETTERS = "pqrstuvwxyz";

export function contentName(number: number) {
  const round = Math.floor(number / LETTERS.length);
  return LETTERS[number % LETTERS.length] + (round || "");
}

export function requestName(request: number) {
  let name = "";
  for (let rest = request + 1; rest > 0; rest = Math.floor((rest - 1) / 26))
    name = String.fromCharCode(65 + ((rest - 1) % 26)) + name;
  return name;
}
