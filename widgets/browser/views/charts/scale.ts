// How high a chart is, and what its axis says. One prefill among many decodes must not flatten them: it is cut, and
// says so.

const FEW = 0.2; // of the steps may be cut
const FAR = 4; // times as high as the highest of the rest
const LEAST = 4; // steps that there must be

// {most, isCut}: the axis ends there; isCut: some values lie beyond.
export function scaleOf(values: number[]) {
  const highest = values.reduce((most, value) => Math.max(most, value), 0),
    rest = withoutFew(values),
    most = rounded(rest);
  return highest > FAR * most ? { most, isCut: true } : { most: rounded(highest), isCut: false };
}

// The highest value but for the few that stand out.
function withoutFew(values: number[]) {
  const sorted = values.filter((value) => value > 0).sort((a, b) => b - a),
    few = Math.max(1, Math.floor(FEW * sorted.length));
  if (sorted.length < LEAST) return sorted[0] ?? 0;
  let at = 0;
  for (let i = 0; i < few; i++) if (sorted[i] > FAR * sorted[i + 1]) at = i + 1;
  return sorted[at];
}

// A round number that is not smaller: 1, 2, 5 and their tens.
export function rounded(value: number) {
  if (value <= 0) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((digit) => digit * ten >= value * (1 - 1e-9)) ?? 10) * ten;
}

// A value as the axis has it.
export function said(value: number, unit?: string) {
  if (unit === "%") return `${Math.round(100 * value)}%`;
  if (unit === "ms") return value >= 1000 ? `${short(value / 1000)} s` : value ? `${short(value)} ms` : "0";
  return value >= 10000 ? `${short(value / 1000)}k` : short(value);
}

function short(value: number) {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}
