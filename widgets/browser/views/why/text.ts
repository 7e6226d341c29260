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

// The difference of two texts, line by line: kept, removed and added lines.

const MAX_CELLS = 250000; // longer texts are shown one after the other

// -> [{sign: " " | "-" | "+", old: line number or null, new: line number or null, text}]
interface DiffRow {
  sign: " " | "-" | "+";
  old: number | null;
  new: number | null;
  text: string;
}

export function lineDiff(before: string[], after: string[]): DiffRow[] {
  const lengths = before.length * after.length <= MAX_CELLS ? commonLengths(before, after) : null;
  const rows: DiffRow[] = [];
  let i = 0,
    j = 0;
  while (i < before.length || j < after.length) {
    if (lengths && i < before.length && j < after.length && before[i] === after[j])
      rows.push({ sign: " ", old: i++, new: j, text: after[j++] });
    else if (i < before.length && (j === after.length || !lengths || lengths[i + 1][j] >= lengths[i][j + 1]))
      rows.push({ sign: "-", old: i, new: null, text: before[i++] });
    else rows.push({ sign: "+", old: null, new: j, text: after[j++] });
  }
  return rows;
}

// lengths[i][j]: the longest common run of lines of before from i on and after from j on.
function commonLengths(before: string[], after: string[]) {
  const lengths = Array.from({ length: before.length + 1 }, () => new Int32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--)
      lengths[i][j] =
        before[i] === after[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  }
  return lengths;
}
