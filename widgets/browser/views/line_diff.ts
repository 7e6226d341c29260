// Two texts, line by line: what stayed, what went, what came.
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
