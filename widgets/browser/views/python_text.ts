// Python, lightly coloured: a line becomes pieces [text, kind], kind being word, text, note, name or nothing.
const WORDS = new Set(
  (
    "and as assert async await break case class continue def del elif else except finally for from if import " +
    "in is lambda match not or pass raise return try while with yield None True False self"
  ).split(" "),
);
// A comment, quotes that may go on over lines, a string, a name, and whatever else.
const PIECES = [
  /(#.*$)/,
  /([rbfu]{0,2}"""|[rbfu]{0,2}''')/,
  /([rbfu]{0,2}"(?:\\.|[^"\\])*"|[rbfu]{0,2}'(?:\\.|[^'\\])*')/,
  /([A-Za-z_]\w*)/,
  /(\s+|\d[\w.]*|[^\w\s])/,
];
const PIECE = new RegExp(PIECES.map(({ source }) => source).join("|"), "g");

// lines -> pieces per line; a docstring goes on until its quotes close.
export type PythonPiece = [text: string, kind: string];

export function pieces(lines: string[]): PythonPiece[][] {
  let open: string | null = null;
  return lines.map((line) => {
    const found: PythonPiece[] = [];
    let at = 0;
    if (open) {
      const end = line.indexOf(open);
      if (end < 0) return [[line, "text"]];
      at = end + open.length;
      found.push([line.slice(0, at), "text"]);
      open = null;
    }
    let before = "";
    PIECE.lastIndex = at;
    for (let match = PIECE.exec(line); match; match = PIECE.exec(line)) {
      const [text, note, quotes, string, word] = match;
      if (quotes) {
        const mark = quotes.slice(-3),
          end = line.indexOf(mark, match.index + quotes.length);
        if (end < 0) {
          open = mark;
          found.push([line.slice(match.index), "text"]);
          return found;
        }
        found.push([line.slice(match.index, end + 3), "text"]);
        PIECE.lastIndex = end + 3;
        continue;
      }
      found.push([
        text,
        note
          ? "note"
          : string
            ? "text"
            : word && WORDS.has(word)
              ? "word"
              : word && (before === "def" || before === "class")
                ? "name"
                : "",
      ]);
      if (text.trim()) before = text;
    }
    return found;
  });
}
